/* The traffic manager, as v1model and BMv2 define it; `distribute` has the extensions for Tofino.
 *
 * After ingress: clone, then resubmit, else multicast, else drop, else unicast. Egress runs when a
 * copy leaves its queue; without a rate limit there is no queue, and egress writes straight into the
 * port's outbox. A port has a queue for each priority and serves the highest one that has a packet; clones have the
 * lowest priority, as their metadata is a new packet's. After egress: clone, then drop, recirculate or transmit.
 *
 * Packets that enter again (resubmit, recirculate) are processed at once, before the remaining copies.
 */
#include <stdlib.h>
#include <string.h>

#include "engine_internal.h"

/* Origin of a packet. `shared` is NULL if `frame` lives only as long as the call, which is enough if no packet
   can be queued. */
struct origin {
    const uint8_t *frame;
    struct frame *shared;
    uint32_t length;
    uint32_t depth;
    uint16_t port;
    uint8_t priority;           /* requested by ingress */
};

static void ingress_pass(struct engine *, const struct origin *, uint32_t instance_type,
                         const struct p4_packet *previous, int32_t field_list);

/* True if the packet may enter once more. */
static bool may_enter(struct engine *engine, const struct origin *origin)
{
    if (origin->depth >= ENGINE_MAX_DEPTH || engine->passes == 0) {
        engine->statistics.loops++;
        return false;
    }
    engine->passes--;
    return true;
}

static bool queue_grow(struct queue *queue)
{
    uint64_t room = queue->room ? 2 * queue->room : 64;
    struct waiting *ring = malloc(room * sizeof *ring);
    if (!ring)
        return false;
    for (uint64_t i = 0; i < queue->depth; i++)
        ring[i] = *waiting_in(queue, i);
    free(queue->ring);
    *queue = (struct queue){ring, room, 0, queue->depth};
    return true;
}

static void enqueue(struct port *port, const struct p4_packet *packet, const struct origin *origin,
                    const struct p4_copy *copy, uint32_t truncate)
{
    const struct p4_program *program = port->engine->program;
    struct queue *queue = &port->queues[origin->priority % P4_PRIORITIES];
    if (queue->depth >= port->tx.config.queue_packets) {
        port->statistics.tx_queue_full++;
        if (unlikely(port->engine->capture))
            capture_unsent(port, origin->frame, origin->length, "queue_full");
        return;
    }
    size_t header = (sizeof(struct queued) + 63) & ~(size_t)63;
    size_t body = ((size_t)program->packet_size + 63) & ~(size_t)63;
    bool has_room = queue->depth < queue->room || queue_grow(queue);
    struct queued *item = origin->shared && has_room ? spare_take(&port->engine->work->items, header + body) : NULL;
    if (!item) {
        port->statistics.tx_queue_full++;
        return;
    }
    *item = (struct queued){.packet = (struct p4_packet *)((uint8_t *)item + header), .frame = origin->shared,
                            .length = origin->length, .truncate = truncate, .depth = origin->depth,
                            .ingress_port = origin->port, .copy = *copy};
    item->frame->references++;
    program->copy(item->packet, packet);
    item->copy.enq_qdepth = (uint32_t)queue->depth;
    queue->ring[(queue->first + queue->depth++) & (queue->room - 1)] = (struct waiting){item, item->frame};
    port->queue_depth++;
}

/* Remove the next packet of all priorities and set its deq_qdepth; call only if a packet waits. */
static struct queued *dequeue(struct port *port)
{
    struct queue *queue = &port->queues[P4_PRIORITIES - 1];
    while (!queue->depth)
        queue--;
    struct queued *item = queue->ring[queue->first++ & (queue->room - 1)].item;
    if (queue->depth > QUEUE_AHEAD)
        fetch_waiting(waiting_in(queue, QUEUE_AHEAD - 1));
    item->copy.deq_qdepth = (uint32_t)--queue->depth;
    port->queue_depth--;
    return item;
}

static uint64_t ready_ns(const struct direction *direction)
{
    uint64_t burst = link_time_ns(direction, (uint32_t)direction->config.burst_bytes);
    return direction->link_free_ns > burst ? direction->link_free_ns - burst : 0;
}

static void schedule_dequeue(struct port *port)
{
    if (port->queue_depth && !port->dequeue_scheduled)
        port->dequeue_scheduled = schedule(port->engine, ready_ns(&port->tx), port, EVENT_DEQUEUE, NULL);
}

static void send_copy(struct engine *, struct p4_packet *, const struct origin *, struct engine_member,
                      uint32_t instance_type, uint32_t truncate, bool last);

