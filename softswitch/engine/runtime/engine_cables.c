/* Several engines in virtual time, and the cables between their memory ports: `cables.py` defines the order of
 * events.
 *
 * An array has the time at which each engine is due. A step reads it, so an idle engine costs a word of it.
 */
#include <stdlib.h>
#include <string.h>

#include "engine_internal.h"

/* Where frames enter an engine: the far end of a cable, or of a host's link. */
struct entrance {
    uint32_t engine;
    uint16_t port;
};

/* A frame on its way to an entrance. */
struct under_way {
    uint64_t time_us, order;
    struct frame *frame;
    uint32_t entrance;
};

/* Frames on their way to an engine: a heap. */
struct inbox {
    struct under_way *heap;
    size_t size, capacity;
};

struct cabling {
    struct engine **engines;
    struct inbox *inbox;            /* of each engine */
    uint64_t *due_us, *arrival_us;  /* of each engine: the time of its next event or next frame */
    uint32_t count, cables, entrances;
    struct engine_cable *cable;     /* by source, in the order of processing */
    struct engine_end *end;
    struct entrance *entrance;      /* of the cables, then of the ends */
    bool *held;                     /* locked by this call */
    bool *waits;                    /* true if the end is in `waiting` */
    uint32_t *waiting, waitings;    /* ends to report */
    uint32_t *next;                 /* the engines with work in a step */
    uint64_t order, now_us, step_us;
    struct frames frames;           /* of all engines */
    struct departures departures;
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

/* Deliver to an engine, each at its time, the frames that enter up to `now_us`. */
static void let_in(struct cabling *cabling, uint32_t number, uint64_t now_us)
{
    struct inbox *inbox = &cabling->inbox[number];
    const struct under_way *first = inbox->heap;
    while (inbox->size && first->time_us <= now_us) {
        uint64_t due_us = first->time_us;
        uint32_t entrance = first->entrance;
        struct engine *engine = enter(cabling, number);
        run_events(engine, due_us * 1000);
        do {
            struct frame *frame = next_under_way(inbox).frame;
            port_receive(engine->ports[cabling->entrance[entrance].port], frame->bytes, frame->length, frame);
            frame_release(&cabling->frames, frame);
        } while (inbox->size && first->time_us == due_us && first->entrance == entrance);
        leave(cabling, number);
    }
    cabling->arrival_us[number] = inbox->size ? first->time_us : ENGINE_NEVER;
}

/* ---------------------------------------------------------------- fetching ahead
 *
 * With hundreds of engines, the data of one engine has left the nearer caches since its last step. So it is fetched
 * while other engines run: in stages, as each stage reads the pointers that the next one follows. Fetching most of the
 * data is enough, as no result depends on it.
 */

#define FETCH_LEAST 16      /* engines: the data of fewer stays in the caches */
#define FETCH_STAGES 6
#define FETCH_DUE 16        /* frames and events of a step */

/* The work of an engine in a step. */
struct visit {
    uint32_t count;
    struct due {
        struct port *const *port;
        const struct frame *frame;  /* NULL: the packets in front in the port's queues */
        bool enters;
    } due[FETCH_DUE];
};

P4_FETCH void foresee(struct visit *visit, struct port *const *port, const struct frame *frame, bool enters)
{
    p4_fetch_lines(port, sizeof *port);
    if (frame)
        p4_fetch_lines(frame, FETCHED_FRAME);
    visit->due[visit->count++] = (struct due){port, frame, enters};
}

P4_FETCH void foresee_all(const struct cabling *cabling, uint32_t number, uint64_t now_us, struct visit *visit)
{
    const struct engine *engine = cabling->engines[number];
    const struct inbox *inbox = &cabling->inbox[number];
    visit->count = 0;
    for (size_t i = 0; i < inbox->size && visit->count < FETCH_DUE; i++)
        if (inbox->heap[i].time_us <= now_us)
            foresee(visit, &engine->ports[cabling->entrance[inbox->heap[i].entrance].port], inbox->heap[i].frame, true);
    for (size_t i = 0; i < engine->heap_size && visit->count < FETCH_DUE; i++)
        if (engine->heap[i].time_ns <= now_us * 1000)
            foresee(visit, &engine->heap[i].port, engine->heap[i].frame, engine->heap[i].kind == EVENT_RX);
}

P4_FETCH void fetch_port(const struct port *port)
{
    p4_fetch_lines(port, offsetof(struct port, outbox));
    p4_fetch_lines(&port->queues, sizeof port->queues);
    p4_fetch_lines(&port->statistics, sizeof port->statistics);
}

/* While a packet in front is processed, the next ones are fetched (`dequeue`). */
P4_FETCH void fetch_queued(const struct queue *queue)
{
    for (uint64_t i = 0; i < queue->depth && i < QUEUE_AHEAD; i++)
        fetch_waiting(waiting_in(queue, i));
}

/* A stage of one engine. */
P4_FETCH void fetch(const struct cabling *cabling, uint32_t number, uint64_t now_us, struct visit *visit,
                    uint32_t stage)
{
    const struct engine *engine = cabling->engines[number];
    const struct p4_program *program = engine->program;
    switch (stage) {
    case 0:
        p4_fetch_lines(engine, sizeof engine->gate);
        p4_fetch_lines(&engine->heap, 1);
        return;
    case 1:
        p4_fetch_lines(cabling->inbox[number].heap, 4 * sizeof(struct under_way));
        p4_fetch_lines(engine->heap, 4 * sizeof(struct event));
        return;
    case 2:
        foresee_all(cabling, number, now_us, visit);
        return;
    }
    for (uint32_t i = 0; i < visit->count; i++) {
        const struct due *due = &visit->due[i];
        const struct port *port = *due->port;
        if (stage == 3) {
            fetch_port(port);
        } else if (!due->frame) {
            for (int q = 0; q < P4_PRIORITIES; q++)
                if (port->queues[q].depth && stage == 4)
                    p4_fetch_lines(waiting_in(&port->queues[q], 0), 64);
                else if (port->queues[q].depth)
                    fetch_queued(&port->queues[q]);
        } else if (due->enters && program) {
            if (stage == 4 && program->ahead)
                program->ahead(engine->pipeline, due->frame->bytes, due->frame->length, port->number);
        }
    }
}

/* Process the events of engines up to `now_us`; `all`: also deliver the frames that enter. Engines are independent
   within a step, so each runs its whole step at once, while its data is in the processor's caches. */
static void advance_engines(struct cabling *cabling, uint64_t now_us, bool all)
{
    struct visit visits[FETCH_STAGES];
    uint32_t count = 0, *next = cabling->next, ahead = cabling->count < FETCH_LEAST ? 0 : FETCH_STAGES;
    for (uint32_t i = 0; i < cabling->count; i++)
        if (cabling->due_us[i] <= now_us || (all && cabling->arrival_us[i] <= now_us))
            next[count++] = i;
    for (uint32_t at = 0; at < count + ahead; at++) {
        for (uint32_t stage = 0; stage < ahead; stage++)
            if (stage <= at && at - stage < count)
                fetch(cabling, next[at - stage], now_us, &visits[(at - stage) % FETCH_STAGES], stage);
        if (at < ahead)
            continue;
        uint32_t number = next[at - ahead];
        if (all && cabling->arrival_us[number] <= now_us)
            let_in(cabling, number, now_us);
        if (cabling->due_us[number] <= now_us) {
            run_events(enter(cabling, number), now_us * 1000);
            leave(cabling, number);
        }
    }
}

static bool is_behind(const struct departed *a, const struct departed *b)
{
    return a->engine != b->engine ? a->engine > b->engine : a->way > b->way;
}

/* Sort by engine and cable an array that is sorted by engine already, or nearly. */
static void sort_departed(struct departed *all, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct departed item = all[i];
        uint32_t at = i;
        for (; at > 0 && is_behind(&all[at - 1], &item); at--)
            all[at] = all[at - 1];
        all[at] = item;
    }
}

