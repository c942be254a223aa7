/* Random dense graphs through blossom.c: of few weights, so that blossoms form, and not quite symmetric. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int blossom_match(int32_t count, const double *weights, int32_t *partner);

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

int main(int argc, char **argv)
{
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    for (int round = 0; round < 400; round++) {
        int32_t count = 1 + (int32_t)draw(40), kinds = 1 + (int32_t)draw(6);
        double *weights = calloc((size_t)count * (size_t)count, sizeof *weights);
        int32_t *partner = calloc((size_t)count, sizeof *partner);
        for (int32_t u = 0; u < count; u++)
            for (int32_t v = 0; v < u; v++) {
                double weight = draw(5) ? 0.1 * (1 + (u % kinds) * (v % kinds)) : 0.0;
                weights[u * count + v] = weight;
                weights[v * count + u] = weight * (1 + (draw(2) ? 1e-16 : 0));
            }
        if (blossom_match(count, weights, partner))
            return 1;
        for (int32_t u = 0; u < count; u++)
            if (partner[u] >= 0 && partner[partner[u]] != u) {
                fprintf(stderr, "%d is matched with %d, and that with %d\n", u, partner[u], partner[partner[u]]);
                return 1;
            }
        free(weights);
        free(partner);
    }
    return 0;
}
