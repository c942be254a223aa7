/* float32 and int32 values to big-endian lanes and back; the arithmetic is described in hostlib/wire/encodings.py. */
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

static inline uint32_t magnitude(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits & 0x7fffffff;
}

/* Exponent of the largest magnitude; 0 for zeros only. */
static uint32_t exponent_of(uint32_t largest)
{
    return largest >> 23 ? largest >> 23 : largest != 0;
}

VECTORIZED static uint32_t largest_of(const float *values, int64_t count)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = magnitude(values[i]) > largest ? magnitude(values[i]) : largest;
    return largest;
}

uint32_t ina_exponent(const float *values, int64_t count) { return exponent_of(largest_of(values, count)); }

/* Scales come as two factors because 2^k itself may be outside the float32 range. The first is exact;
   the second rounds only what lies below 1/2 anyway. Returns the largest magnitude. */
VECTORIZED static uint32_t quantize(const float *restrict values, uint8_t *restrict wire, int64_t count, float first,
                                    float second, float limit)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        float scaled = values[i] * first * second;
        scaled = scaled < limit ? scaled : limit;   /* NaN too: it must not be converted */
        scaled = scaled > -limit ? scaled : -limit;
        store_lane(wire, i, (uint32_t)(int32_t)rintf(scaled));
        largest = magnitude(values[i]) > largest ? magnitude(values[i]) : largest;
    }
    return largest;
}

uint32_t ina_quantize(const float *values, uint8_t *wire, int64_t count, int exponent, uint32_t fan_in)
{
    if (exponent == NONFINITE) {
        memset(wire, 0, (size_t)count * 4);
        return NONFINITE;
    }
    int k = scale_log2(exponent, fan_in);
    return exponent_of(
        quantize(values, wire, count, power_of_two(k / 2), power_of_two(k - k / 2), clamp_limit(fan_in)));
}

/* Here, too, only the second product can round: the first keeps integers above 2^-126. */
VECTORIZED static void dequantize(const uint8_t *restrict wire, float *restrict values, int64_t count, float first,
                                  float second)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(int32_t)load_lane(wire, i) * first * second;
}

VECTORIZED static void dequantize_divided(const uint8_t *restrict wire, float *restrict values, int64_t count,
                                          float divisor, float first, float second)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(int32_t)load_lane(wire, i) / divisor * first * second;
}

/* Multiply lanes by 2^k; for an average divide them, too. */
static void scale_back(const uint8_t *wire, float *values, int64_t count, int k, uint32_t ranks, int average)
{
    int exact = (ranks & (ranks - 1)) == 0;     /* dividing by a power of two is a change of scale */
    if (average && exact)
        k -= log2_ceil(ranks);
    float first = power_of_two(k / 2), second = power_of_two(k - k / 2);
    if (average && !exact)
        dequantize_divided(wire, values, count, (float)ranks, first, second);
    else
        dequantize(wire, values, count, first, second);
}

static void fill_with_nan(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = NAN;
}

void ina_dequantize(const uint8_t *wire, float *values, int64_t count, int exponent, uint32_t fan_in, int average)
{
    if (exponent == NONFINITE)
        fill_with_nan(values, count);
    else
        scale_back(wire, values, count, -scale_log2(exponent, fan_in), fan_in, average);
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
        store_lane(wire, i, (uint32_t)(int32_t)(fits ? scaled : 0.0f));
    }
    if (bad)
        memset(wire, 0, (size_t)count * 4);
    return !bad;
}

void ina_dequantize_fixed(const uint8_t *wire, float *values, int64_t count, int scale_bits, uint32_t ranks,
                          int average)
{
    scale_back(wire, values, count, -scale_bits, ranks, average);
}

/* ---- Several values in a lane (hostlib/wire/encodings.py, pack): value j * lanes + i in field j of lane i, from the upper end.
   The uppermost field is signed; the others are raised so that no rank's is negative. */

static int width_of(uint32_t per_lane) { return 32 / (int)per_lane; }

static int32_t most_of_field(uint32_t ranks, uint32_t per_lane)
{
    return (int32_t)((UINT32_C(1) << (width_of(per_lane) - 1)) - 1) / (int32_t)ranks;
}

static int field_scale_log2(int exponent, uint32_t ranks, uint32_t per_lane)
{
    return scale_log2(exponent, ranks) - (32 - width_of(per_lane));
}

