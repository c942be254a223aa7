/* Several engines in virtual time, and the cables between their memory ports: `cables.py` says what happens in which
 * order, and its twin in Python does the same.
 *
 * The engines of a step are found by an array of when each is due, so those with nothing to do cost a word of it.
 */
#include <stdlib.h>
#include <string.h>

#include "engine_internal.h"

/* Where frames enter an engine: what is at the other end of a cable, or of a host's. */
struct entrance {
    uint32_t engine;
    uint16_t port;
    bool asks;                      /* whether a frame gets here is asked for each */
};

/* A frame that is on its way to an entrance. */
struct under_way {
    uint64_t time_us, order;
    struct frame *frame;
    uint32_t entrance;
};

/* What is on its way to an engine: a heap. */
struct inbox {
    struct under_way *heap;
    size_t size, capacity;
};

struct cabling {
    struct engine **engines;
    struct inbox *inbox;            /* of each engine */
    uint64_t *due_us, *arrival_us;  /* of each engine: its next event, and what enters it next */
    uint32_t count, cables, entrances;
    struct engine_cable *cable;     /* by their sources, in the order in which they are looked at */
    uint32_t *first_cable;          /* of each engine, and one more */
    struct engine_end *end;
    uint32_t *first_end, *ends_of;  /* of each engine, and one more: the ends at it */
    struct entrance *entrance;      /* of the cables, then of the ends */
    bool *touched;                  /* may have sent something since it was looked at */
    uint32_t *turn, turns;          /* those, unordered */
    bool *held;                     /* locked by this call */
    bool *waits;                    /* an end is in `waiting` */
    uint32_t *waiting, waitings;    /* to be told of */
    uint64_t order, now_us, step_us;
    struct spares frames;           /* of all engines */
    int (*survives)(uint32_t entrance);
    bool short_of_memory;
};

/* ---------------------------------------------------------------- frames under way */

static bool sooner(const struct under_way *a, const struct under_way *b)
{
    return a->time_us != b->time_us ? a->time_us < b->time_us : a->order < b->order;
}

static bool grow_inbox(struct inbox *inbox)
{
    if (inbox->size < inbox->capacity)
        return true;
    size_t capacity = inbox->capacity ? 2 * inbox->capacity : 64;
    struct under_way *heap = realloc(inbox->heap, capacity * sizeof *heap);
    if (!heap)
        return false;
    inbox->heap = heap;
    inbox->capacity = capacity;
    return true;
}

