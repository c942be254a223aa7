/* The rates of jobs that share links and switch memory; see controller/policies/placement/flows.py. */
#ifndef WATERFILL_H
#define WATERFILL_H

#include <stdint.h>

/* The trees of all jobs, as arrays over nodes. The nodes of a job are consecutive, parents before children. */
struct waterfill_flows {
    int64_t jobs, nodes, links, pools;
    const double *link_bps, *pool_bps, *limit_bps;
    const int64_t *job, *link, *back, *parent, *pool;
    const double *source, *kept, *held;
};

/* Write `rate` and `bound` for each job, `load` for each link and then each pool, and `full` for each pool. Returns 0;
 * or -1 if there is not enough memory, or if rates would never rise with these numbers. */
int waterfill(const struct waterfill_flows *f, double *rate, int64_t *bound, double *load, double *full);

#endif