/* Send to the members of a clone session. `frame` is what the block got (ingress) or wrote (egress). */
static void send_clone(struct engine *engine, const struct p4_packet *packet, const struct origin *origin,
                       const struct p4_verdict *verdict, uint32_t instance_type, const uint8_t *frame, uint32_t length)
{
    const struct group *session = engine->sessions[verdict->clone_session];
    if (!session) {
        engine->statistics.no_group++;
        return;
    }
    if (!may_enter(engine, origin))
        return;
    struct origin next = *origin;
    next.depth++;
    next.priority = 0;
    struct p4_packet *clone = engine->work->packets[engine->packets_used++];
    engine->program->clone(engine->pipeline, clone, packet, instance_type, frame, length, verdict->clone_fields);
    for (uint32_t i = 0; i < session->count; i++)
        send_copy(engine, clone, &next, session->members[i], instance_type, session->truncate,
                  i + 1 == session->count);
    engine->packets_used--;
}

/* Clones and recirculation after egress; `frame` is the output. */
static void egress_extras(struct engine *engine, const struct p4_packet *packet, const struct origin *origin,
                          const struct p4_verdict *verdict, struct frame *frame, uint32_t length)
{
    if (verdict->clone)
        send_clone(engine, packet, origin, verdict, P4_EGRESS_CLONE, frame->bytes, length);
    if (verdict->recirculate && !verdict->dropped && length && may_enter(engine, origin)) {
        struct origin next = {frame->bytes, frame, length, origin->depth + 1, origin->port, 0};
        ingress_pass(engine, &next, P4_RECIRCULATED, packet, verdict->recirculate_fields);
    }
}

static void egress_pass(struct engine *engine, struct port *port, struct p4_packet *packet,
                        const struct origin *origin, const struct p4_copy *copy, uint32_t truncate)
{
    uint8_t *out = port ? outbox_reserve(port) : engine->work->frame;
    if (unlikely(!out)) {
        port->statistics.tx_blocked++;
        return;
    }
    struct p4_verdict verdict = {.clone_fields = -1, .resubmit_fields = -1, .recirculate_fields = -1};
    uint32_t length = engine->program->egress(engine->pipeline, packet, copy, out, &verdict);
    if (truncate && length > truncate)
        length = truncate;
    bool sent = length != 0 && !verdict.dropped && !verdict.recirculate;
    struct frame *kept = NULL;   /* a frame that enters again must not lie in the next output's buffer */
    if (unlikely(verdict.clone || verdict.recirculate))
        kept = frame_new(engine, out, length);
    if (likely(sent && port))
        port_transmit(port, out, length);
    else if (sent)
        engine->statistics.no_port++;
    else if (!verdict.recirculate || verdict.dropped)
        (port ? port : engine->ports[origin->port])->statistics.egress_dropped++;
    if (unlikely(kept)) {
        egress_extras(engine, packet, origin, &verdict, kept, length);
        frame_release(engine->frames, kept);
    }
}

/* Send one copy to one port. `last`: the packet is not needed any more, so egress may change it. */
static void send_copy(struct engine *engine, struct p4_packet *packet, const struct origin *origin,
                      struct engine_member to, uint32_t instance_type, uint32_t truncate, bool last)
{
    struct port *port = to.port < ENGINE_PORTS ? engine->ports[to.port] : NULL;
    uint64_t now_us = engine->now_ns / 1000;
    struct p4_copy copy = {.egress_port = to.port, .egress_rid = to.rid, .instance_type = instance_type,
                           .enq_timestamp = (uint32_t)now_us, .now_us = now_us};
    if (port && port->tx.config.rate_bps && (port->queue_depth || ready_ns(&port->tx) > engine->now_ns)) {
        enqueue(port, packet, origin, &copy, truncate);
        schedule_dequeue(port);
        return;
    }
    if (last) {
        egress_pass(engine, port, packet, origin, &copy, truncate);
        return;
    }
    struct p4_packet *own = engine->work->packets[engine->packets_used++];
    engine->program->lend(own, packet);
    egress_pass(engine, port, own, origin, &copy, truncate);
    engine->packets_used--;
}

/* True if a copy is excluded, by the member's own id, or by its port and replication id. */
static bool is_excluded(const struct engine *engine, const struct engine_member *to,
                        const struct p4_verdict *verdict)
{
    if (verdict->exclude_1 && to->exclusion == verdict->exclude_1)
        return true;
    if (!verdict->exclude_2 || to->rid != verdict->rid)
        return false;
    const struct group *ports = engine->exclusions[verdict->exclude_2];
    if (!ports)
        return to->port == verdict->exclude_2;
    for (uint32_t i = 0; i < ports->count; i++)
        if (ports->members[i].port == to->port)
            return true;
    return false;
}

/* Send to the members of a group; `last`: the packet is not needed any more. */
static void replicate(struct engine *engine, struct p4_packet *packet, const struct origin *origin,
                      uint16_t number, const struct p4_verdict *verdict, bool last)
{
    const struct group *group = engine->groups[number];
    if (unlikely(!group)) {
        engine->statistics.no_group++;
        return;
    }
    for (uint32_t i = 0; i < group->count; i++) {
        const struct engine_member *to = &group->members[i];
        if (unlikely(verdict->exclude_1 | verdict->exclude_2) && is_excluded(engine, to, verdict))
            continue;
        send_copy(engine, packet, origin, *to, P4_REPLICATED, 0, last && i + 1 == group->count);
    }
}

