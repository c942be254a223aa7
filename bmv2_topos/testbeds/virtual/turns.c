/* The hosts' turns of a tick: those of workers in the middle of a sum, without Python. `turns.py` has the same in Python,
 * and takes all other turns.
 *
 * It is compiled behind the text of hostlib/_native/ina_core.h and of softswitch/engine/runtime/engine.h, and gets both
 * libraries' functions by address.
 */

/* Functions of hostlib, then of the engine; `calls` of turns.py has the same order. */
struct calls {
    void (*absorb)(struct ina_core *, const uint8_t *, int64_t bytes, int64_t segment, int64_t now);
    int64_t (*emit)(struct ina_core *, uint8_t *, int64_t packets, int64_t stride, int64_t now);
    int64_t (*next_timeout)(const struct ina_core *);
    const uint8_t *(*frames)(struct cabling *, uint32_t end, uint32_t *count, const uint32_t **lengths);
    void (*forget)(struct cabling *, uint32_t end);
    void (*send)(struct cabling *, uint32_t end, const uint8_t *, const uint32_t *lengths, uint32_t count,
                 uint64_t now_us);
    uint32_t (*waiting)(struct cabling *, uint32_t *ends);
};

/* `SEAT` of turns.py: one that has turns. */
struct seat {
    struct ina_core *core;      /* of a worker whose turns may be taken here; NULL: of nobody else */
    int64_t due;                /* it has a turn then, even if nothing arrives */
    int64_t computed;           /* when its computing has a result */
    uint32_t end;
    uint8_t called;             /* something may have arrived */
    uint8_t busy;               /* a sum is under way */
};

/* `_Table` of turns.py. */
struct table {
    const struct calls *calls;
    struct cabling *cabling;
    struct seat *seats;
    uint32_t *first, *at;       /* of each end, and one more: its seats */
    uint32_t *told;             /* room for all ends */
    uint8_t *out;               /* room for `batch` packets */
    uint32_t *lengths;          /* of as many, all the same */
    uint32_t count, batch;
};

enum { OVER = 0, WHOLE = 1, REST = 2 };

static void call(const struct table *table)
{
    uint32_t ends = table->calls->waiting(table->cabling, table->told);
    for (uint32_t i = 0; i < ends; i++)
        for (uint32_t at = table->first[table->told[i]]; at < table->first[table->told[i] + 1]; at++)
            table->seats[table->at[at]].called = 1;
}

static void transmit(const struct table *table, struct seat *seat, int64_t now)
{
    const struct calls *calls = table->calls;
    struct ina_core *core = seat->core;
    int64_t count;
    while ((count = calls->emit(core, table->out, table->batch, 0, now)) > 0) {
        for (uint32_t i = 0; i < table->batch && table->lengths[0] != core->emitted_bytes; i++)
            table->lengths[table->batch - 1 - i] = core->emitted_bytes;
        calls->send(table->cabling, seat->end, table->out, table->lengths, (uint32_t)count, (uint64_t)now / 1000);
        call(table);
    }
}

static int are_alike(const uint32_t *lengths, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (lengths[i] != lengths[0])
            return 0;
    return 1;
}

/* Take one turn, or as much of it as needs no Python. */
static int turn(const struct table *table, struct seat *seat, int64_t now)
{
    const struct calls *calls = table->calls;
    struct ina_core *core = seat->core;
    if (!core || !seat->busy)
        return WHOLE;
    uint32_t count;
    const uint32_t *lengths;
    const uint8_t *data = calls->frames(table->cabling, seat->end, &count, &lengths);
    if (count == 0 && now < seat->due)
        return OVER;
    if (core->round_target > 0 && !are_alike(lengths, count))
        return WHOLE;           /* a round may be over after each of several runs */
    for (uint32_t start = 0, next; start < count; start = next) {
        int64_t bytes = 0;
        for (next = start; next < count && lengths[next] == lengths[start]; next++)
            bytes += lengths[next];
        calls->absorb(core, data, bytes, lengths[start], now);
        data += bytes;
    }
    calls->forget(table->cabling, seat->end);
    int round_due = 0 < core->round_target && core->round_target <= core->round_results;
    if (round_due || core->completed == core->total || core->disagree_index >= 0 || now >= seat->computed
        || now >= calls->next_timeout(core))
        return REST;
    transmit(table, seat, now);
    int64_t due = calls->next_timeout(core);
    seat->due = due < seat->computed ? due : seat->computed;
    return OVER;
}

/* Take the turns at `now`, seat `first` going first, from the seat of number `from` in that order on. Returns -1 when all
   are over, or else the number in the order of one whose turn Python has to take, `rest` of it or the whole. */
__attribute__((visibility("default")))
int64_t turns_take(const struct table *table, int64_t now, uint32_t first, uint32_t from, int32_t *rest)
{
    call(table);
    for (uint32_t number = from; number < table->count; number++) {
        uint32_t at = first + number < table->count ? first + number : first + number - table->count;
        struct seat *seat = &table->seats[at];
        if (!seat->called && seat->due > now)
            continue;
        seat->called = 0;
        int left = turn(table, seat, now);
        if (left == OVER)
            continue;
        *rest = left == REST;
        return number;
    }
    return -1;
}