/* Move frames that have left an engine onto its cables, in the cables' order, and note ends at which frames wait. */
static void collect(struct cabling *cabling)
{
    struct departures *departures = &cabling->departures;
    sort_departed(departures->all, departures->count);
    for (uint32_t i = 0; i < departures->count; i++) {
        const struct departed *departed = &departures->all[i];
        uint32_t number = departed->way;
        if (!departed->frame) {
            uint32_t end = number - cabling->cables;
            cabling->engines[departed->engine]->ports[cabling->end[end].port]->noted = false;
            if (!cabling->waits[end])
                cabling->waiting[cabling->waitings++] = end;
            cabling->waits[end] = true;
        } else {
            put(cabling, departed->time_us + cabling->cable[number].delay_us, number, departed->frame);
        }
    }
    departures->count = 0;
    cabling->short_of_memory |= departures->short_of_memory;
}

/* ---------------------------------------------------------------- functions for Python */

/* Engines of the same program share the first one's packet memory; frames have one form for all engines. */
static void share(struct cabling *cabling, struct engine *engine)
{
    struct engine *first = cabling->engines[0];
    engine->frames = &cabling->frames;
    engine->departures = &cabling->departures;
    if (engine->program && engine->program == first->program)
        engine->work = &first->own_work;
}

static void part(struct engine *engine)
{
    engine->frames = &engine->own_frames;
    engine->departures = NULL;
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
    for (uint32_t i = 0; i < cabling->departures.count; i++)
        frame_release(&cabling->frames, cabling->departures.all[i].frame);
    frames_free(&cabling->frames);
    void *owned[] = {cabling->engines, cabling->inbox, cabling->due_us, cabling->arrival_us, cabling->cable, cabling->end,
                     cabling->entrance, cabling->held, cabling->waits, cabling->waiting, cabling->next,
                     cabling->departures.all};
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
                               uint32_t cable_count, const struct engine_end *ends, uint32_t end_count)
{
    struct cabling *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->count = count;
    made->cables = cable_count;
    made->entrances = cable_count + end_count;
    made->engines = copied(engines, count, sizeof(struct engine *));
    made->inbox = copied(NULL, count, sizeof *made->inbox);
    made->due_us = copied(NULL, count, sizeof *made->due_us);
    made->arrival_us = copied(NULL, count, sizeof *made->arrival_us);
    made->cable = copied(cables, cable_count, sizeof *made->cable);
    made->end = copied(ends, end_count, sizeof *made->end);
    made->entrance = copied(NULL, made->entrances, sizeof *made->entrance);
    made->held = copied(NULL, count, sizeof *made->held);
    made->waits = copied(NULL, end_count, sizeof *made->waits);
    made->waiting = copied(NULL, end_count, sizeof *made->waiting);
    made->next = copied(NULL, count, sizeof *made->next);
    if (!made->engines || !made->inbox || !made->due_us || !made->arrival_us || !made->cable || !made->end
        || !made->entrance || !made->held || !made->waits || !made->waiting || !made->next) {
        cabling_destroy(made);
        return NULL;
    }
    for (uint32_t i = 0; i < cable_count; i++) {
        made->entrance[i] = (struct entrance){cables[i].target, cables[i].target_port};
        struct port *port = engines[cables[i].source]->ports[cables[i].port];
        port->cabled = true;
        port->departs_later = true;
        port->way = i;
        made->step_us = made->step_us && made->step_us < cables[i].delay_us ? made->step_us : cables[i].delay_us;
    }
    for (uint32_t i = 0; i < count; i++) {
        engines[i]->number = i;
        made->due_us[i] = engine_next_event(engines[i]);
        made->arrival_us[i] = ENGINE_NEVER;
        share(made, engines[i]);
    }
    for (uint32_t i = 0; i < end_count; i++) {
        made->entrance[cable_count + i] = (struct entrance){ends[i].engine, ends[i].port};
        engines[ends[i].engine]->ports[ends[i].port]->way = cable_count + i;
    }
    return made;
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
        /* After a pause there are no frames to exchange before the next event. */
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
        port_receive(engine->ports[entrance->port], bytes, lengths[i], NULL);
        bytes += lengths[i];
    }
    leave(cabling, entrance->engine);
    collect(cabling);               /* a frame that crosses a switch in no time must reach the next switch in time */
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