/* Takes over the reference. */
static void put(struct cabling *cabling, uint64_t time_us, uint32_t entrance, struct frame *frame)
{
    uint32_t engine = cabling->entrance[entrance].engine;
    struct inbox *inbox = &cabling->inbox[engine];
    if (!frame || !grow_inbox(inbox)) {
        cabling->short_of_memory = true;
        frame_release(&cabling->frames, frame);
        return;
    }
    struct under_way item = {time_us, cabling->order++, frame, entrance}, *heap = inbox->heap;
    size_t at = inbox->size++;
    while (at > 0 && sooner(&item, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = item;
    cabling->arrival_us[engine] = heap[0].time_us;
}

static struct under_way next_under_way(struct inbox *inbox)
{
    struct under_way *heap = inbox->heap, first = heap[0];
    struct under_way moved = heap[--inbox->size];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < inbox->size) {
        if (child + 1 < inbox->size && sooner(&heap[child + 1], &heap[child]))
            child++;
        if (!sooner(&heap[child], &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
    return first;
}

/* ---------------------------------------------------------------- engines */

static struct engine *enter(struct cabling *cabling, uint32_t number)
{
    struct engine *engine = cabling->engines[number];
    if (!cabling->held[number]) {
        cabling->held[number] = true;
        engine_lock(engine);
    }
    if (!cabling->touched[number]) {
        cabling->touched[number] = true;
        cabling->turn[cabling->turns++] = number;
    }
    return engine;
}

static void leave(struct cabling *cabling, uint32_t number)
{
    struct engine *engine = cabling->engines[number];
    cabling->due_us[number] = engine->heap_size ? (engine->heap[0].time_ns + 999) / 1000 : ENGINE_NEVER;
}

static void release_all(struct cabling *cabling)
{
    for (uint32_t i = 0; i < cabling->count; i++)
        if (cabling->held[i]) {
            cabling->held[i] = false;
            engine_unlock(cabling->engines[i]);
        }
}

static uint64_t next_due(const struct cabling *cabling)
{
    uint64_t due = ENGINE_NEVER;
    for (uint32_t i = 0; i < cabling->count; i++) {
        due = cabling->due_us[i] < due ? cabling->due_us[i] : due;
        due = cabling->arrival_us[i] < due ? cabling->arrival_us[i] : due;
    }
    return due;
}

/* ---------------------------------------------------------------- a step */

/* Let enter an engine, each at its time, what does so up to `now_us`. */
static void let_in(struct cabling *cabling, uint32_t number, uint64_t now_us)
{
    struct inbox *inbox = &cabling->inbox[number];
    const struct under_way *first = inbox->heap;
    while (inbox->size && first->time_us <= now_us) {
        uint64_t due_us = first->time_us;
        uint32_t entrance = first->entrance;
        bool asks = entrance >= cabling->cables && cabling->entrance[entrance].asks;
        struct engine *engine = NULL;
        do {
            struct frame *frame = next_under_way(inbox).frame;
            if (!asks || cabling->survives(entrance)) {
                if (!engine) {
                    engine = enter(cabling, number);
                    run_events(engine, due_us * 1000);
                }
                port_receive_shared(engine->ports[cabling->entrance[entrance].port], frame);
            }
            frame_release(&cabling->frames, frame);
        } while (inbox->size && first->time_us == due_us && first->entrance == entrance);
        if (engine)
            leave(cabling, number);
    }
    cabling->arrival_us[number] = inbox->size ? first->time_us : ENGINE_NEVER;
}

/* Let happen what is due in engines up to `now_us`; `all`: and enter what does so. Engines do not touch each other
   within a step, so each has its whole step at once, while the processor's caches have what it needs. */
static void advance_engines(struct cabling *cabling, uint64_t now_us, bool all)
{
    for (uint32_t i = 0; i < cabling->count; i++) {
        if (all && cabling->arrival_us[i] <= now_us)
            let_in(cabling, i, now_us);
        if (cabling->due_us[i] <= now_us) {
            run_events(enter(cabling, i), now_us * 1000);
            leave(cabling, i);
        }
    }
}

static void collect_cable(struct cabling *cabling, uint32_t number)
{
    const struct engine_cable *cable = &cabling->cable[number];
    struct port *port = cabling->engines[cable->source]->ports[cable->port];
    for (uint32_t i = 0; i < port->departed_count; i++) {
        const struct departed *departed = &port->departed[i];
        if (!cabling->entrance[number].asks || cabling->survives(number))
            put(cabling, departed->time_us + cable->delay_us, number, departed->frame);
        else
            frame_release(&cabling->frames, departed->frame);
    }
    port->departed_count = 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Note the ends at an engine at which frames wait. */
static void look_at_ends(struct cabling *cabling, uint32_t number)
{
    for (uint32_t at = cabling->first_end[number]; at < cabling->first_end[number + 1]; at++) {
        uint32_t end = cabling->ends_of[at];
        if (!cabling->waits[end] && cabling->engines[number]->ports[cabling->end[end].port]->outbox.count) {
            cabling->waits[end] = true;
            cabling->waiting[cabling->waitings++] = end;
        }
    }
}

/* Take what has left the engines towards each other, in the cables' order. */
static void collect(struct cabling *cabling)
{
    qsort(cabling->turn, cabling->turns, sizeof *cabling->turn, by_number);
    for (uint32_t i = 0; i < cabling->turns; i++) {
        uint32_t number = cabling->turn[i];
        cabling->touched[number] = false;
        for (uint32_t cable = cabling->first_cable[number]; cable < cabling->first_cable[number + 1]; cable++)
            collect_cable(cabling, cable);
        look_at_ends(cabling, number);
    }
    cabling->turns = 0;
}

/* ---------------------------------------------------------------- what Python calls */

/* Engines of the same program work in the first one's memory; frames, which go from one to the other, are all alike. */
static void share(struct cabling *cabling, struct engine *engine)
{
    struct engine *first = cabling->engines[0];
    engine->frames = &cabling->frames;
    if (engine->program && engine->program == first->program)
        engine->work = &first->own_work;
}

static void part(struct engine *engine)
{
    engine->frames = &engine->own_frames;
    engine->work = &engine->own_work;
}

void cabling_destroy(struct cabling *cabling)
{
    for (uint32_t i = 0; cabling->inbox && i < cabling->count; i++) {
        while (cabling->inbox[i].size)
            frame_release(&cabling->frames, next_under_way(&cabling->inbox[i]).frame);
        free(cabling->inbox[i].heap);
    }
    for (uint32_t i = 0; cabling->engines && i < cabling->count; i++)
        part(cabling->engines[i]);
    spares_free(&cabling->frames);
    void *owned[] = {cabling->engines, cabling->inbox, cabling->due_us, cabling->arrival_us, cabling->cable, cabling->first_cable, cabling->end,
                     cabling->first_end, cabling->ends_of, cabling->entrance, cabling->touched, cabling->turn,
                     cabling->held, cabling->waits, cabling->waiting};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    free(cabling);
}

static void *copied(const void *source, size_t count, size_t size)
{
    void *made = calloc(count + 1, size);
    if (made && source)
        memcpy(made, source, count * size);
    return made;
}

struct cabling *cabling_create(struct engine *const *engines, uint32_t count, const struct engine_cable *cables,
                               uint32_t cable_count, const struct engine_end *ends, uint32_t end_count,
                               int (*survives)(uint32_t entrance))
{
    struct cabling *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->count = count;
    made->cables = cable_count;
    made->entrances = cable_count + end_count;
    made->survives = survives;
    made->engines = copied(engines, count, sizeof(struct engine *));
    made->inbox = copied(NULL, count, sizeof *made->inbox);
    made->due_us = copied(NULL, count, sizeof *made->due_us);
    made->arrival_us = copied(NULL, count, sizeof *made->arrival_us);
    made->cable = copied(cables, cable_count, sizeof *made->cable);
    made->first_cable = copied(NULL, count + 1, sizeof *made->first_cable);
    made->end = copied(ends, end_count, sizeof *made->end);
    made->first_end = copied(NULL, count + 1, sizeof *made->first_end);
    made->ends_of = copied(NULL, end_count, sizeof *made->ends_of);
    made->entrance = copied(NULL, made->entrances, sizeof *made->entrance);
    made->touched = copied(NULL, count, sizeof *made->touched);
    made->turn = copied(NULL, count, sizeof *made->turn);
    made->held = copied(NULL, count, sizeof *made->held);
    made->waits = copied(NULL, end_count, sizeof *made->waits);
    made->waiting = copied(NULL, end_count, sizeof *made->waiting);
    if (!made->engines || !made->inbox || !made->due_us || !made->arrival_us || !made->cable || !made->first_cable || !made->end || !made->first_end
        || !made->ends_of || !made->entrance || !made->touched || !made->turn || !made->held || !made->waits
        || !made->waiting) {
        cabling_destroy(made);
        return NULL;
    }
    for (uint32_t i = 0; i < cable_count; i++) {
        made->first_cable[cables[i].source + 1] = i + 1;
        made->entrance[i] = (struct entrance){cables[i].target, cables[i].target_port, false};
        engines[cables[i].source]->ports[cables[i].port]->cabled = true;
        engines[cables[i].source]->ports[cables[i].port]->departs_later = true;
        made->step_us = made->step_us && made->step_us < cables[i].delay_us ? made->step_us : cables[i].delay_us;
    }
    uint32_t filled = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (made->first_cable[i + 1] < made->first_cable[i])
            made->first_cable[i + 1] = made->first_cable[i];    /* it has none */
        for (uint32_t end = 0; end < end_count; end++)
            if (ends[end].engine == i)
                made->ends_of[filled++] = end;
        made->first_end[i + 1] = filled;
        made->due_us[i] = engine_next_event(engines[i]);
        made->arrival_us[i] = ENGINE_NEVER;
        share(made, engines[i]);
    }
    for (uint32_t i = 0; i < end_count; i++)
        made->entrance[cable_count + i] = (struct entrance){ends[i].engine, ends[i].port, false};
    return made;
}

void cabling_ask(struct cabling *cabling, uint32_t entrance, int asks)
{
    cabling->entrance[entrance].asks = asks != 0;
}

uint64_t cabling_next_event(const struct cabling *cabling)
{
    return next_due(cabling);
}

static void step(struct cabling *cabling, uint64_t now_us)
{
    advance_engines(cabling, now_us, true);
    cabling->now_us = now_us;
    collect(cabling);
}

uint64_t cabling_advance(struct cabling *cabling, uint64_t now_us, int one_step)
{
    while (cabling->cables && cabling->now_us < now_us) {
        /* After a pause there is nothing to exchange before the next event. */
        uint64_t due_us = next_due(cabling);
        if (due_us >= now_us)
            break;
        uint64_t from_us = due_us > cabling->now_us + 1 ? due_us - 1 : cabling->now_us;
        uint64_t to_us = from_us + cabling->step_us;
        step(cabling, to_us < now_us ? to_us : now_us);
        if (one_step) {
            release_all(cabling);
            return cabling->now_us;
        }
    }
    advance_engines(cabling, now_us, !cabling->cables);
    cabling->now_us = now_us;
    collect(cabling);
    release_all(cabling);
    return cabling->short_of_memory ? ENGINE_NEVER : now_us;
}

void cabling_send(struct cabling *cabling, uint32_t end, const uint8_t *bytes, const uint32_t *lengths,
                  uint32_t count, uint64_t now_us)
{
    const struct entrance *entrance = &cabling->entrance[cabling->cables + end];
    struct engine *engine = enter(cabling, entrance->engine);
    run_events(engine, now_us * 1000);
    for (uint32_t i = 0; i < count; i++) {
        port_receive(engine->ports[entrance->port], bytes, lengths[i]);
        bytes += lengths[i];
    }
    leave(cabling, entrance->engine);
    collect(cabling);               /* what has crossed the switch at once is to be at the next in time */
    cabling->held[entrance->engine] = false;
    engine_unlock(engine);
}

void cabling_send_later(struct cabling *cabling, uint32_t end, const uint8_t *frame, uint32_t length,
                        const uint64_t *times_us, uint32_t count)
{
    struct frame *shared = count ? frame_new(cabling->engines[cabling->end[end].engine], frame, length) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (shared && i > 0)
            shared->references++;
        put(cabling, times_us[i], cabling->cables + end, shared);
    }
}

uint32_t cabling_waiting(struct cabling *cabling, uint32_t *ends)
{
    uint32_t count = cabling->waitings;
    for (uint32_t i = 0; i < count; i++)
        cabling->waits[ends[i] = cabling->waiting[i]] = false;
    cabling->waitings = 0;
    return count;
}

const uint8_t *cabling_frames(struct cabling *cabling, uint32_t end, uint32_t *count, const uint32_t **lengths)
{
    const struct engine_end *at = &cabling->end[end];
    const struct outbox *box = &cabling->engines[at->engine]->ports[at->port]->outbox;
    *count = box->count;
    *lengths = box->lengths;
    return box->bytes;
}

void cabling_forget(struct cabling *cabling, uint32_t end)
{
    const struct engine_end *at = &cabling->end[end];
    struct outbox *box = &cabling->engines[at->engine]->ports[at->port]->outbox;
    box->count = 0;
    box->used = 0;
}
