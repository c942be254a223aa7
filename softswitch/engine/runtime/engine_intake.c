/* Frames on their way in, and events when they are due: both end in the traffic manager. */
#include <string.h>

#include "engine_internal.h"

bool looks_ahead(const struct engine *engine)
{
    const struct p4_program *program = engine->program;
    return program && program->waits && program->waits(engine->pipeline);
}

void look_ahead(struct port *port, const uint8_t *frame, uint32_t length)
{
    uint8_t start[P4_AHEAD_BYTES];
    if (length > sizeof start)
        length = sizeof start;
    memcpy(start, frame, length);
    port->engine->program->ahead(port->engine->pipeline, start, length, port->number);
}

/* Reserve a place in the rx queue for a frame that passes the rate limit at `through_ns`. */
static bool wait_for_link(struct port *port, uint64_t now_ns)
{
    uint64_t size = port->rx.config.queue_packets + 1;      /* one is on the link, the others wait */
    while (port->rx_waiting && port->rx_departures[port->rx_oldest] <= now_ns) {
        port->rx_oldest = (port->rx_oldest + 1) % size;
        port->rx_waiting--;
    }
    return port->rx_waiting < size;
}

void port_receive(struct port *port, const uint8_t *frame, uint32_t length, struct frame *shared)
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
        tm_ingress(engine, port, frame, length, shared);
        return;
    }
    uint64_t through_ns = engine->now_ns;
    if (rx->config.rate_bps) {
        if (!wait_for_link(port, engine->now_ns)) {
            statistics->rx_queue_full++;
            if (unlikely(engine->capture))
                capture_refused(port, frame, length, "queue_full");
            return;
        }
        through_ns = pass_link(rx, length, engine->now_ns);
        uint64_t size = rx->config.queue_packets + 1;
        port->rx_departures[(port->rx_oldest + port->rx_waiting++) % size] = through_ns;
    }
    if (link_hit(rx, rx->config.loss)) {
        statistics->rx_lost++;
        if (unlikely(engine->capture))
            capture_refused(port, frame, length, "lost");
        return;
    }
    if (link_hit(rx, rx->config.corrupt)) {
        statistics->rx_corrupted++;
        if (unlikely(engine->capture))
            capture_refused(port, frame, length, "corrupted");
        return;
    }
    bool twice = link_hit(rx, rx->config.duplicate);
    statistics->rx_duplicated += twice;
    for (int i = 0; i <= twice; i++) {
        uint64_t time_ns = link_arrival(rx, through_ns, &statistics->rx_reordered);
        if (time_ns <= engine->now_ns) {
            tm_ingress(engine, port, frame, length, shared);
            continue;
        }
        if (shared)
            shared->references++;
        schedule(engine, time_ns, port, EVENT_RX, shared ? shared : frame_new(engine, frame, length));
    }
}

void run_events(struct engine *engine, uint64_t now_ns)
{
    while (engine->heap_size && engine->heap[0].time_ns <= now_ns) {
        struct event event = next_event(engine);
        struct frame *frame = event.frame;
        if (event.time_ns > engine->now_ns)
            engine->now_ns = event.time_ns;
        switch (event.kind) {
        case EVENT_RX:
            tm_ingress(engine, event.port, frame->bytes, frame->length, frame);
            frame_release(engine->frames, frame);
            break;
        case EVENT_TX:
            if (event.port->cabled) {
                depart(event.port, frame);
            } else {
                outbox_append(event.port, frame->bytes, frame->length);
                frame_release(engine->frames, frame);
            }
            break;
        case EVENT_DEQUEUE:
            tm_dequeue(event.port);
            break;
        case EVENT_RESUME:
            event.port->resume_scheduled = false;
            port_resume(event.port);
            break;
        }
    }
    if (now_ns > engine->now_ns)
        engine->now_ns = now_ns;
}
