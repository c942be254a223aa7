/* A congestion control of your own in C: one function in a shared object, called at the end of each round.
 *
 *     cc -O2 -shared -fPIC -I "$(python -m hostlib.include)" examples/windows/dctcp.c -o dctcp.so
 *     ina run -np 2 --congestion ./dctcp.so:dctcp -- python train.py
 *
 * Every rank calls it with the same rounds, and must come to the same limits: what it decides may depend on nothing but
 * its arguments. docs/guides/own-rules.md says what a round is, and has the same in Python.
 */
#ifndef INA_WINDOW_H
#define INA_WINDOW_H

#include <stdint.h>

#define INA_WINDOW_STATE 16

/* What the results of a round brought; hostlib/core/congestion.py (`Round`) says more. */
struct ina_round {
    int64_t results;
    int64_t marked;                     /* of them, with ECN */
    int64_t collided;                   /* of them, whose slot others want, or whose slot was taken */
    double waiting;                     /* share of late ones, 0 to 1, at the rank that waits most */
};

/* From now on; both are 1 to `most`. */
struct ina_limits {
    int64_t in_flight;                  /* packets without a result; comes in as it is now */
    int64_t claims;                     /* of `most` packets, how many may claim a slot; comes in as `most` */
};

/* Set `limits` and return 0; another number ends the job with an error that tells it.
 *
 * `most` is the window: the most packets in flight. `round` is NULL when the job begins; the limits come in as `most`
 * then. `state` is this rank's own for the life of the job, and comes in as zeros.
 */
typedef int ina_window_rule(double state[INA_WINDOW_STATE], int64_t most, const struct ina_round *round,
                            struct ina_limits *limits);

#endif
