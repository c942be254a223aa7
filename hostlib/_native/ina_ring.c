#define _GNU_SOURCE
#include "ina_core.h"
#include "shared_ring.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { TAKEN_AT_ONCE = 64 };

static struct ring_area *area_of(const struct ina_io *io) { return (struct ring_area *)io->area; }

static uint8_t *slot_of(const struct ina_io *io, uint8_t *slots, uint32_t number)
{
    return slots + (size_t)(number & (io->slots - 1)) * io->slot_bytes;
}

/* Slots that are free, up to the ring's end: where a run of packets fits. */
static uint32_t room(const struct ina_io *io)
{
    uint32_t used = io->written - atomic_load_explicit(&area_of(io)->in.tail.value, memory_order_acquire);
    uint32_t free = io->slots - used, left = io->slots - (io->written & (io->slots - 1));
    return free < left ? free : left;
}

static void wake_switch(struct ina_io *io)
{
    uint8_t byte = 0;
    if (ring_asleep(&area_of(io)->switch_asleep) != RING_AWAKE
        && ring_take_turn_to_wake(&area_of(io)->switch_asleep) && io->fd >= 0)
        (void)!send(io->fd, &byte, sizeof byte, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void ina_ring_send(struct ina_core *core, struct ina_io *io, int64_t now)
{
    int64_t asked, sent;
    do {
        uint32_t free = room(io);
        uint8_t *first = slot_of(io, ring_in_slots(area_of(io)), io->written);
        asked = free < io->send_packets ? free : io->send_packets;
        sent = ina_emit(core, first + RING_FRAME_AT, asked, io->slot_bytes, now);
        for (int64_t i = 0; i < sent; i++)
            memcpy(first + i * io->slot_bytes, &core->emitted_bytes, sizeof core->emitted_bytes);
        io->written += (uint32_t)sent;
        atomic_store_explicit(&area_of(io)->in.head.value, io->written, memory_order_release);
        if (sent)
            wake_switch(io);
    } while (sent > 0);
    io->full = asked == 0;
}

int64_t ina_ring_take(struct ina_core *core, struct ina_io *io)
{
    uint32_t count = atomic_load_explicit(&area_of(io)->out.head.value, memory_order_acquire) - io->taken;
    if (count == 0)
        return 0;
    count = count < TAKEN_AT_ONCE ? count : TAKEN_AT_ONCE;
    uint8_t *slots = ring_out_slots(area_of(io), io->slots, io->slot_bytes);
    struct ina_batch batch = ina_batch_begin(core, ina_now_ns());
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *slot = slot_of(io, slots, io->taken + i);
        uint32_t length;
        memcpy(&length, slot, sizeof length);
        ina_batch_take(core, &batch, slot + RING_FRAME_AT, length);
    }
    ina_batch_end(core, &batch);
    io->taken += count;
    atomic_store_explicit(&area_of(io)->out.tail.value, io->taken, memory_order_release);
    return count;
}

int ina_ring_readable(const struct ina_io *io)
{
    return atomic_load_explicit(&area_of(io)->out.head.value, memory_order_acquire) != io->taken;
}

/* Take the bytes that woke us. At the connection's end there are none, and never will be. */
static void hear_switch(struct ina_io *io)
{
    uint8_t bytes[64];
    ssize_t length = io->fd < 0 ? 1 : recv(io->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (length > 0 || (length < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    io->last_error = length < 0 ? errno : ECONNRESET;
    io->errors++;
    io->fd = -1;                        /* Python has it, and closes it */
}

int ina_ring_wait(struct ina_io *io, int control, int64_t until, int64_t now)
{
    struct ring_word *asleep = &area_of(io)->peer_asleep;
    int woken = 0;
    ring_fall_asleep(asleep, io->full ? RING_WANTS_ROOM : RING_WANTS_FRAMES);
    if (!ina_ring_readable(io) && !(io->full && room(io) > 0)) {
        woken = ina_wait(io, control, until, now);
        hear_switch(io);
    }
    ring_wake_up(asleep);
    return woken;
}
