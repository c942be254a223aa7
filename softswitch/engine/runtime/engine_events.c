/* Scheduled events: a binary heap by time; events of one time are in the order of scheduling. */
#include <stdlib.h>

#include "engine_internal.h"

#define MAX_EVENTS 262144       /* frames on their way: bounds memory */

static bool before(const struct event *a, const struct event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

static bool has_room(struct engine *engine, enum event_kind kind)
{
    /* Dequeue events, one per port at most, always fit. */
    if (engine->heap_size >= MAX_EVENTS && kind != EVENT_DEQUEUE)
        return false;
    if (engine->heap_size < engine->heap_capacity)
        return true;
    size_t capacity = engine->heap_capacity ? 2 * engine->heap_capacity : 64;
    struct event *heap = realloc(engine->heap, capacity * sizeof *heap);
    if (!heap)
        return false;
    engine->heap = heap;
    engine->heap_capacity = capacity;
    return true;
}

bool schedule(struct engine *engine, uint64_t time_ns, struct port *port, enum event_kind kind, struct frame *frame)
{
    bool needs_frame = kind == EVENT_RX || kind == EVENT_TX;
    if ((needs_frame && !frame) || !has_room(engine, kind)) {
        engine->statistics.overruns++;
        frame_release(engine->frames, frame);
        return false;
    }
    struct event event = {time_ns, engine->sequence++, port, frame, kind};
    struct event *heap = engine->heap;
    size_t at = engine->heap_size++;
    while (at > 0 && before(&event, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = event;
    return true;
}

struct event next_event(struct engine *engine)
{
    struct event *heap = engine->heap, first = heap[0];
    struct event moved = heap[--engine->heap_size];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < engine->heap_size) {
        if (child + 1 < engine->heap_size && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
    return first;
}