/* Values of a packet that are in field `field`. */
static int64_t in_field(int64_t count, int64_t lanes, uint32_t field)
{
    int64_t left = count - field * lanes;
    return left < 0 ? 0 : left < lanes ? left : lanes;
}

static inline int32_t to_field(float value, float first, float second, float most)
{
    float scaled = value * first * second;
    scaled = scaled < most ? scaled : most;
    scaled = scaled > -most ? scaled : -most;
    return (int32_t)rintf(scaled);
}

/* Add a field to each lane, raised by `raised`; 0: the uppermost field, before all others. */
VECTORIZED static void put_field(const float *restrict values, uint8_t *restrict wire, int64_t count, int shift,
                                 float first, float second, int32_t most, int32_t raised)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t field = (uint32_t)(to_field(values[i], first, second, (float)most) + raised);
        store_lane(wire, i, (raised ? load_lane(wire, i) : 0) + (field << shift));
    }
}

void ina_pack(const float *values, uint8_t *wire, int64_t count, int64_t lanes, int exponent, uint32_t ranks,
              uint32_t per_lane)
{
    if (exponent == NONFINITE) {
        memset(wire, 0, (size_t)in_field(count, lanes, 0) * 4);
        return;
    }
    int k = field_scale_log2(exponent, ranks, per_lane), width = width_of(per_lane);
    float first = power_of_two(k / 2), second = power_of_two(k - k / 2);
    int32_t most = most_of_field(ranks, per_lane);
    for (uint32_t field = 0; field < per_lane; field++)
        put_field(values + field * lanes, wire, in_field(count, lanes, field), 32 - width * ((int)field + 1), first,
                  second, most, field ? most : 0);
}

VECTORIZED static void take_field(const uint8_t *restrict wire, float *restrict values, int64_t count, int shift,
                                  int32_t mask, int32_t raised, float divisor, float first, float second)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(((int32_t)load_lane(wire, i) >> shift & mask) - raised) / divisor * first * second;
}

void ina_unpack(const uint8_t *wire, float *values, int64_t count, int64_t lanes, int exponent, uint32_t ranks,
                uint32_t per_lane, int average)
{
    if (exponent == NONFINITE) {
        fill_with_nan(values, count);
        return;
    }
    int k = -field_scale_log2(exponent, ranks, per_lane), width = width_of(per_lane);
    float first = power_of_two(k / 2), second = power_of_two(k - k / 2), divisor = average ? (float)ranks : 1.0f;
    int32_t mask = (int32_t)((UINT32_C(1) << width) - 1), raised = (int32_t)ranks * most_of_field(ranks, per_lane);
    for (uint32_t field = 0; field < per_lane; field++)
        take_field(wire, values + field * lanes, in_field(count, lanes, field), 32 - width * ((int)field + 1),
                   field ? mask : -1, field ? raised : 0, divisor, first, second);
}

VECTORIZED static void leave_rest(float *values, int64_t count, float first, float second, float back_first,
                                  float back_second, float most, float before, float after)
{
    for (int64_t i = 0; i < count; i++) {
        float sent = (float)to_field(values[i], first, second, most) * back_first * back_second;
        values[i] = (values[i] * before - sent) * after;
    }
}

/* Replace each value by its rounding error in `ina_pack`; by 0 if it has no sum. */
void ina_leave_rest(float *values, int64_t count, int exponent, uint32_t ranks, uint32_t per_lane)
{
    if (exponent == NONFINITE) {
        memset(values, 0, (size_t)count * sizeof *values);
        return;
    }
    int k = field_scale_log2(exponent, ranks, per_lane);
    int halved = exponent == NONFINITE - 1;     /* a rounded value may be beyond float32; its error is not */
    leave_rest(values, count, power_of_two(k / 2), power_of_two(k - k / 2), power_of_two(-k / 2),
               power_of_two(-k + k / 2 - halved), (float)most_of_field(ranks, per_lane), halved ? 0.5f : 1.0f,
               halved ? 2.0f : 1.0f);
}

/* float32 sums that were never scaled. */
VECTORIZED void ina_take_raw(const uint8_t *wire, float *values, int64_t count, uint32_t ranks, int average)
{
    float divisor = average ? (float)ranks : 1.0f;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = load_lane(wire, i);
        float value;
        memcpy(&value, &bits, 4);
        value /= divisor;
        memcpy(values + i, &value, 4);
    }
}

VECTORIZED void ina_swap(const void *restrict from, void *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, (const uint8_t *)from + 4 * i, 4);
        store_lane(to, i, word);
    }
}
