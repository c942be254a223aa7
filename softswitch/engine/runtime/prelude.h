/* Code that generated pipelines share: wide integers, big-endian loads and stores, arithmetic with P4's corner
 * cases, hashes and random numbers.
 *
 * A value of bit<W> or int<W> is the unsigned integer of its W bits; all bits above are zero.
 */
#ifndef P4_PRELUDE_H
#define P4_PRELUDE_H

/* Most rounds of a loop, so that no packet blocks the switch for ever. */
#define P4_MAX_ROUNDS (1u << 20)

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "generated pipelines expect a little-endian machine"
#endif

/* Programs may compare a field with itself, compare an unsigned number with 0, or assign values that they
 * never read; the C compiler need not warn. */
#pragma GCC diagnostic ignored "-Wtautological-compare"
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

#define P4_INLINE static inline __attribute__((always_inline, unused))
#define P4_HELPER static __attribute__((unused))
#define P4_FUNCTION static __attribute__((unused))
/* Loops over lanes are not merged (emit_c/lanes.py). */
#define P4_LANES static __attribute__((unused, noinline, hot))
/* Unroll a loop over lanes (a vector holds eight): otherwise count and jump are half of a round. */
#define P4_UNROLLED _Pragma("GCC unroll 4")
#define P4_LIKELY(x) __builtin_expect(!!(x), 1)
/* If a program defines this, gcc does not join the store at `place` with its neighbour's into a vector. */
#ifndef P4_APART
#define P4_APART(place)
#endif

__extension__ typedef unsigned __int128 p4_u128;
__extension__ typedef __int128 p4_i128;

#define P4_U128(high, low) (((p4_u128)(high) << 64) | (low))

/* Location of a large header's fields: in this packet, in the packet that lends it (p4_program.lend) or, from
   P4_IN_FRAME on, in the frame at offset (where - P4_IN_FRAME). */
enum { P4_ABSENT = 0, P4_STORED = 1, P4_LENT = 2, P4_IN_FRAME = 3 };

/* ---------------------------------------------------------------- big-endian memory */

/* Integers of `bits` bits, as a value of `type`, and arrays of equally wide fields. */
#define P4_INTEGERS(bits, type)                                                                                       \
    P4_INLINE type p4_load##bits(const uint8_t *at)                                                                   \
    {                                                                                                                 \
        uint##bits##_t x;                                                                                             \
        memcpy(&x, at, sizeof x);                                                                                     \
        return __builtin_bswap##bits(x);                                                                              \
    }                                                                                                                 \
    P4_INLINE void p4_store##bits(uint8_t *at, type value)                                                            \
    {                                                                                                                 \
        uint##bits##_t x = __builtin_bswap##bits((uint##bits##_t)value);                                              \
        memcpy(at, &x, sizeof x);                                                                                     \
    }                                                                                                                 \
    P4_INLINE void p4_load##bits##_all(uint##bits##_t *restrict to, const uint8_t *restrict from, size_t count)       \
    {                                                                                                                 \
        P4_UNROLLED                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                                            \
            to[i] = (uint##bits##_t)p4_load##bits(from + sizeof *to * i);                                             \
    }                                                                                                                 \
    P4_INLINE void p4_store##bits##_all(uint8_t *restrict to, const uint##bits##_t *restrict from, size_t count)      \
    {                                                                                                                 \
        P4_UNROLLED                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                                            \
            p4_store##bits(to + sizeof *from * i, from[i]);                                                           \
    }
P4_INTEGERS(16, uint32_t)
P4_INTEGERS(32, uint32_t)
P4_INTEGERS(64, uint64_t)

P4_INLINE uint64_t p4_load48(const uint8_t *at)
{
    return (uint64_t)p4_load16(at) << 32 | p4_load32(at + 2);
}

/* `bytes` is a constant, so the loop disappears. */
P4_INLINE uint64_t p4_load(const uint8_t *at, unsigned bytes)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < bytes; i++)
        x = x << 8 | at[i];
    return x;
}

P4_INLINE p4_u128 p4_load_wide(const uint8_t *at, unsigned bytes)
{
    p4_u128 x = 0;
    for (unsigned i = 0; i < bytes; i++)
        x = x << 8 | at[i];
    return x;
}

P4_INLINE void p4_store48(uint8_t *at, uint64_t value)
{
    p4_store16(at, (uint32_t)(value >> 32));
    p4_store32(at + 2, (uint32_t)value);
}

P4_INLINE void p4_store(uint8_t *at, p4_u128 value, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0; value >>= 8)
        at[i] = (uint8_t)value;
}

