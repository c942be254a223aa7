/* float32 and int32 values to big-endian lanes and back; the arithmetic is described in hostlib/quantize.py. */
#include "ina_core.h"
#include "ina_vector.h"

#include <math.h>
#include <string.h>

#define NONFINITE 255

static int log2_ceil(uint32_t n) { return n <= 1 ? 0 : 32 - __builtin_clz(n - 1); }

static int scale_log2(int exponent, uint32_t fan_in)
{
    return 31 - log2_ceil(fan_in) - ((exponent > 1 ? exponent : 1) - 126);
}

static float power_of_two(int k)        /* -126 <= k <= 127 */
{
    uint32_t bits = (uint32_t)(k + 127) << 23;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static float clamp_limit(uint32_t fan_in)
{
    uint32_t most = INT32_MAX / fan_in;
    int spare = 32 - __builtin_clz(most) - 24;  /* bits that a float32 cannot hold: cut, not rounded */
    return (float)(spare > 0 ? most >> spare << spare : most);
}

VECTORIZED uint32_t ina_exponent(const float *values, int64_t count)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, 4);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest >> 23;
}

/* Scales come as two factors because 2^k itself may be outside the float32 range. The first is exact;
   the second rounds only what lies below 1/2 anyway. */
VECTORIZED static void quantize(const float *restrict values, uint8_t *restrict wire, int64_t count, float first,
                                float second, float limit)
{
    for (int64_t i = 0; i < count; i++) {
        float scaled = values[i] * first * second;
        scaled = scaled < limit ? scaled : limit;   /* NaN too: it must not be converted */
        scaled = scaled > -limit ? scaled : -limit;
        uint32_t lane = BIG32((uint32_t)(int32_t)rintf(scaled));
        memcpy(wire + 4 * i, &lane, 4);
    }
}

void ina_quantize(const float *values, uint8_t *wire, int64_t count, int exponent, uint32_t fan_in)
{
    if (exponent == NONFINITE) {
        memset(wire, 0, (size_t)count * 4);
        return;
    }
    int k = scale_log2(exponent, fan_in);
    quantize(values, wire, count, power_of_two(k / 2), power_of_two(k - k / 2), clamp_limit(fan_in));
}

/* Here, too, only the second product can round: the first keeps integers above 2^-126. */
VECTORIZED static void dequantize(const uint8_t *restrict wire, float *restrict values, int64_t count, float first,
                                  float second)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t lane;
        memcpy(&lane, wire + 4 * i, 4);
        values[i] = (float)(int32_t)BIG32(lane) * first * second;
    }
}

VECTORIZED static void dequantize_divided(const uint8_t *restrict wire, float *restrict values, int64_t count,
                                          float divisor, float first, float second)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t lane;
        memcpy(&lane, wire + 4 * i, 4);
        values[i] = (float)(int32_t)BIG32(lane) / divisor * first * second;
    }
}

void ina_dequantize(const uint8_t *wire, float *values, int64_t count, int exponent, uint32_t fan_in, int average)
{
    if (exponent == NONFINITE) {
        for (int64_t i = 0; i < count; i++)
            values[i] = NAN;
        return;
    }
    int k = -scale_log2(exponent, fan_in);
    int exact = (fan_in & (fan_in - 1)) == 0;   /* dividing by a power of two is a change of scale */
    if (average && exact)
        k -= log2_ceil(fan_in);
    if (average && !exact)
        dequantize_divided(wire, values, count, (float)fan_in, power_of_two(k / 2), power_of_two(k - k / 2));
    else
        dequantize(wire, values, count, power_of_two(k / 2), power_of_two(k - k / 2));
}

/* Scale by 2^scale_bits and round. Returns 0, and writes zeros, if some value does not fit (or is not a number). */
VECTORIZED int ina_quantize_fixed(const float *values, uint8_t *wire, int64_t count, int scale_bits, uint32_t ranks)
{
    float factor = power_of_two(scale_bits), limit = clamp_limit(ranks);
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; i++) {
        float scaled = rintf(values[i] * factor);
        int fits = scaled <= limit && scaled >= -limit;
        bad |= (uint32_t)!fits;
        uint32_t lane = BIG32((uint32_t)(int32_t)(fits ? scaled : 0.0f));
        memcpy(wire + 4 * i, &lane, 4);
    }
    if (bad)
        memset(wire, 0, (size_t)count * 4);
    return !bad;
}

void ina_dequantize_fixed(const uint8_t *wire, float *values, int64_t count, int scale_bits, uint32_t ranks,
                          int average)
{
    int exact = (ranks & (ranks - 1)) == 0;
    int k = -scale_bits - (average && exact ? log2_ceil(ranks) : 0);
    if (average && !exact)
        dequantize_divided(wire, values, count, (float)ranks, 1.0f, power_of_two(k));
    else
        dequantize(wire, values, count, 1.0f, power_of_two(k));
}

