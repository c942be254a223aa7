/* Sums of lanes. They are kept in the byte order of the machine, on the wire they are big endian. */
#include "ina_fallback.h"
#include "ina_vector.h"

#include <math.h>
#include <string.h>

#define QUIET_NAN 0x7fc00000

VECTORIZED void fb_read(int32_t *restrict to, const uint8_t *restrict wire, uint32_t lanes)
{
    for (uint32_t i = 0; i < lanes; i++)
        to[i] = (int32_t)load_lane(wire, i);
}

VECTORIZED void fb_write(uint8_t *restrict wire, const int32_t *restrict from, uint32_t lanes)
{
    for (uint32_t i = 0; i < lanes; i++)
        store_lane(wire, i, (uint32_t)from[i]);
}

/* A sum left the range if its sign is neither addend's. */
VECTORIZED int fb_add_wire(int32_t *restrict to, const uint8_t *restrict wire, uint32_t lanes)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < lanes; i++) {
        uint32_t a = (uint32_t)to[i], b = load_lane(wire, i), sum = a + b;
        left |= (sum ^ a) & (sum ^ b);
        to[i] = (int32_t)sum;
    }
    return (int)(left >> 31);
}

VECTORIZED int fb_add(int32_t *restrict to, const int32_t *restrict from, uint32_t lanes)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < lanes; i++) {
        uint32_t a = (uint32_t)to[i], b = (uint32_t)from[i], sum = a + b;
        left |= (sum ^ a) & (sum ^ b);
        to[i] = (int32_t)sum;
    }
    return (int)(left >> 31);
}

static int sum_ints(int32_t *to, const int32_t *const *ordered, uint32_t ranks, uint32_t lanes)
{
    int fits = 1;
    for (uint32_t i = 0; i < lanes; i++) {
        int64_t sum = 0;
        for (uint32_t rank = 0; rank < ranks; rank++)
            sum += ordered[rank][i];
        fits &= sum == (int32_t)sum;
        to[i] = (int32_t)sum;
    }
    if (!fits)
        memset(to, 0, lanes * sizeof *to);
    return fits;
}

/* Add raw values in order, rounding once. `to` may be one of the inputs. Returns 0 if an int32 sum leaves the range. */
int fb_sum_raw(int32_t *to, const int32_t *const *ordered, uint32_t ranks, uint32_t lanes, int is_int)
{
    if (is_int)
        return sum_ints(to, ordered, ranks, lanes);
    for (uint32_t i = 0; i < lanes; i++) {
        float value;
        memcpy(&value, ordered[0] + i, 4);
        double sum = value;
        for (uint32_t rank = 1; rank < ranks; rank++) {
            memcpy(&value, ordered[rank] + i, 4);
            sum += value;
        }
        value = (float)sum;
        if (isnan(value))
            to[i] = QUIET_NAN;          /* whichever it was: that depends on the machine */
        else
            memcpy(to + i, &value, 4);
    }
    return 1;
}
