/* The rule of dctcp.py in C, which the core calls without Python:
 *
 *     cc -O2 -shared -fPIC -I "$(python -m hostlib.include)" examples/windows/dctcp.c -o dctcp.so
 *     ina run -np 2 --program shared --congestion ./dctcp.so:dctcp -- python train.py
 */
#include <ina_window.h>

#include <stddef.h>

enum { ALPHA, PACKETS, GROWN };         /* what `state` holds; it begins with zeros */

static const double GAIN = 1.0 / 16;

ina_window_rule dctcp;

int dctcp(double state[INA_WINDOW_STATE], int64_t most, const struct ina_round *round, struct ina_limits *limits)
{
    if (round == NULL) {
        state[ALPHA] = 1;
        state[PACKETS] = most < 16 ? most : 16;
    } else {
        state[ALPHA] += GAIN * ((double)round->marked / round->results - state[ALPHA]);
        if (round->marked > 0) {
            state[PACKETS] *= 1 - state[ALPHA] / 2;
            state[GROWN] = 1;           /* no slow start any more */
        } else {
            state[PACKETS] += state[GROWN] ? 1 : state[PACKETS];
        }
        state[PACKETS] = state[PACKETS] < 1 ? 1 : state[PACKETS] > most ? most : state[PACKETS];
    }
    limits->in_flight = (int64_t)state[PACKETS];
    return 0;
}
