/* Frames through shared memory: what a switch's port and the process at its far end both see.
 *
 * The far end connects to the port's Unix socket (SOCK_SEQPACKET) and sends a `ring_request`. The switch answers with a
 * `ring_offer` and a file descriptor of the memory, which cannot be made smaller: so whoever maps it never faults. It
 * holds two rings, one for each direction. Each has one writer and one reader: the writer counts frames written in
 * `head`, the reader frames taken in `tail`, modulo 2^32. Frame i lies in slot i modulo `slots`, behind its length.
 *
 * Nobody is woken who is awake. Who is about to wait says so in `asleep`, looks once more, and waits for the socket to be
 * readable; the other side, when it has moved `head` (or `tail`, if that is waited for), takes the word back and sends one
 * byte. The end of the connection is the end of the rings.
 *
 * The switch takes every word for a lie: it keeps its own copy of what it has written and taken, and a frame out of the
 * memory before it looks at it.
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
#define RING_MAX_FRAME 9216u        /* what may be written behind a slot's beginning, whatever its size */
#define RING_LEAST_SLOTS 64u        /* a power of two, as all numbers of slots */
#define RING_MOST_SLOTS 16384u
#define RING_LINE 64u
/* Where a frame begins in its slot: the lanes of an INA packet, 70 bytes on, then begin a cache line. */
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

/* What a side that waits wants to hear of. */
enum { RING_AWAKE = 0, RING_WANTS_FRAMES = 1, RING_WANTS_ROOM = 2 };

struct ring_word {
    _Alignas(64) _Atomic uint32_t value;
};

struct ring_counts {
    struct ring_word head, tail;
};

/* The beginning of the memory; the slots of `in` follow, then those of `out`, each with room for one longest frame. */
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

/* Say that we wait; the caller then looks once more, and if there is something calls `ring_wake_up`. */
static inline void ring_fall_asleep(struct ring_word *asleep, uint32_t wants)
{
    atomic_store_explicit(&asleep->value, wants, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

static inline void ring_wake_up(struct ring_word *asleep)
{
    atomic_store_explicit(&asleep->value, RING_AWAKE, memory_order_relaxed);
}

/* What the other side waits for, after we have moved a count. */
static inline uint32_t ring_asleep(struct ring_word *asleep)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&asleep->value, memory_order_relaxed);
}

/* Whether it is ours to send the byte. */
static inline int ring_take_turn_to_wake(struct ring_word *asleep)
{
    return atomic_exchange_explicit(&asleep->value, RING_AWAKE, memory_order_relaxed) != RING_AWAKE;
}

#endif
