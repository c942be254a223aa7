/* Ports without their I/O, and the outboxes in which frames wait to leave. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine_internal.h"

/* Most frames in a memory port's outbox: limits memory if it is not drained. */
#define MAX_MEMORY_OUTBOX ((size_t)256 << 20)
#define MUCH ((size_t)1 << 20)

static void direction_init(struct direction *direction, const struct engine_impairments *config)
{
    direction->config = *config;
    direction->random = config->seed;
    direction->impaired = config->loss || config->duplicate || config->reorder || config->corrupt
                          || config->delay_ns || config->jitter_ns || config->rate_bps;
}

struct port *port_add(struct engine *engine, uint16_t number, const struct engine_impairments *rx,
                      const struct engine_impairments *tx, size_t outbox_bytes, char *error)
{
    if (number >= P4_DROP_PORT || engine->ports[number]) {
        fail(error, number >= P4_DROP_PORT ? "port %u: must be below %u" : "port %u: exists already",
             number, P4_DROP_PORT);
        return NULL;
    }
    struct port *port = calloc(1, sizeof *port);
    if (!port)
        goto no_memory;
    port->engine = engine;
    port->number = number;
    port->fd = -1;
    direction_init(&port->rx, rx);
    direction_init(&port->tx, tx);
    struct outbox *box = &port->outbox;
    box->capacity = box->most = outbox_bytes;
    box->slots = 1024;
    box->bytes = malloc(box->capacity);
    box->lengths = malloc(box->slots * sizeof *box->lengths);
    box->times_us = malloc(box->slots * sizeof *box->times_us);
    port->departs_later = port->tx.impaired;
    port->rx_departures = rx->rate_bps ? calloc(rx->queue_packets + 1, sizeof(uint64_t)) : NULL;
    if (!box->bytes || !box->lengths || !box->times_us || (rx->rate_bps && !port->rx_departures))
        goto no_memory;
    engine->ports[number] = port;
    engine->has_queues |= tx->rate_bps != 0;
    return port;
no_memory:
    if (port)
        port_remove(port);
    fail(error, "port %u: out of memory", number);
    return NULL;
}

void port_remove(struct port *port)
{
    if (port->engine->ports[port->number] == port)
        port->engine->ports[port->number] = NULL;
    if (port->close)
        port->close(port);
    capture_forget(port);
    free(port->outbox.bytes);
    free(port->outbox.lengths);
    free(port->outbox.times_us);
    free(port->rx_departures);
    for (int i = 0; i < P4_PRIORITIES; i++)
        free(port->queues[i].ring);
    free(port);
}

int engine_add_memory(struct engine *engine, uint16_t number, const struct engine_impairments *rx,
                      const struct engine_impairments *tx, int is_cpu, char *error)
{
    struct port *port = port_add(engine, number, rx, tx, 65536, error);
    if (!port)
        return -1;
    port->outbox.most = MAX_MEMORY_OUTBOX;
    port->is_cpu = is_cpu != 0;
    return 0;
}

/* A direction that has had losses stays impaired. */
void engine_set_loss(struct engine *engine, uint16_t number, uint64_t rx, uint64_t tx)
{
    struct port *port = engine->ports[number];
    port->rx.config.loss = rx;
    port->rx.impaired |= rx != 0;
    port->tx.config.loss = tx;
    port->tx.impaired |= tx != 0;
    port->departs_later |= tx != 0;
}

/* ---------------------------------------------------------------- outboxes */

void outbox_leave(struct port *port, uint32_t frames, uint64_t *counter)
{
    struct outbox *box = &port->outbox;
    *counter += frames;
    for (uint32_t i = 0; i < frames; i++) {
        uint32_t length = box->lengths[box->first++];
        if (unlikely(port->engine->capture) && counter != &port->statistics.tx_packets)
            capture_unsent(port, box->bytes + box->sent, length, "blocked");
        box->sent += length;
        if (counter == &port->statistics.tx_packets)
            port->statistics.tx_bytes += length;
    }
}

void outbox_forget_sent(struct port *port)
{
    struct outbox *box = &port->outbox;
    if (box->used - box->sent > MUCH && box->sent < box->used / 2)
        return;     /* move the rest only if at least as much has left */
    box->count -= box->first;
    box->used -= box->sent;
    if (box->count) {
        memmove(box->bytes, box->bytes + box->sent, box->used);
        memmove(box->lengths, box->lengths + box->first, box->count * sizeof *box->lengths);
        memmove(box->times_us, box->times_us + box->first, box->count * sizeof *box->times_us);
    }
    box->first = 0;
    box->sent = 0;
}

