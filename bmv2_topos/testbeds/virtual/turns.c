/* The hosts' turns of a tick that need no Python: turns of workers in the middle of a sum, and turns of sinks, which
 * count packets. `turns.py` takes all other turns, or all turns.
 *
 * This file is compiled behind the text of hostlib/_native/ina_core.h. It gets the addresses of the functions of both
 * libraries in `struct calls`.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* Functions of hostlib, then of the engine; `calls` of turns.py has the same order. */
struct calls {
    void (*absorb)(struct ina_core *, const uint8_t *, int64_t bytes, int64_t segment, int64_t now);
    int64_t (*emit)(struct ina_core *, uint8_t *, int64_t packets, int64_t stride, int64_t now);
    int64_t (*next_timeout)(const struct ina_core *);
    void (*time_out)(struct ina_core *, int64_t now);
    const uint8_t *(*frames)(struct cabling *, uint32_t end, uint32_t *count, const uint32_t **lengths);
    void (*forget)(struct cabling *, uint32_t end);
    void (*send)(struct cabling *, uint32_t end, const uint8_t *, const uint32_t *lengths, uint32_t count,
                 uint64_t now_us);
    uint32_t (*waiting)(struct cabling *, uint32_t *ends);
};

#define UDP_DESTINATION 36      /* offset in a frame; all frames have plain Ethernet and IPv4 headers */

/* `_SEAT` of turns.py: an object that has turns. */
struct seat {
    struct ina_core *core;      /* core of a worker whose turns may be taken in C; NULL: no such worker */
    int64_t due;                /* time of its next turn if nothing arrives */
    int64_t computed;           /* time at which its computing ends */
    uint64_t arrived;           /* number of frames counted for a sink */
    uint32_t end;
    uint16_t port;              /* destination UDP port of its frames; 0: it gets all frames */
    uint8_t called;             /* frames may have arrived */
    uint8_t busy;               /* a sum is under way */
    uint8_t sink;               /* it is a sink, and its frames may be counted in C */
};

/* Memory for the frames of one seat, without the frames of other seats at its end. */
struct own {
    uint8_t *data;
    uint32_t *lengths;
    uint64_t bytes;
    uint32_t count;
};

/* `_Table` of turns.py. */
struct table {
    const struct calls *calls;
    struct cabling *cabling;
    struct seat *seats;
    uint32_t *first, *at;       /* the seats of end e are `at[first[e]]` to `at[first[e + 1] - 1]` */
    uint32_t *waiting;          /* room for the numbers of all ends */
    uint8_t *out;               /* room for `batch` packets */
    uint32_t *lengths;          /* `batch` lengths of packets, all equal */
    uint32_t count, batch;
    struct own own;
};

enum { OVER = 0, WHOLE = 1, REST = 2 };

