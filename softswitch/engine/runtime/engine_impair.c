/* Impairments and the events that they schedule.
 *
 * A link loses, corrupts, duplicates, delays and reorders frames, each by its own draw from the
 * direction's random stream, in that order; a probability of zero draws nothing. python_engine.py
 * draws in the same order, so that both give the same outcome for the same seed.
 */
#include <stdlib.h>
#include <string.h>

#include "engine_internal.h"

#define MAX_EVENTS 262144       /* frames on their way: bounds memory */

/* ---------------------------------------------------------------- random numbers */

/* splitmix64 (Steele, Lea, Flood, OOPSLA'14) */
static uint64_t draw(struct direction *direction)
{
    uint64_t z = direction->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static bool hit(struct direction *direction, uint64_t threshold)
{
    return threshold != 0 && (draw(direction) < threshold || threshold == UINT64_MAX);
}

/* ---------------------------------------------------------------- events: a binary heap */

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

static struct event *pop(struct engine *engine)
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

static void emit(struct port *port, const uint8_t *frame, uint32_t length)
{
    uint8_t *out = outbox_reserve(port);
    if (!out) {
        port->statistics.tx_blocked++;
        return;
    }
    memcpy(out, frame, length);
    outbox_commit(port, length);
}

void run_events(struct engine *engine, uint64_t now_ns)
{
    while (engine->heap_size && engine->heap[0]->time_ns <= now_ns) {
        struct event *event = pop(engine);
        if (event->time_ns > engine->now_ns)
            engine->now_ns = event->time_ns;
        switch (event->kind) {
        case EVENT_RX:
            tm_ingress(engine, event->port, event->frame, event->length);
            break;
        case EVENT_TX:
            emit(event->port, event->frame, event->length);
            break;
        case EVENT_DEQUEUE:
            tm_dequeue(event->port);
            break;
        }
        free(event);
    }
    if (now_ns > engine->now_ns)
        engine->now_ns = now_ns;
}

/* ---------------------------------------------------------------- the two directions */

uint64_t link_time_ns(const struct direction *direction, uint32_t length)
{
    uint64_t rate = direction->config.rate_bps;
    return rate ? (uint64_t)length * 8 * UINT64_C(1000000000) / rate : 0;
}

/* When the frame is through the rate limit, `now_ns` being when it asks. */
static uint64_t pass_link(struct direction *direction, uint32_t length, uint64_t now_ns)
{
    if (!direction->config.rate_bps)
        return now_ns;
    uint64_t burst = link_time_ns(direction, (uint32_t)direction->config.burst_bytes);
    uint64_t start = direction->link_free_ns > now_ns ? direction->link_free_ns : now_ns;
    direction->link_free_ns = start + link_time_ns(direction, length);
    uint64_t through = direction->link_free_ns > burst ? direction->link_free_ns - burst : 0;
    return through > now_ns ? through : now_ns;
}

/* When one copy of a frame arrives at the far end. */
static uint64_t arrival(struct direction *direction, uint64_t time_ns, uint64_t *reordered)
{
    const struct engine_impairments *config = &direction->config;
    time_ns += config->delay_ns;
    if (config->jitter_ns)
        time_ns += draw(direction) % (config->jitter_ns + 1);
    if (hit(direction, config->reorder)) {
        (*reordered)++;
        return time_ns + 1 + (config->reorder_ns ? draw(direction) % config->reorder_ns : 0);
    }
    if (time_ns < direction->last_ns)
        time_ns = direction->last_ns;
    direction->last_ns = time_ns;
    return time_ns;
}

/* A place in the rx queue for a frame that is through at `through_ns`. */
static bool wait_for_link(struct port *port, uint64_t now_ns)
{
    uint64_t size = port->rx.config.queue_packets + 1;      /* one is on the link, the others wait */
    while (port->rx_waiting && port->rx_departures[port->rx_oldest] <= now_ns) {
        port->rx_oldest = (port->rx_oldest + 1) % size;
        port->rx_waiting--;
    }
    return port->rx_waiting < size;
}

void port_receive(struct port *port, const uint8_t *frame, uint32_t length)
{
    struct engine *engine = port->engine;
    struct direction *rx = &port->rx;
    struct engine_statistics *statistics = &port->statistics;
    statistics->rx_packets++;
    statistics->rx_bytes += length;
    if (unlikely(length == 0 || length > P4_MAX_FRAME)) {
        statistics->rx_malformed++;
        return;
    }
    if (likely(!rx->impaired)) {
        tm_ingress(engine, port, frame, length);
        return;
    }
    uint64_t through_ns = engine->now_ns;
    if (rx->config.rate_bps) {
        if (!wait_for_link(port, engine->now_ns)) {
            statistics->rx_queue_full++;
            return;
        }
        through_ns = pass_link(rx, length, engine->now_ns);
        uint64_t size = rx->config.queue_packets + 1;
        port->rx_departures[(port->rx_oldest + port->rx_waiting++) % size] = through_ns;
    }
    if (hit(rx, rx->config.loss)) {
        statistics->rx_lost++;
        return;
    }
    if (hit(rx, rx->config.corrupt)) {
        statistics->rx_corrupted++;
        return;
    }
    bool twice = hit(rx, rx->config.duplicate);
    statistics->rx_duplicated += twice;
    for (int i = 0; i <= twice; i++) {
        uint64_t time_ns = arrival(rx, through_ns, &statistics->rx_reordered);
        if (time_ns <= engine->now_ns)
            tm_ingress(engine, port, frame, length);
        else
            schedule(engine, time_ns, port, EVENT_RX, frame, length);
    }
}

void port_transmit(struct port *port, uint8_t *frame, uint32_t length)
{
    struct direction *tx = &port->tx;
    if (likely(!tx->impaired)) {
        outbox_commit(port, length);
        return;
    }
    struct engine *engine = port->engine;
    uint64_t through_ns = pass_link(tx, length, engine->now_ns);
    if (hit(tx, tx->config.loss)) {
        port->statistics.tx_lost++;
        return;
    }
    if (hit(tx, tx->config.corrupt)) {
        port->statistics.tx_corrupted++;
        return;
    }
    bool twice = hit(tx, tx->config.duplicate);
    port->statistics.tx_duplicated += twice;
    uint8_t kept[P4_MAX_FRAME];     /* committing the first copy gives `frame` away */
    if (twice)
        memcpy(kept, frame, length);
    for (int i = 0; i <= twice; i++) {
        const uint8_t *source = i ? kept : frame;
        uint64_t time_ns = arrival(tx, through_ns, &port->statistics.tx_reordered);
        if (time_ns > engine->now_ns)
            schedule(engine, time_ns, port, EVENT_TX, source, length);
        else if (i == 0)
            outbox_commit(port, length);
        else
            emit(port, source, length);
    }
}
