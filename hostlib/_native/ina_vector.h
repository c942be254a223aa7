/* For loops over lanes. */
#ifndef INA_VECTOR_H
#define INA_VECTOR_H

#include <stdint.h>
#include <string.h>

/* One build runs on every machine: the loader picks the variant that the processor can do. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#elif defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define VECTORIZED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORIZED
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BIG32(x) __builtin_bswap32(x)
#else
#define BIG32(x) (x)
#endif

/* Lane `i` of a packet. */
static inline uint32_t load_lane(const uint8_t *wire, int64_t i)
{
    uint32_t lane;
    memcpy(&lane, wire + 4 * i, 4);
    return BIG32(lane);
}

static inline void store_lane(uint8_t *wire, int64_t i, uint32_t lane)
{
    lane = BIG32(lane);
    memcpy(wire + 4 * i, &lane, 4);
}

#endif
