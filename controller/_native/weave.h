/* What the parts of weave's decision share; their twins in Python are tests/twins/worth.py and outlook.py. */
#ifndef WEAVE_H
#define WEAVE_H

#include <stdint.h>

enum {
    WEAVE_MEMBERS = 4,   /* of a group, at most */
    WEAVE_MISSING = 256, /* compositions asked for at a time */

    WEAVE_BEHIND = -1,   /* behind a group's members, */
    WEAVE_LAST = -2,     /* and behind the last group */

    WEAVE_DONE = 0,
    WEAVE_ASKS = 1,      /* lengths of rounds are missing: put them, and call again */
    WEAVE_NO_MEMORY = -1,
};

/* The kinds of a group's members, ascending; -1 behind the last. More than may be members: `size` says so,
 * and no kinds are held. */
struct weave_composition {
    int32_t size;
    int32_t kinds[WEAVE_MEMBERS];
};

struct weave_rounds;

struct weave_rounds *weave_rounds_new(int32_t members);
void weave_rounds_free(struct weave_rounds *rounds);
int weave_rounds_put(struct weave_rounds *rounds, const int32_t *kinds, int32_t size, double length_s);
int64_t weave_rounds_counted(const struct weave_rounds *rounds);
int32_t weave_rounds_missing(const struct weave_rounds *rounds, int32_t *kinds);

/* For the other files. */
void weave_begin(struct weave_rounds *rounds);
int32_t weave_members(const struct weave_rounds *rounds);
int weave_asks(const struct weave_rounds *rounds);
int weave_count(struct weave_rounds *rounds, const struct weave_composition *of);
double weave_length(struct weave_rounds *rounds, const struct weave_composition *of);
struct weave_composition weave_one(int32_t kind);
struct weave_composition weave_union(const struct weave_rounds *rounds, const struct weave_composition *a,
                                     const struct weave_composition *b);

/* Group items by worth; see controller/policies/grouping/worth.py. */
int weave_group(struct weave_rounds *rounds, int32_t count, const int32_t *kind, const int32_t *gpus,
                const double *alone_s, const double *weight, int32_t capacity, int improve, int32_t *found);

/* Predict the ends of a draft's jobs; see controller/policies/scheduling/outlook.py. */
int weave_ends(struct weave_rounds *rounds, int32_t count, const int32_t *kind, const int32_t *gpus,
               const double *iterations, const double *alone_s, const double *restart_s, int32_t capacity,
               int32_t named, const int32_t *draft, double *end_s);

#endif
