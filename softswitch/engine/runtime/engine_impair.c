/* Impairments: a link's effects on the frames that pass it, and frames on their way out.
 *
 * A link loses, corrupts, duplicates, delays and reorders frames, each by its own draw from the
 * direction's random stream, in that order; a probability of zero draws nothing. Keep this order: tests hold the
 * results of seeds.
 */
#include <string.h>

#include "engine_internal.h"

/* ---------------------------------------------------------------- random numbers */

/* splitmix64 (Steele, Lea, Flood, OOPSLA'14) */
static uint64_t draw(struct direction *direction)
{
    uint64_t z = direction->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

bool link_hit(struct direction *direction, uint64_t threshold)
{
    return threshold != 0 && (draw(direction) < threshold || threshold == UINT64_MAX);
}

/* ---------------------------------------------------------------- a link */

uint64_t link_time_ns(const struct direction *direction, uint32_t length)
{
    uint64_t rate = direction->config.rate_bps;
    return rate ? (uint64_t)length * 8 * UINT64_C(1000000000) / rate : 0;
}

/* The time at which a frame that arrives at `now_ns` has passed the rate limit. */
uint64_t pass_link(struct direction *direction, uint32_t length, uint64_t now_ns)
{
    if (!direction->config.rate_bps)
        return now_ns;
    uint64_t burst = link_time_ns(direction, (uint32_t)direction->config.burst_bytes);
    uint64_t start = direction->link_free_ns > now_ns ? direction->link_free_ns : now_ns;
    direction->link_free_ns = start + link_time_ns(direction, length);
    uint64_t through = direction->link_free_ns > burst ? direction->link_free_ns - burst : 0;
    return through > now_ns ? through : now_ns;
}

/* The time at which one copy of a frame arrives at the far end. */
uint64_t link_arrival(struct direction *direction, uint64_t time_ns, uint64_t *reordered)
{
    const struct engine_impairments *config = &direction->config;
    time_ns += config->delay_ns;
    if (config->jitter_ns)
        time_ns += draw(direction) % (config->jitter_ns + 1);
    if (link_hit(direction, config->reorder)) {
        (*reordered)++;
        return time_ns + 1 + (config->reorder_ns ? draw(direction) % config->reorder_ns : 0);
    }
    if (time_ns < direction->last_ns)
        time_ns = direction->last_ns;
    direction->last_ns = time_ns;
    return time_ns;
}

void port_transmit(struct port *port, uint8_t *frame, uint32_t length)
{
    struct direction *tx = &port->tx;
    if (likely(!tx->impaired)) {
        if (unlikely(port->engine->capture))
            capture_sent(port, frame, length, NULL);
        outbox_put(port, frame, length);
        return;
    }
    struct engine *engine = port->engine;
    uint64_t through_ns = pass_link(tx, length, engine->now_ns);
    if (link_hit(tx, tx->config.loss)) {
        port->statistics.tx_lost++;
        if (unlikely(engine->capture))
            capture_sent(port, frame, length, "lost");
        return;
    }
    if (link_hit(tx, tx->config.corrupt)) {
        port->statistics.tx_corrupted++;
        if (unlikely(engine->capture))
            capture_sent(port, frame, length, "corrupted");
        return;
    }
    bool twice = link_hit(tx, tx->config.duplicate);
    port->statistics.tx_duplicated += twice;
    if (unlikely(engine->capture))
        capture_sent(port, frame, length, twice ? "duplicated" : NULL);
    uint8_t kept[P4_MAX_FRAME];     /* committing the first copy gives `frame` away */
    if (twice)
        memcpy(kept, frame, length);
    for (int i = 0; i <= twice; i++) {
        const uint8_t *source = i ? kept : frame;
        uint64_t time_ns = link_arrival(tx, through_ns, &port->statistics.tx_reordered);
        if (time_ns > engine->now_ns)
            schedule(engine, time_ns, port, EVENT_TX, frame_new(engine, source, length));
        else if (i == 0)
            outbox_put(port, frame, length);
        else
            leave_now(port, source, length);
    }
}