/* Send to two groups and a port, as programs for Tofino can request. */
static void distribute(struct engine *engine, struct p4_packet *packet, const struct origin *origin,
                       const struct p4_verdict *verdict, uint32_t instance_type)
{
    bool second = verdict->mcast_grp_2 != 0, unicast = verdict->unicast != 0;
    if (verdict->mcast_grp)
        replicate(engine, packet, origin, verdict->mcast_grp, verdict, !second && !unicast);
    if (second)
        replicate(engine, packet, origin, verdict->mcast_grp_2, verdict, !unicast);
    struct engine_member to = {verdict->egress_spec, 0, 0};
    if (unicast)
        send_copy(engine, packet, origin, to, instance_type, 0, true);
}

static void ingress_pass(struct engine *engine, const struct origin *origin, uint32_t instance_type,
                         const struct p4_packet *previous, int32_t field_list)
{
    struct p4_packet *packet = engine->work->packets[engine->packets_used++];
    struct p4_verdict verdict = {.clone_fields = -1, .resubmit_fields = -1, .recirculate_fields = -1};
    engine->program->ingress(engine->pipeline, packet, origin->frame, origin->length, origin->port,
                             instance_type, engine->now_ns / 1000, previous, field_list, &verdict);
    if (unlikely(engine->capture) && instance_type == P4_NORMAL)
        capture_received(engine->ports[origin->port], packet, origin->frame, origin->length);
    struct origin leaving = *origin;
    leaving.priority = verdict.priority;
    if (unlikely(verdict.clone))
        send_clone(engine, packet, origin, &verdict, P4_INGRESS_CLONE, origin->frame, origin->length);
    if (unlikely(verdict.resubmit)) {
        if (may_enter(engine, origin)) {
            struct origin next = *origin;
            next.depth++;
            ingress_pass(engine, &next, P4_RESUBMITTED, packet, verdict.resubmit_fields);
        }
    } else if (verdict.mcast_grp | verdict.mcast_grp_2) {
        distribute(engine, packet, &leaving, &verdict, instance_type);
    } else if (verdict.dropped || verdict.egress_spec == P4_DROP_PORT) {
        engine->ports[origin->port]->statistics.ingress_dropped++;
    } else {
        struct engine_member to = {verdict.egress_spec, 0, 0};
        send_copy(engine, packet, &leaving, to, instance_type, 0, true);
    }
    engine->packets_used--;
}

void tm_ingress(struct engine *engine, struct port *port, const uint8_t *frame, uint32_t length, struct frame *shared)
{
    if (unlikely(!engine->program)) {
        port->statistics.rx_no_program++;
        if (unlikely(engine->capture))
            capture_refused(port, frame, length, "no_program");
        return;
    }
    struct origin origin = {frame, shared, length, 0, port->number, 0};
    bool copies = unlikely(engine->has_queues) && !shared;
    if (copies && (origin.shared = frame_new(engine, frame, length)))
        origin.frame = origin.shared->bytes;
    engine->passes = ENGINE_MAX_PASSES;
    ingress_pass(engine, &origin, P4_NORMAL, NULL, -1);
    if (copies)
        frame_release(engine->frames, origin.shared);
}

void tm_dequeue(struct port *port)
{
    struct engine *engine = port->engine;
    port->dequeue_scheduled = false;
    while (port->queue_depth && ready_ns(&port->tx) <= engine->now_ns) {
        struct queued *item = dequeue(port);
        item->copy.now_us = engine->now_ns / 1000;
        item->copy.deq_timedelta = (uint32_t)item->copy.now_us - item->copy.enq_timestamp;
        struct origin origin = {item->frame->bytes, item->frame, item->length, item->depth,
                                item->ingress_port, 0};
        engine->passes = ENGINE_MAX_PASSES;
        if (unlikely(engine->capture))
            capture_waited(engine, item->copy.deq_timedelta, item->copy.deq_qdepth);
        egress_pass(engine, port, item->packet, &origin, &item->copy, item->truncate);
        if (unlikely(engine->capture))
            capture_waited(engine, 0, 0);
        frame_release(engine->frames, item->frame);
        spare_return(&engine->work->items, item);
    }
    schedule_dequeue(port);
}

void tm_discard_queues(struct engine *engine)
{
    for (int i = 0; i < ENGINE_PORTS; i++) {
        struct port *port = engine->ports[i];
        while (port && port->queue_depth) {
            struct queued *item = dequeue(port);
            frame_release(engine->frames, item->frame);
            free(item);
            engine->statistics.unloaded++;
        }
    }
    spares_free(&engine->work->items);        /* another program's packets have another size */
    frames_free(&engine->own_frames);
}
