/* Sums over the ranks of one machine, in the memory that they share: one pass, one rounding. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK 1024

static size_t block_at(size_t first, size_t count) {
    return count - first < BLOCK ? count - first : BLOCK;
}

/* out = the sum of all inputs, divided by `divisor`; added up in double precision, rounded once. */
void ina_local_sum_f32(float *out, const float *const *in, size_t inputs, size_t count, double divisor) {
    double total[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t length = block_at(first, count);
        for (size_t i = 0; i < length; i++)
            total[i] = in[0][first + i];
        for (size_t each = 1; each < inputs; each++)
            for (size_t i = 0; i < length; i++)
                total[i] += in[each][first + i];
        if (divisor != 1.0)
            for (size_t i = 0; i < length; i++)
                total[i] /= divisor;
        for (size_t i = 0; i < length; i++)
            out[first + i] = (float)total[i];
    }
}

/* out = the sum of all inputs; returns the first place where that is no int32, or -1. */
int64_t ina_local_sum_i32(int32_t *out, const int32_t *const *in, size_t inputs, size_t count) {
    int64_t total[BLOCK], beyond = -1;
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t length = block_at(first, count);
        int64_t wrong = 0;
        for (size_t i = 0; i < length; i++)
            total[i] = in[0][first + i];
        for (size_t each = 1; each < inputs; each++)
            for (size_t i = 0; i < length; i++)
                total[i] += in[each][first + i];
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