static void call(const struct table *table)
{
    uint32_t ends = table->calls->waiting(table->cabling, table->waiting);
    for (uint32_t i = 0; i < ends; i++)
        for (uint32_t at = table->first[table->waiting[i]]; at < table->first[table->waiting[i] + 1]; at++)
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

/* The frames that wait at an end. */
struct waiting {
    const uint8_t *data;
    const uint32_t *lengths;
    uint32_t count;
};

static struct waiting look(const struct table *table, uint32_t end)
{
    struct waiting found;
    found.data = table->calls->frames(table->cabling, end, &found.count, &found.lengths);
    return found;
}

static uint16_t port_of(const uint8_t *frame, uint32_t length)
{
    return length < UDP_DESTINATION + 2 ? 0 : (uint16_t)(frame[UDP_DESTINATION] << 8 | frame[UDP_DESTINATION + 1]);
}

/* Count a frame for the sink that receives `port`, if there is one; the frame is delivered to no other seat. */
static void sink(const struct table *table, uint32_t end, uint16_t port)
{
    for (uint32_t at = table->first[end]; at < table->first[end + 1]; at++) {
        struct seat *seat = &table->seats[table->at[at]];
        seat->arrived += seat->sink && (!seat->port || seat->port == port);
    }
}

/* Count the waiting frames for the sinks at an end, except frames for `port`. */
static void count_rest(const struct table *table, uint32_t end, const struct waiting *waiting, uint16_t port)
{
    const uint8_t *frame = waiting->data;
    for (uint32_t i = 0; i < waiting->count; frame += waiting->lengths[i++]) {
        uint16_t to = port_of(frame, waiting->lengths[i]);
        if (to != port)
            sink(table, end, to);
    }
}

static int grow(struct own *own, uint64_t bytes, uint32_t count)
{
    if (own->bytes < bytes) {
        uint8_t *data = realloc(own->data, 2 * bytes);
        if (!data)
            return 0;
        own->data = data;
        own->bytes = 2 * bytes;
    }
    if (own->count < count) {
        uint32_t *lengths = realloc(own->lengths, 2 * count * sizeof *lengths);
        if (!lengths)
            return 0;
        own->lengths = lengths;
        own->count = 2 * count;
    }
    return 1;
}

/* Reduce `waiting` to the frames for the worker, back to back, without frames for sinks at the same end. Returns 0 if
 * there is not enough memory. */
static int own_frames(struct table *table, const struct seat *seat, struct waiting *waiting)
{
    uint64_t all = 0, bytes = 0;
    uint32_t count = 0;
    const uint8_t *frame = waiting->data;
    if (!seat->port)
        return 1;
    for (uint32_t i = 0; i < waiting->count; frame += waiting->lengths[i++]) {
        int is_its = port_of(frame, waiting->lengths[i]) == seat->port;
        all += waiting->lengths[i];
        count += is_its;
        bytes += is_its ? waiting->lengths[i] : 0;
    }
    if (bytes == all)
        return 1;
    struct own *own = &table->own;
    if (!grow(own, bytes + 1, count + 1))
        return 0;
    uint8_t *to = own->data;
    count = 0;
    frame = waiting->data;
    for (uint32_t i = 0; i < waiting->count; frame += waiting->lengths[i++]) {
        uint32_t length = waiting->lengths[i];
        if (port_of(frame, length) != seat->port)
            continue;
        memcpy(to, frame, length);
        to += length;
        own->lengths[count++] = length;
    }
    *waiting = (struct waiting){own->data, own->lengths, count};
    return 1;
}

/* Return the end of the run of frames of equal length that begins at `start`. */
static uint32_t run_end(const struct waiting *waiting, uint32_t start)
{
    uint32_t end = start;
    while (end < waiting->count && waiting->lengths[end] == waiting->lengths[start])
        end++;
    return end;
}

static void absorb(const struct table *table, const struct seat *seat, const struct waiting *own, int64_t now)
{
    const uint8_t *data = own->data;
    for (uint32_t start = 0, end; start < own->count; start = end) {
        end = run_end(own, start);
        int64_t bytes = (int64_t)(end - start) * own->lengths[start];
        table->calls->absorb(seat->core, data, bytes, own->lengths[start], now);
        data += bytes;
    }
}

static const struct seat *worker_at(const struct table *table, uint32_t end)
{
    for (uint32_t at = table->first[end]; at < table->first[end + 1]; at++)
        if (table->seats[table->at[at]].core)
            return &table->seats[table->at[at]];
    return NULL;
}

static int sinks_turn(const struct table *table, const struct seat *seat, int64_t now)
{
    if (now >= seat->due)
        return WHOLE;               /* the sink's flow has to send */
    struct waiting waiting = look(table, seat->end);
    if (waiting.count && !worker_at(table, seat->end)) {    /* a worker's turn counts the frames at its end, too */
        count_rest(table, seat->end, &waiting, 0);
        table->calls->forget(table->cabling, seat->end);
    }
    return OVER;
}

/* Finish a worker's turn: send overdue packets again, and send the packets that the window permits. */
static void finish(const struct table *table, struct seat *seat, int64_t now)
{
    if (seat->busy)
        table->calls->time_out(seat->core, now);
    transmit(table, seat, now);
    int64_t due = seat->busy ? table->calls->next_timeout(seat->core) : INA_NEVER;
    seat->due = due < seat->computed ? due : seat->computed;
}

/* Take one turn, or the part of it that needs no Python. */
static int turn(struct table *table, struct seat *seat, int64_t now)
{
    const struct calls *calls = table->calls;
    struct ina_core *core = seat->core;
    if (seat->sink)
        return sinks_turn(table, seat, now);
    if (!core)
        return WHOLE;
    struct waiting all = look(table, seat->end), own = all;
    if (!own_frames(table, seat, &own))
        return WHOLE;
    int idle = own.count == 0 && now < seat->due;
    if (core->round_target > 0 && run_end(&own, 0) < own.count)     /* a round may end after each run of frames */
        return WHOLE;
    absorb(table, seat, &own, now);
    if (seat->port)
        count_rest(table, seat->end, &all, seat->port);
    calls->forget(table->cabling, seat->end);
    if (idle)
        return OVER;
    int round_due = 0 < core->round_target && core->round_target <= core->round_results;
    int ended = seat->busy && (core->completed == core->total || core->disagree_index >= 0);
    if (round_due || ended || now >= seat->computed)
        return REST;
    finish(table, seat, now);
    return OVER;
}

/* Take the turns at the time `now`. In the order of turns, seat `first` is number 0. First finish the turn of the
 * seat `unfinished` (-1: none); then take the turns from number `from` on. Returns -1 after the last turn, or else the
 * number of a turn that Python has to take. If `rest` is then 0, Python takes the whole turn. If `rest` is 1, C has
 * begun the turn: Python takes the next part, and the next call finishes the turn. */
__attribute__((visibility("default")))
int64_t turns_take(struct table *table, int64_t now, uint32_t first, uint32_t from, int64_t unfinished, int32_t *rest)
{
    if (unfinished >= 0)
        finish(table, &table->seats[unfinished], now);
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

__attribute__((visibility("default")))
void turns_free(struct table *table)
{
    free(table->own.data);
    free(table->own.lengths);
    table->own = (struct own){0};
}
