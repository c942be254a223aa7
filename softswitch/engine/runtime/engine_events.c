/* What is to happen at a later time: a binary heap of events, those of one time in the order of scheduling. */
#include <stdlib.h>
#include <string.h>

#include "engine_internal.h"

#define MAX_EVENTS 262144       /* frames on their way: bounds memory */

static bool before(const struct event *a, const struct event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

bool schedule(struct engine *engine, uint64_t time_ns, struct port *port, enum event_kind kind,
              const uint8_t *frame, uint32_t length)
{
    /* Dequeue events, one per port at most, always fit. */
    if (engine->heap_size >= MAX_EVENTS && kind != EVENT_DEQUEUE) {
        engine->statistics.overruns++;
        return false;
    }
    if (engine->heap_size == engine->heap_capacity) {
        size_t capacity = engine->heap_capacity ? 2 * engine->heap_capacity : 64;
        struct event **heap = realloc(engine->heap, capacity * sizeof *heap);
        if (!heap) {
            engine->statistics.overruns++;
            return false;
        }
        engine->heap = heap;
        engine->heap_capacity = capacity;
    }
    struct event *event = malloc(sizeof *event + length);
    if (!event) {
        engine->statistics.overruns++;
        return false;
    }
    event->time_ns = time_ns;
    event->sequence = engine->sequence++;
    event->port = port;
    event->kind = kind;
    event->length = length;
    if (length)
        memcpy(event->frame, frame, length);

    size_t at = engine->heap_size++;
    while (at > 0 && before(event, engine->heap[(at - 1) / 2])) {
        engine->heap[at] = engine->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    engine->heap[at] = event;
    return true;
}

struct event *next_event(struct engine *engine)
{
    struct event **heap = engine->heap;
    struct event *first = heap[0];
    struct event *moved = heap[--engine->heap_size];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= engine->heap_size)
            break;
        if (child + 1 < engine->heap_size && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
    return first;
}
