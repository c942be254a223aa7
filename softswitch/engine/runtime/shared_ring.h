/* Frames through shared memory, which a switch's port and the process at its far end both map.
 *
 * The far end connects to the port's Unix socket (SOCK_SEQPACKET) and sends a `ring_request`. The switch answers with a
 * `ring_offer` and a file descriptor of the memory, which cannot be truncated, so no access faults. The memory
 * holds two rings, one for each direction. Each has one writer and one reader: the writer counts frames written in
 * `head`, the reader frames taken in `tail`, modulo 2^32. Frame i lies in slot i modulo `slots`, behind its length.
 *
 * Only a sleeping side is woken. A side that is about to wait sets `asleep`, checks once more, and waits until the
 * socket is readable. After moving `head` (or `tail`, if the side waits for that), the other side clears `asleep` and
 * sends one byte. The rings end with the connection.
 *
 * The switch trusts no word in the memory: it keeps its own counts of frames written and taken, and copies a frame out
 * before it reads it.
 *
 * Both sides are compiled with this file: the engine, and the library of ranks (hostlib/_native).
 */
#ifndef SHARED_RING_H
#define SHARED_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC 0x52414e49u      /* "INAR" */
#define RING_VERSION 1u
#define RING_MAX_FRAME 9216u        /* most bytes that may be written from a slot's beginning, whatever its size */
#define RING_LEAST_SLOTS 64u        /* a power of two, like every number of slots */
#define RING_MOST_SLOTS 16384u
#define RING_LINE 64u
/* Offset of a frame in its slot: the lanes of an INA packet, 70 bytes later, then begin a cache line. */
#define RING_FRAME_AT 58u

struct ring_request {
    uint32_t magic, version;
    uint32_t slots;                 /* of each ring */
    uint32_t frame_bytes;           /* longest frame */
};

struct ring_offer {
    uint32_t magic, version;
    uint32_t slots;
    uint32_t slot_bytes;
    uint64_t area_bytes;
};

/* The count for which a side waits. */
enum { RING_AWAKE = 0, RING_WANTS_FRAMES = 1, RING_WANTS_ROOM = 2 };

struct ring_word {
    _Alignas(64) _Atomic uint32_t value;
};

struct ring_counts {
    struct ring_word head, tail;
};

/* The beginning of the memory; the slots of `in` and of `out` follow, each with room for one more longest frame. */
struct ring_area {
    struct ring_counts in, out;     /* towards the switch, and from it */
    struct ring_word switch_asleep, peer_asleep;
};

static inline uint32_t ring_slot_bytes(uint32_t frame_bytes)
{
    return (RING_FRAME_AT + frame_bytes + RING_LINE - 1) / RING_LINE * RING_LINE;
}

static inline size_t ring_slots_bytes(uint32_t slots, uint32_t slot_bytes)
{
    return (size_t)slots * slot_bytes + (RING_FRAME_AT + RING_MAX_FRAME + RING_LINE - 1) / RING_LINE * RING_LINE;
}

static inline size_t ring_area_bytes(uint32_t slots, uint32_t slot_bytes)
{
    return sizeof(struct ring_area) + 2 * ring_slots_bytes(slots, slot_bytes);
}

static inline uint8_t *ring_in_slots(struct ring_area *area) { return (uint8_t *)(area + 1); }

static inline uint8_t *ring_out_slots(struct ring_area *area, uint32_t slots, uint32_t slot_bytes)
{
    return ring_in_slots(area) + ring_slots_bytes(slots, slot_bytes);
}

/* Announce that we wait; the caller then checks once more, and calls `ring_wake_up` if it need not wait. */
static inline void ring_fall_asleep(struct ring_word *asleep, uint32_t wants)
{
    atomic_store_explicit(&asleep->value, wants, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

static inline void ring_wake_up(struct ring_word *asleep)
{
    atomic_store_explicit(&asleep->value, RING_AWAKE, memory_order_relaxed);
}

/* Return what the other side waits for, after we have moved a count. */
static inline uint32_t ring_asleep(struct ring_word *asleep)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&asleep->value, memory_order_relaxed);
}

/* True if we must send the byte. */
static inline int ring_take_turn_to_wake(struct ring_word *asleep)
{
    return atomic_exchange_explicit(&asleep->value, RING_AWAKE, memory_order_relaxed) != RING_AWAKE;
}

#endif
