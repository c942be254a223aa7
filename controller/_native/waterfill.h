/* Resulting rates of jobs that share links and switch memory; see controller/policies/placement/waterfill.py. */
#ifndef WATERFILL_H
#define WATERFILL_H

#include <stdint.h>

/* Trees of all jobs as arrays over nodes; a job's nodes follow each other, parents before children. */
struct waterfill_flows {
    int64_t jobs, nodes, links, pools;
    const double *link_bps, *pool_bps, *limit_bps;
    const int64_t *job, *link, *back, *parent, *pool;
    const double *source, *kept, *held;
};

/* Fill `rate` and `bound` (by job), `load` (by link, then pool) and `full` (by pool). Returns 0, or -1 if there is
 * no memory, or if numbers are such that rates would never rise. */
int waterfill(const struct waterfill_flows *f, double *rate, int64_t *bound, double *load, double *full);

#endif
