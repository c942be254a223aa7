/* Packets from one thread to another: a ring with one writer and one reader.
 *
 * The writer fills slots and shows them in batches; the reader takes what is shown and gives it back in batches. So
 * the counts, which both processors look at, change hands once for many packets.
 */
#ifndef HAND_OVER_H
#define HAND_OVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "pipeline.h"

#define HAND_OVER_LINE 64
#define HAND_OVER_SLOTS 256u        /* a power of two */

/* So many slots in a row are one thread's: what neighbours write shares no cache line then, and packets that leave in
   a row can still be sent as one. */
#define HAND_OVER_BLOCK 64u
#define HAND_OVER_SHARES 128u       /* parts of all packets that go to one thread; a power of two */

/* Which thread has which share of the packets. */
struct hand_over_map {
    uint8_t thread[HAND_OVER_SHARES];
};

struct hand_over {
    _Alignas(HAND_OVER_LINE) _Atomic uint32_t shown;    /* by the writer */
    _Alignas(HAND_OVER_LINE) _Atomic uint32_t taken;    /* by the reader */
    _Alignas(HAND_OVER_LINE) uint32_t written, free_until;      /* the writer's own */
    _Alignas(HAND_OVER_LINE) uint32_t next, known;      /* the reader's own */
};

static inline void hand_over_share(struct hand_over_map *map, uint32_t threads)
{
    for (uint32_t i = 0; i < HAND_OVER_SHARES; i++)
        map->thread[i] = (uint8_t)(i % threads);
}

/* The thread that a slot's packets go to. */
static inline uint32_t hand_over_thread(const struct hand_over_map *map, uint64_t slot)
{
    return map->thread[slot / HAND_OVER_BLOCK % HAND_OVER_SHARES];
}

/* The same for a packet that meets no register: a flow stays on one thread. That is what has the same Ethernet
   addresses and, if it is IP, the same addresses and ports; fragments are told apart by addresses alone. */
static inline uint32_t hand_over_flow(const struct hand_over_map *map, const uint8_t *frame, uint32_t length)
{
    uint64_t word[2] = {0};
    uint32_t addresses = 0, bytes = 0, ports = 0;
    if (length >= 14) {
        memcpy(word, frame, 12);
        bool is_four = frame[12] == 0x08 && frame[13] == 0x00 && length >= 34;
        bool is_six = frame[12] == 0x86 && frame[13] == 0xdd && length >= 54;
        if (is_four) {
            addresses = 26;
            bytes = 8;
            bool is_whole = frame[14] == 0x45 && !(frame[20] & 0x3f) && !frame[21] && length >= 38;
            ports = is_whole && (frame[23] == 6 || frame[23] == 17) ? 34 : 0;
        } else if (is_six) {
            addresses = 22;
            bytes = 32;
            ports = length >= 58 && (frame[20] == 6 || frame[20] == 17) ? 54 : 0;
        }
    }
    uint64_t hash = (word[0] ^ word[1] << 7) * 0x9e3779b97f4a7c15;
    for (uint32_t at = 0; at < bytes; at += 8) {
        memcpy(word, frame + addresses + at, 8);
        hash = (hash ^ hash >> 29 ^ word[0]) * 0x9e3779b97f4a7c15;
    }
    if (ports) {
        word[0] = 0;
        memcpy(word, frame + ports, 4);
        hash = (hash ^ hash >> 29 ^ word[0]) * 0x9e3779b97f4a7c15;
    }
    return map->thread[hash >> 32 & (HAND_OVER_SHARES - 1)];
}

/* The thread that a packet goes to. */
static inline uint32_t hand_over_to(const struct hand_over_map *map, uint64_t slot, const struct p4_arrival *arrival)
{
    return slot == P4_NO_SLOT ? hand_over_flow(map, arrival->frame, arrival->length) : hand_over_thread(map, slot);
}

/* A slot to write to, if one is free; it counts once `hand_over_show` is called. */
static inline bool hand_over_place(struct hand_over *ring, uint32_t *place)
{
    if (ring->written == ring->free_until) {
        ring->free_until = atomic_load_explicit(&ring->taken, memory_order_acquire) + HAND_OVER_SLOTS;
        if (ring->written == ring->free_until)
            return false;
    }
    *place = ring->written++ % HAND_OVER_SLOTS;
    return true;
}

static inline void hand_over_show(struct hand_over *ring)
{
    if (atomic_load_explicit(&ring->shown, memory_order_relaxed) != ring->written)
        atomic_store_explicit(&ring->shown, ring->written, memory_order_release);
}

/* The next slot to read, if there is one; it is given back once `hand_over_give_back` is called. */
static inline bool hand_over_take(struct hand_over *ring, uint32_t *place)
{
    if (ring->next == ring->known) {
        ring->known = atomic_load_explicit(&ring->shown, memory_order_acquire);
        if (ring->next == ring->known)
            return false;
    }
    *place = ring->next++ % HAND_OVER_SLOTS;
    return true;
}

static inline void hand_over_give_back(struct hand_over *ring)
{
    if (atomic_load_explicit(&ring->taken, memory_order_relaxed) != ring->next)
        atomic_store_explicit(&ring->taken, ring->next, memory_order_release);
}

#endif