static bool grow(struct outbox *box)
{
    if (box->capacity - box->used < P4_MAX_FRAME) {
        uint8_t *bytes = box->capacity < box->most ? realloc(box->bytes, 2 * box->capacity) : NULL;
        if (!bytes)
            return false;
        box->bytes = bytes;
        box->capacity *= 2;
    }
    if (box->count == box->slots) {
        uint32_t *lengths = realloc(box->lengths, 2 * box->slots * sizeof *lengths);
        if (!lengths)
            return false;
        box->lengths = lengths;
        uint64_t *times = realloc(box->times_us, 2 * box->slots * sizeof *times);
        if (!times)
            return false;
        box->times_us = times;
        box->slots *= 2;
    }
    return true;
}

/* Room for a frame in the outbox itself. */
static uint8_t *place(struct port *port)
{
    struct outbox *box = &port->outbox;
    if (unlikely(box->capacity - box->used < P4_MAX_FRAME || box->count == box->slots)) {
        if (!port->flush)
            return grow(box) ? box->bytes + box->used : NULL;
        if (!port->blocked)
            port->flush(port);
        outbox_forget_sent(port);
        bool is_full = box->capacity - box->used < P4_MAX_FRAME || box->count == box->slots;
        if (is_full && (box->capacity >= box->most || !grow(box)))
            return NULL;
    }
    return box->bytes + box->used;
}

uint8_t *outbox_reserve(struct port *port)
{
    if (port->reserve)
        return port->reserve(port);
    /* Frames that leave later, or by a cable, are copied from here: a buffer that is always in the cache. */
    return port->departs_later ? port->engine->work->frame : place(port);
}

/* Record that a frame has left or, with NULL, that frames wait. */
static bool note(const struct port *port, struct frame *frame)
{
    const struct engine *engine = port->engine;
    struct departures *departures = engine->departures;
    if (departures->count == departures->room) {
        uint32_t room = departures->room ? 2 * departures->room : 64;
        struct departed *all = realloc(departures->all, room * sizeof *all);
        if (!all) {
            departures->short_of_memory = true;
            return false;
        }
        departures->all = all;
        departures->room = room;
    }
    departures->all[departures->count++] = (struct departed){frame, engine->now_ns / 1000, engine->number, port->way};
    return true;
}

void outbox_commit(struct port *port, uint32_t length)
{
    struct outbox *box = &port->outbox;
    struct engine *engine = port->engine;
    if (port->flush && !port->dirty) {
        port->dirty = true;
        engine->dirty[engine->dirty_count++] = port;
    }
    if (port->commit) {
        port->commit(port, length);
        return;
    }
    box->lengths[box->count] = length;
    box->used += length;
    if (!port->flush) {
        box->times_us[box->count] = engine->now_ns / 1000;
        engine->cpu_pending |= port->is_cpu;
        port->statistics.tx_packets++;
        port->statistics.tx_bytes += length;
        if (engine->departures && !port->noted)
            port->noted = note(port, NULL);
    }
    box->count++;
}

void outbox_append(struct port *port, const uint8_t *frame, uint32_t length)
{
    uint8_t *out = port->reserve ? port->reserve(port) : place(port);
    if (!out) {
        port->statistics.tx_blocked++;
        return;
    }
    memcpy(out, frame, length);
    outbox_commit(port, length);
}

void outbox_put(struct port *port, uint8_t *frame, uint32_t length)
{
    if (likely(!port->departs_later || port->reserve))
        outbox_commit(port, length);
    else
        leave_now(port, frame, length);
}

void leave_now(struct port *port, const uint8_t *frame, uint32_t length)
{
    if (port->cabled)
        depart(port, frame_new(port->engine, frame, length));
    else
        outbox_append(port, frame, length);
}

void depart(struct port *port, struct frame *frame)
{
    if (!frame || !note(port, frame)) {
        port->statistics.tx_blocked++;
        frame_release(port->engine->frames, frame);
        return;
    }
    port->statistics.tx_packets++;
    port->statistics.tx_bytes += frame->length;
}

void port_resume(struct port *port)
{
    port->blocked = false;
    port->flush(port);
    outbox_forget_sent(port);
}

void flush_ports(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->dirty_count; i++) {
        struct port *port = engine->dirty[i];
        port->dirty = false;
        if (!port->blocked)
            port->flush(port);
        if (port->outbox.first == port->outbox.count)
            outbox_forget_sent(port);
    }
    engine->dirty_count = 0;
    if (engine->cpu_pending) {
        engine->cpu_pending = false;
        uint64_t one = 1;
        /* A full eventfd is readable already: no event is lost. */
        (void)!write(engine->cpu_fd, &one, sizeof one);
    }
}
