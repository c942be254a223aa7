/* Water-filling: see policies/placement/flows.py. */
#include "waterfill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SAME = 1 + 1e-12; /* two events count as one if the ratio of their times is below this */

struct filling {
    const struct waterfill_flows *f;
    int64_t nowhere;  /* number of links and pools, and of the unlimited resource of nodes without a link or pool */
    double *base, *slope; /* a resource's load is base + slope * t when the rates of all active jobs are t */
    int64_t *users;
    double *inflow, *out;
    int64_t *by_resource, *begin; /* the nodes that use each resource */
    int64_t *first;   /* index of the first node of each job */
    int64_t *nodes;   /* scratch: the nodes of an event; `jobs`: the jobs that the event freezes */
    int64_t *jobs;
    double *delta;
    uint8_t *summing, *active;
    double *rate, *full;
    int64_t *bound;
};

enum { UP, DOWN, MEMORY, USES };

static int64_t resource_of(const struct filling *s, int64_t node, int use)
{
    int64_t number = use == UP ? s->f->link[node] : use == DOWN ? s->f->back[node] : s->f->pool[node];
    return number < 0 ? s->nowhere : use == MEMORY ? number + s->f->links : number;
}

/* Start (`sign` 1) or stop (`sign` -1) raising the loads of the resources that these nodes use. */
static void add(struct filling *s, const int64_t *nodes, int64_t count, double level, int sign)
{
    for (int use = UP; use < USES; use++) {
        for (int64_t at = 0; at < count; at++) {
            int64_t node = nodes[at], resource = resource_of(s, node, use);
            double out = s->out[node], flow;
            if (use == MEMORY)
                flow = s->f->held[node] * s->summing[node];
            else
                flow = use == UP || out < 1.0 ? out : 1.0;
            s->slope[resource] += sign * flow;
            s->base[resource] += -sign * flow * level;
            s->users[resource] += flow > 0 ? sign : 0;
        }
    }
}

/* Compute the flows into and out of each node while all memory is free. */
static void rest(struct filling *s)
{
    const struct waterfill_flows *f = s->f;
    int64_t deepest = 0, *depth = s->nodes;
    for (int64_t node = 0; node < f->nodes; node++) {
        depth[node] = f->parent[node] < 0 ? 0 : depth[f->parent[node]] + 1;
        deepest = depth[node] > deepest ? depth[node] : deepest;
        s->inflow[node] = f->source[node];
    }
    for (int64_t level = deepest; level >= 0; level--) {
        for (int64_t node = 0; node < f->nodes; node++) {
            if (depth[node] != level)
                continue;
            s->out[node] = s->summing[node] ? f->kept[node] : s->inflow[node];
            if (f->parent[node] >= 0)
                s->inflow[f->parent[node]] += s->out[node];
        }
    }
}

static void sort_by_resource(struct filling *s)
{
    for (int use = UP; use < USES; use++)
        for (int64_t node = 0; node < s->f->nodes; node++)
            s->begin[resource_of(s, node, use) + 1]++;
    for (int64_t resource = 0; resource <= s->nowhere; resource++)
        s->begin[resource + 1] += s->begin[resource];
    for (int use = UP; use < USES; use++)
        for (int64_t node = 0; node < s->f->nodes; node++)
            s->by_resource[s->begin[resource_of(s, node, use)]++] = node;
    for (int64_t resource = s->nowhere; resource >= 0; resource--)
        s->begin[resource + 1] = s->begin[resource];
    s->begin[0] = 0;
}