/* Bytes in another order: `order` has the source position of each of the sixteen bytes. */
typedef uint8_t p4_sixteen __attribute__((vector_size(16)));
typedef uint64_t p4_two __attribute__((vector_size(16)));
#ifdef __clang__
#define P4_ORDERED(bytes, ...) __builtin_shufflevector(bytes, bytes, __VA_ARGS__)
#else
#define P4_ORDERED(bytes, ...) __builtin_shuffle(bytes, (p4_sixteen){__VA_ARGS__})
#endif

P4_INLINE p4_sixteen p4_take16(const uint8_t *at)
{
    p4_sixteen x;
    memcpy(&x, at, 16);
    return x;
}

P4_INLINE void p4_give16(uint8_t *at, p4_sixteen x)
{
    memcpy(at, &x, 16);
}

P4_INLINE p4_sixteen p4_take8(const uint8_t *at)
{
    uint64_t x;
    memcpy(&x, at, 8);
    return (p4_sixteen)(p4_two){x, 0};
}

P4_INLINE void p4_give8(uint8_t *at, p4_sixteen x)
{
    uint64_t low = ((p4_two)x)[0];
    memcpy(at, &low, 8);
}

#define P4_REORDER16(to, from, ...) p4_give16(to, P4_ORDERED(p4_take16(from), __VA_ARGS__))
#define P4_REORDER8(to, from, ...) p4_give8(to, P4_ORDERED(p4_take8(from), __VA_ARGS__))

/* Clear or copy a packet without its large headers, of constant size: plain stores, where gcc calls memset and memcpy.
   At most P4_LINES lines are unrolled. A line is one move of AVX2: gcc splits wider vectors that the processor lacks
   into moves of 16 bytes, twice as many. */

#define P4_LINES 32
typedef uint64_t p4_line __attribute__((vector_size(32), aligned(32), may_alias));

P4_INLINE size_t p4_lines(size_t bytes)
{
    return bytes / sizeof(p4_line) < P4_LINES ? bytes / sizeof(p4_line) : P4_LINES;
}

P4_INLINE void p4_clear_lines(void *to, size_t bytes)
{
    p4_line *line = to;
#pragma GCC unroll 32
    for (size_t i = 0; i < p4_lines(bytes); i++)
        line[i] = (p4_line){0};
    memset(line + p4_lines(bytes), 0, bytes - p4_lines(bytes) * sizeof(p4_line));
}

P4_INLINE void p4_copy_lines(void *restrict to, const void *restrict from, size_t bytes)
{
    p4_line *line = to;
    const p4_line *source = from;
#pragma GCC unroll 32
    for (size_t i = 0; i < p4_lines(bytes); i++)
        line[i] = source[i];
    memcpy(line + p4_lines(bytes), source + p4_lines(bytes), bytes - p4_lines(bytes) * sizeof(p4_line));
}

/* Like memcpy, but inline: gcc calls memcpy unless it knows the size. */
P4_INLINE void p4_copy_bytes(uint8_t *restrict to, const uint8_t *restrict from, size_t bytes)
{
    typedef uint64_t piece __attribute__((vector_size(32), aligned(1), may_alias));
    if (bytes < sizeof(piece)) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i < bytes - sizeof(piece); i += sizeof(piece))
        *(piece *)(to + i) = *(const piece *)(from + i);
    *(piece *)(to + bytes - sizeof(piece)) = *(const piece *)(from + bytes - sizeof(piece));
}

/* ---------------------------------------------------------------- arithmetic */

/* The signed value of the low `width` bits. */
#define P4_SIGNED(bits, type, unsigned_type)                     \
    P4_INLINE type p4_signed##bits(unsigned_type x, unsigned width) \
    {                                                            \
        return (type)(x << (bits - width)) >> (bits - width);    \
    }
P4_SIGNED(32, int32_t, uint32_t)
P4_SIGNED(64, int64_t, uint64_t)
P4_SIGNED(128, p4_i128, p4_u128)

P4_INLINE p4_u128 p4_ones(unsigned width)
{
    return ~(p4_u128)0 >> (128 - width);
}

/* Division by zero gives zero. A remainder by a power of two, as sizes often are, takes no division. */
#define P4_DIVISION(bits, type)                                           \
    P4_INLINE type p4_div##bits(type x, type y) { return y ? x / y : 0; } \
    P4_INLINE type p4_mod##bits(type x, type y)                           \
    {                                                                     \
        if (!(y & (y - 1)))                                               \
            return y ? x & (y - 1) : 0;                                   \
        return x % y;                                                     \
    }
P4_DIVISION(32, uint32_t)
P4_DIVISION(64, uint64_t)
P4_DIVISION(128, p4_u128)