/* ---- Two values in a lane (hostlib/quantize.py, pack): value i in the upper half of lane i, value lanes + i, raised so
   that no rank's is negative, in the lower. */

static int most_of_half(uint32_t ranks) { return INT16_MAX / (int)ranks; }

static int half_scale_log2(int exponent, uint32_t ranks) { return scale_log2(exponent, ranks) - 16; }

static inline int32_t to_half(float value, float first, float second, float most)
{
    float scaled = value * first * second;
    scaled = scaled < most ? scaled : most;
    scaled = scaled > -most ? scaled : -most;
    return (int32_t)rintf(scaled);
}

VECTORIZED static void pack_pairs(const float *restrict upper, const float *restrict lower, uint8_t *restrict wire,
                                  int64_t count, float first, float second, int32_t most)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t high = (uint32_t)to_half(upper[i], first, second, (float)most) << 16;
        uint32_t lane = BIG32(high + (uint32_t)(to_half(lower[i], first, second, (float)most) + most));
        memcpy(wire + 4 * i, &lane, 4);
    }
}

VECTORIZED static void pack_singles(const float *restrict upper, uint8_t *restrict wire, int64_t count, float first,
                                    float second, int32_t most)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t lane = BIG32((uint32_t)to_half(upper[i], first, second, (float)most) << 16);
        memcpy(wire + 4 * i, &lane, 4);
    }
}

void ina_pack(const float *values, uint8_t *wire, int64_t count, int64_t lanes, int exponent, uint32_t ranks)
{
    int64_t uppers = count < lanes ? count : lanes, pairs = count - uppers;
    if (exponent == NONFINITE) {
        memset(wire, 0, (size_t)uppers * 4);
        return;
    }
    int k = half_scale_log2(exponent, ranks);
    float first = power_of_two(k / 2), second = power_of_two(k - k / 2);
    pack_pairs(values, values + lanes, wire, pairs, first, second, most_of_half(ranks));
    pack_singles(values + pairs, wire + 4 * pairs, uppers - pairs, first, second, most_of_half(ranks));
}

VECTORIZED static void unpack_uppers(const uint8_t *restrict wire, float *restrict values, int64_t count, float divisor,
                                     float first, float second)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t lane;
        memcpy(&lane, wire + 4 * i, 4);
        values[i] = (float)((int32_t)BIG32(lane) >> 16) / divisor * first * second;
    }
}

VECTORIZED static void unpack_lowers(const uint8_t *restrict wire, float *restrict values, int64_t count, int32_t raised,
                                     float divisor, float first, float second)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t lane;
        memcpy(&lane, wire + 4 * i, 4);
        values[i] = (float)((int32_t)(BIG32(lane) & 0xffff) - raised) / divisor * first * second;
    }
}

void ina_unpack(const uint8_t *wire, float *values, int64_t count, int64_t lanes, int exponent, uint32_t ranks,
                int average)
{
    int64_t uppers = count < lanes ? count : lanes;
    if (exponent == NONFINITE) {
        for (int64_t i = 0; i < count; i++)
            values[i] = NAN;
        return;
    }
    int k = -half_scale_log2(exponent, ranks);
    float first = power_of_two(k / 2), second = power_of_two(k - k / 2), divisor = average ? (float)ranks : 1.0f;
    unpack_uppers(wire, values, uppers, divisor, first, second);
    unpack_lowers(wire, values + lanes, count - uppers, (int32_t)ranks * most_of_half(ranks), divisor, first, second);
}

VECTORIZED static void leave_rest(float *values, int64_t count, float first, float second, float back_first,
                                  float back_second, float most)
{
    for (int64_t i = 0; i < count; i++)
        values[i] -= (float)to_half(values[i], first, second, most) * back_first * back_second;
}

/* Leave of each value what `ina_pack` rounds off; nothing of those that have no sum. */
void ina_leave_rest(float *values, int64_t count, int exponent, uint32_t ranks)
{
    if (exponent == NONFINITE) {
        memset(values, 0, (size_t)count * sizeof *values);
        return;
    }
    int k = half_scale_log2(exponent, ranks);
    leave_rest(values, count, power_of_two(k / 2), power_of_two(k - k / 2), power_of_two(-k / 2),
               power_of_two(-k + k / 2), (float)most_of_half(ranks));
}

/* float32 sums that were never scaled. */
VECTORIZED void ina_take_raw(const uint8_t *wire, float *values, int64_t count, uint32_t ranks, int average)
{
    float divisor = average ? (float)ranks : 1.0f;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        float value;
        memcpy(&bits, wire + 4 * i, 4);
        bits = BIG32(bits);
        memcpy(&value, &bits, 4);
        value /= divisor;
        memcpy(values + i, &value, 4);
    }
}

VECTORIZED void ina_swap(const uint8_t *restrict from, uint8_t *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t lane;
        memcpy(&lane, from + 4 * i, 4);
        lane = BIG32(lane);
        memcpy(to + 4 * i, &lane, 4);
    }
}