static int by_number(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Freeze the rates of the first `count` jobs in `jobs`, which are in ascending order, at `level`. */
static void freeze(struct filling *s, int64_t count, double level)
{
    int64_t nodes = 0;
    for (int64_t at = 0; at < count; at++)
        for (int64_t node = s->first[s->jobs[at]]; node < s->first[s->jobs[at] + 1]; node++)
            s->nodes[nodes++] = node;
    add(s, s->nodes, nodes, level, -1);
    for (int64_t at = 0; at < count; at++) {
        s->active[s->jobs[at]] = 0;
        s->rate[s->jobs[at]] = level;
    }
}

/* Add a job to the jobs to freeze, with the resource that limits it, unless it was added already. */
static void note(struct filling *s, int64_t *count, int64_t job, int64_t resource)
{
    if (s->active[job] != 1)
        return;
    s->active[job] = 2;
    s->bound[job] = resource;
    s->jobs[(*count)++] = job;
}

/* Let the flow beyond the memory pass the nodes in `nodes` unsummed; no two of these nodes belong to one tree. */
static void spill(struct filling *s, int64_t count, double level)
{
    const struct waterfill_flows *f = s->f;
    add(s, s->nodes, count, level, -1);
    for (int64_t at = 0; at < count; at++) {
        int64_t node = s->nodes[at];
        s->summing[node] = 0;
        s->delta[at] = s->inflow[node] - f->kept[node];
    }
    while (count) {
        int64_t passing = 0;
        for (int64_t at = 0; at < count; at++)
            s->out[s->nodes[at]] += s->delta[at];
        add(s, s->nodes, count, level, +1);
        for (int64_t at = 0; at < count; at++) {
            int64_t parent = f->parent[s->nodes[at]];
            if (parent < 0)
                continue;
            s->inflow[parent] += s->delta[at];
            if (s->summing[parent])
                continue;
            s->nodes[passing] = parent;
            s->delta[passing++] = s->delta[at];
        }
        count = passing;
        add(s, s->nodes, count, level, -1);
    }
}

static int fill_pool(struct filling *s, int64_t pool, double level)
{
    int64_t count = 0, resource = s->f->links + pool;
    s->full[pool] = level;
    for (int64_t at = s->begin[resource]; at < s->begin[resource + 1]; at++) {
        int64_t node = s->by_resource[at];
        if (s->active[s->f->job[node]] && s->summing[node])
            s->nodes[count++] = node;
    }
    spill(s, count, level);
    return count > 0;
}

static double time_of(const struct filling *s, int64_t resource)
{
    double capacity = resource < s->f->links      ? s->f->link_bps[resource]
                      : resource < s->nowhere ? s->f->pool_bps[resource - s->f->links]
                                              : INFINITY;
    return s->users[resource] > 0 ? (capacity - s->base[resource]) / s->slope[resource] : INFINITY;
}

/* Raise the level to the next event; return 1 if there was an event, 0 if not, -1 if the event changed nothing. */
static int step(struct filling *s, double *level)
{
    const struct waterfill_flows *f = s->f;
    double soonest = INFINITY, limit = INFINITY;
    int64_t frozen = 0;
    int active = 0;
    for (int64_t resource = 0; resource <= s->nowhere && !isnan(soonest); resource++) {
        double time = time_of(s, resource);
        soonest = isnan(time) || time < soonest ? time : soonest;
    }
    for (int64_t job = 0; job < f->jobs; job++) {
        active |= s->active[job];
        limit = s->active[job] && f->limit_bps[job] < limit ? f->limit_bps[job] : limit;
    }
    if (!active)
        return 0;
    double next = limit < soonest ? limit : soonest;
    *level = next > *level ? next : *level;
    if (*level == INFINITY)
        return 0;
    for (int64_t job = 0; job < f->jobs; job++)
        if (s->active[job] && f->limit_bps[job] <= *level * SAME)
            note(s, &frozen, job, -1);
    if (frozen) {
        freeze(s, frozen, *level);
        return 1;
    }
    for (int64_t resource = 0; resource < s->nowhere; resource++) {
        if (!(time_of(s, resource) <= *level * SAME))
            continue;
        if (resource >= f->links && frozen)
            break;
        if (resource >= f->links)
            return fill_pool(s, resource - f->links, *level) ? 1 : -1;
        for (int64_t at = s->begin[resource]; at < s->begin[resource + 1]; at++) {
            int64_t node = s->by_resource[at];
            if (s->active[f->job[node]] && s->out[node] > 0)
                note(s, &frozen, f->job[node], resource);
        }
    }
    qsort(s->jobs, (size_t)frozen, sizeof *s->jobs, by_number);
    freeze(s, frozen, *level);
    return frozen ? 1 : -1;
}

static void *take(char **memory, size_t bytes)
{
    void *found = *memory;
    *memory += (bytes + 15) / 16 * 16;
    return found;
}

int waterfill(const struct waterfill_flows *f, double *rate, int64_t *bound, double *load, double *full)
{
    struct filling s = { .f = f, .nowhere = f->links + f->pools, .rate = rate, .bound = bound, .full = full };
    size_t nodes = (size_t)f->nodes, jobs = (size_t)f->jobs, resources = (size_t)s.nowhere + 1;
    double level = 0.0;
    int more;
    char *memory = calloc(1, nodes * (7 * 8 + 1) + jobs * (2 * 8 + 1) + resources * 4 * 8 + 14 * 16 + 16), *left = memory;
    if (!memory)
        return -1;
    s.base = take(&left, resources * 8);
    s.slope = take(&left, resources * 8);
    s.users = take(&left, resources * 8);
    s.begin = take(&left, (resources + 1) * 8);
    s.inflow = take(&left, nodes * 8);
    s.out = take(&left, nodes * 8);
    s.by_resource = take(&left, 3 * nodes * 8);
    s.nodes = take(&left, nodes * 8);
    s.delta = take(&left, nodes * 8);
    s.first = take(&left, (jobs + 1) * 8);
    s.jobs = take(&left, jobs * 8);
    s.summing = take(&left, nodes);
    s.active = take(&left, jobs);
    for (int64_t node = 0; node < f->nodes; node++) {
        s.summing[node] = f->pool[node] >= 0;
        s.first[f->job[node] + 1]++;
    }
    for (int64_t job = 0; job < f->jobs; job++) {
        s.first[job + 1] += s.first[job];
        s.active[job] = 1;
        rate[job] = INFINITY;
        bound[job] = -1;
    }
    for (int64_t pool = 0; pool < f->pools; pool++)
        full[pool] = INFINITY;
    rest(&s);
    sort_by_resource(&s);
    for (int64_t node = 0; node < f->nodes; node++)
        s.nodes[node] = node;
    add(&s, s.nodes, f->nodes, 0.0, +1);
    while ((more = step(&s, &level)) > 0)
        ;
    for (int64_t resource = 0; resource < s.nowhere; resource++)
        load[resource] = s.base[resource] +
                         (s.users[resource] > 0 ? s.slope[resource] * (isfinite(level) ? level : 0.0) : 0.0);
    free(memory);
    return more;
}