/* Of int<W>: towards zero; the lowest number by -1 wraps. */
P4_HELPER p4_u128 p4_div_signed(p4_u128 x, p4_u128 y, unsigned width)
{
    p4_i128 a = p4_signed128(x, width), b = p4_signed128(y, width);
    return b == 0 ? 0 : (b == -1 ? -x : (p4_u128)(a / b)) & p4_ones(width);
}

P4_HELPER p4_u128 p4_mod_signed(p4_u128 x, p4_u128 y, unsigned width)
{
    p4_i128 a = p4_signed128(x, width), b = p4_signed128(y, width);
    return b == 0 || b == -1 ? 0 : (p4_u128)(a % b) & p4_ones(width);
}

/* Shifts by the width or more give zero; arithmetic ones, the sign. */
#define P4_SHIFTS(bits, type)                                                                        \
    P4_INLINE type p4_shl##bits(type x, p4_u128 by, unsigned width) { return by < width ? x << by : 0; } \
    P4_INLINE type p4_shr##bits(type x, p4_u128 by, unsigned width) { return by < width ? x >> by : 0; }
P4_SHIFTS(32, uint32_t)
P4_SHIFTS(64, uint64_t)
P4_SHIFTS(128, p4_u128)

P4_HELPER p4_u128 p4_shr_signed(p4_u128 x, p4_u128 by, unsigned width)
{
    p4_i128 value = p4_signed128(x, width);
    return (p4_u128)(value >> (by < width ? (unsigned)by : width - 1)) & p4_ones(width);
}

/* Saturating arithmetic. */
P4_HELPER p4_u128 p4_add_saturated(p4_u128 x, p4_u128 y, unsigned width)
{
    p4_u128 sum;
    return __builtin_add_overflow(x, y, &sum) || sum > p4_ones(width) ? p4_ones(width) : sum;
}

P4_HELPER p4_u128 p4_sub_saturated(p4_u128 x, p4_u128 y, unsigned width)
{
    (void)width;
    return x < y ? 0 : x - y;
}

/* The same of 32 bits, without a branch: so loops over them can be vectorised. */
P4_INLINE uint32_t p4_add_saturated32(uint32_t x, uint32_t y)
{
    uint32_t sum = x + y;
    return sum | (sum < x ? ~(uint32_t)0 : 0);
}

P4_INLINE uint32_t p4_sub_saturated32(uint32_t x, uint32_t y)
{
    return x > y ? x - y : 0;
}

P4_INLINE uint32_t p4_add_saturated_signed32(uint32_t x, uint32_t y)
{
    uint32_t sum = x + y, limit = (uint32_t)((int32_t)x >> 31) ^ 0x7fffffff;
    return (int32_t)(~(x ^ y) & (x ^ sum)) < 0 ? limit : sum;
}

P4_INLINE uint32_t p4_sub_saturated_signed32(uint32_t x, uint32_t y)
{
    uint32_t difference = x - y, limit = (uint32_t)((int32_t)x >> 31) ^ 0x7fffffff;
    return (int32_t)((x ^ y) & (x ^ difference)) < 0 ? limit : difference;
}

P4_INLINE p4_u128 p4_clamp_signed(p4_i128 value, int overflowed, int negative, unsigned width)
{
    p4_u128 highest = p4_ones(width) >> 1;
    if (overflowed || value > (p4_i128)highest || value < -(p4_i128)highest - 1)
        return negative ? highest + 1 : highest;
    return (p4_u128)value & p4_ones(width);
}

#define P4_SATURATED_SIGNED(op)                                                                   \
    P4_HELPER p4_u128 p4_##op##_saturated_signed(p4_u128 x, p4_u128 y, unsigned width)            \
    {                                                                                             \
        p4_i128 a = p4_signed128(x, width), b = p4_signed128(y, width), result;                   \
        int overflowed = __builtin_##op##_overflow(a, b, &result);                                \
        return p4_clamp_signed(result, overflowed, a < 0, width);                                 \
    }
P4_SATURATED_SIGNED(add)
P4_SATURATED_SIGNED(sub)

/* ---------------------------------------------------------------- hashes and checksums */

/* Fold a sum of 16-bit words into the Internet checksum (RFC 1071): add the upper half to the lower half, then add the
   carry, twice. */
P4_INLINE uint32_t p4_fold(uint64_t sum)
{
    uint32_t half = (uint32_t)((sum + (sum << 32 | sum >> 32)) >> 32);
    return (half + (half << 16 | half >> 16)) >> 16 ^ 0xffff;
}

/* The sum of an even number of bytes as 16-bit words in this machine's byte order. For bytes in network order this is
   the checksum with its two bytes exchanged. */
