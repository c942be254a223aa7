/* Sums of lanes. They are kept in the byte order of the machine, on the wire they are big endian. */
#include "ina_core.h"
#include "ina_fallback.h"
#include "ina_vector.h"

enum { INFINITE = 0x7f800000, QUIET_NAN = 0x7fc00000 };         /* bits of a float32 */

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

/* Add raw values in order, rounding once. `to` may be one of the inputs. Returns 0 if an int32 sum leaves the range. */
int fb_sum_raw(int32_t *to, const int32_t *const *ordered, uint32_t ranks, uint32_t lanes, int is_int)
{
    if (is_int) {
        int fits = ina_local_sum_i32(to, ordered, ranks, lanes) < 0;
        if (!fits)
            memset(to, 0, lanes * sizeof *to);
        return fits;
    }
    ina_local_sum_f32((float *)to, (const float *const *)ordered, ranks, lanes, 1.0);
    for (uint32_t i = 0; i < lanes; i++)
        if ((to[i] & INT32_MAX) > INFINITE)
            to[i] = QUIET_NAN;          /* whichever it was: that depends on the machine */
    return 1;
}
