/* Sums over the ranks of one machine, in the memory that they share: one pass, one rounding. And how they wait there. */
#define _GNU_SOURCE
#include "ina_core.h"
#include "ina_vector.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 1024

/* total[i] = the sum of in[…][first + i], for `length` numbers of any type. */
#define ADD_UP(total, in, inputs, first, length) \
    for (size_t i = 0; i < length; i++) \
        total[i] = in[0][first + i]; \
    for (size_t each = 1; each < inputs; each++) \
        for (size_t i = 0; i < length; i++) \
            total[i] += in[each][first + i]

static size_t block_at(size_t first, size_t count) {
    return count - first < BLOCK ? count - first : BLOCK;
}

/* out = the sum of all inputs, divided by `divisor`; added up in double precision, rounded once. Returns the first place
   where that is not finite, or -1. */
VECTORIZED int64_t ina_local_sum_f32(float *out, const float *const *in, size_t inputs, size_t count, double divisor) {
    double total[BLOCK];
    int64_t beyond = -1;
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t length = block_at(first, count);
        int wrong = 0;
        ADD_UP(total, in, inputs, first, length);
        if (divisor != 1.0)
            for (size_t i = 0; i < length; i++)
                total[i] /= divisor;
        for (size_t i = 0; i < length; i++) {
            out[first + i] = (float)total[i];
            wrong |= !(fabsf(out[first + i]) < INFINITY);
        }
        for (size_t i = 0; wrong && beyond < 0 && i < length; i++)
            if (!isfinite(out[first + i]))
                beyond = (int64_t)(first + i);
    }
    return beyond;
}

/* out = the sum of all inputs; returns the first place where that is no int32, or -1. */
VECTORIZED int64_t ina_local_sum_i32(int32_t *out, const int32_t *const *in, size_t inputs, size_t count) {
    int64_t total[BLOCK], beyond = -1;
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t length = block_at(first, count);
        int64_t wrong = 0;
        ADD_UP(total, in, inputs, first, length);
        for (size_t i = 0; i < length; i++) {
            out[first + i] = (int32_t)(uint32_t)total[i];
            wrong |= total[i] ^ out[first + i];
        }
        for (size_t i = 0; wrong && beyond < 0 && i < length; i++)
            if (total[i] != out[first + i])
                beyond = (int64_t)(first + i);
    }
    return beyond;
}

static long futex(_Atomic uint64_t *count, int operation, uint32_t value, const struct timespec *timeout)
{
    uint32_t *low = (uint32_t *)count + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    return syscall(SYS_futex, low, operation, value, timeout, NULL, 0);
}

/* Count a rank that has reached this point of a step; the last of `ranks` wakes the waiting ones. */
void ina_local_note(_Atomic uint64_t *count, uint64_t ranks)
{
    if ((atomic_fetch_add(count, 1) + 1) % ranks == 0)
        futex(count, FUTEX_WAKE, INT_MAX, NULL);
}

/* Wait until as many have come. Returns whether they have; if not, `wait_ns` have passed, or a signal has come. */
int ina_local_reach(_Atomic uint64_t *count, uint64_t wanted, int64_t wait_ns)
{
    struct timespec timeout = {wait_ns / 1000000000, wait_ns % 1000000000};
    uint64_t seen;
    while ((seen = atomic_load(count)) < wanted)
        if (futex(count, FUTEX_WAIT, (uint32_t)seen, &timeout) && errno != EAGAIN)
            return atomic_load(count) >= wanted;
    return 1;
}