P4_INLINE uint64_t p4_sum_words(const uint8_t *data, size_t bytes)
{
    uint64_t sum = 0;
    uint32_t x;
    uint16_t last;
    size_t i = 0;
    for (; i + 4 <= bytes; i += 4) {
        memcpy(&x, data + i, 4);
        sum += x;
    }
    if (i < bytes) {
        memcpy(&last, data + i, 2);
        sum += last;
    }
    return sum;
}

P4_HELPER uint64_t p4_csum16(const uint8_t *data, size_t bytes)
{
    uint64_t sum = 0;
    size_t i = 0;
    for (; i + 2 <= bytes; i += 2)
        sum += p4_load16(data + i);
    if (i < bytes)
        sum += (uint32_t)data[i] << 8;
    return p4_fold(sum);
}

P4_HELPER uint64_t p4_xor16(const uint8_t *data, size_t bytes)
{
    uint32_t x = 0;
    size_t i = 0;
    for (; i + 2 <= bytes; i += 2)
        x ^= p4_load16(data + i);
    if (i < bytes)
        x ^= (uint32_t)data[i] << 8;
    return x;
}

P4_HELPER uint64_t p4_identity(const uint8_t *data, size_t bytes)
{
    uint64_t x = 0;
    for (size_t i = 0; i < bytes && i < 8; i++)
        x = x << 8 | data[i];
    return x;
}

/* Reflected CRCs by half bytes: the tables are the remainders of 0..15. */
#define P4_CRC(bits, start, flip, ...)                                       \
    P4_HELPER uint64_t p4_crc##bits(const uint8_t *data, size_t bytes)       \
    {                                                                        \
        static const uint##bits##_t table[16] = {__VA_ARGS__};               \
        uint32_t crc = start;                                                \
        for (size_t i = 0; i < bytes; i++) {                                 \
            crc ^= data[i];                                                  \
            crc = crc >> 4 ^ table[crc & 15];                                \
            crc = crc >> 4 ^ table[crc & 15];                                \
        }                                                                    \
        return crc ^ flip;                                                   \
    }
P4_CRC(32, 0xffffffff, 0xffffffff,
       0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
       0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c)
P4_CRC(16, 0, 0,
       0x0000, 0xcc01, 0xd801, 0x1400, 0xf001, 0x3c00, 0x2800, 0xe401,
       0xa001, 0x6c00, 0x7800, 0xb401, 0x5000, 0x9c01, 0x8801, 0x4400)

/* A CRC of `width` bits, 8 to 64, with any polynomial. */
P4_INLINE uint64_t p4_mirrored(uint64_t x, unsigned width)
{
    uint64_t y = 0;
    for (unsigned i = 0; i < width; i++, x >>= 1)
        y = y << 1 | (x & 1);
    return y;
}

P4_HELPER uint64_t p4_crc(const uint8_t *data, size_t bytes, unsigned width, uint64_t polynomial,
                          uint64_t initial, uint64_t final_xor, int reflected)
{
    uint64_t crc = initial, full = ~(uint64_t)0 >> (64 - width);
    for (size_t i = 0; i < bytes; i++) {
        crc ^= (reflected ? p4_mirrored(data[i], 8) : data[i]) << (width - 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ (crc >> (width - 1) & 1 ? polynomial : 0)) & full;
    }
    return (reflected ? p4_mirrored(crc, width) : crc) ^ final_xor;
}

/* splitmix64 */
P4_HELPER uint64_t p4_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

P4_HELPER p4_u128 p4_random_between(uint64_t *state, p4_u128 low, p4_u128 high)
{
    if (high < low)
        return low;
    p4_u128 count = high - low + 1;
    uint64_t x = p4_random(state);
    return count ? low + x % count : x;
}

/* ---------------------------------------------------------------- counters */

struct p4_count {
    uint64_t packets, bytes;
};

P4_INLINE void p4_count(struct p4_count *counter, uint64_t size, uint64_t index, uint64_t bytes)
{
    if (index < size) {
        counter[index].packets++;
        P4_APART(counter[index].packets);
        counter[index].bytes += bytes;
    }
}

/* ---------------------------------------------------------------- memory */

/* Zeroed memory, on huge pages if it is large enough: slots are accessed at random. */
P4_HELPER void *p4_allocate(size_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    size_t align = bytes >= huge / 2 ? huge : 64;
    size_t rounded = (bytes + align - 1) / align * align;
    void *memory = aligned_alloc(align, rounded);
    if (memory) {
#ifdef MADV_HUGEPAGE
        if (align == huge)
            (void)madvise(memory, rounded, MADV_HUGEPAGE);
#endif
        memset(memory, 0, rounded);
    }
    return memory;
}

#endif
