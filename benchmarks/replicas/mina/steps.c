/* Training jobs whose sums take turns at switches, one sum after the other: the loop over events.
 *
 * Each job goes through steps; a step has sums that start no earlier than their gradients are there, one after
 * the other. A sum goes through the switches of the job's tree if the policy lets it and these are free, else
 * by the hosts alone. `profile` has the times of a kind of job; `floor_s` and `rest_s` make the end of a step
 * a function of the end of one of its sums, if all later ones go by the hosts: max(floor_s, end + rest_s). */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum policy { NEVER = 0, FIRST_COME = 1, GAIN = 2 };

struct profile {
    int64_t sums;
    double step_s;              /* time of a step's computation */
    const double *start_s;      /* since the step began, `sums` of them, as are all below */
    const double *in_network_s; /* how long the sum takes in switches */
    const double *by_hosts_s;   /* and without them */
    const double *floor_s;
    const double *rest_s;
};

struct job {
    int64_t profile, hosts, steps; /* steps < 0: without end */
    int64_t group;                 /* jobs of a group never use switches at the same time; < 0: of none */
    int64_t rank;                  /* of events at the same time, those of lower ranks come first */
    const int32_t *tree, *next_tree; /* numbers of switches; a tree changes when its sum has ended */
    int64_t tree_size, next_size;    /* < 0: no tree */
    int64_t changing, step, sum, running, in_network, done;
    double start_s, step_start_s, until_s, finish_s;
};

struct cluster {
    const struct profile *profiles;
    struct job *const *jobs;
    int64_t count;
    int32_t *used; /* sums at each switch now */
    int64_t policy;
    double now_s;
    int64_t *heap; /* room for `count` jobs; the earliest next event first */
};

struct next {
    double start_s, step_start_s;
    int64_t sum;
};

static double longer(double a, double b)
{
    return a > b ? a : b;
}

/* When the job's next event is due. */
static double due_s(const struct cluster *c, const struct job *j)
{
    const struct profile *p = &c->profiles[j->profile];
    if (j->running)
        return j->until_s;
    if (j->sum >= p->sums)
        return longer(c->now_s, j->step_start_s + p->step_s);
    return longer(c->now_s, j->step_start_s + p->start_s[j->sum]);
}

/* The next sum of which a decision will be made. Returns 0 if there is none. */
static int next_sum(const struct cluster *c, const struct job *j, struct next *n)
{
    const struct profile *p = &c->profiles[j->profile];
    double now_s = c->now_s;
    n->sum = j->sum;
    n->step_start_s = j->step_start_s;
    if (j->running) {
        now_s = j->until_s;
        n->sum++;
    }
    if (n->sum >= p->sums) {
        if (j->steps >= 0 && j->step + 1 >= j->steps)
            return 0;
        now_s = longer(now_s, j->step_start_s + p->step_s);
        n->sum = 0;
        n->step_start_s = now_s;
    }
    n->start_s = longer(now_s, n->step_start_s + p->start_s[n->sum]);
    return 1;
}

/* How much sooner the step ends if only this sum is in the network, times hosts, per time of holding. */
static double gain(const struct cluster *c, const struct job *j, const struct next *n)
{
    const struct profile *p = &c->profiles[j->profile];
    double fast_s = n->start_s + p->in_network_s[n->sum], slow_s = n->start_s + p->by_hosts_s[n->sum];
    double floor_s = n->step_start_s + p->floor_s[n->sum], rest_s = p->rest_s[n->sum];
    double saved_s = longer(floor_s, slow_s + rest_s) - longer(floor_s, fast_s + rest_s);
    return saved_s * (double)j->hosts / (fast_s - c->now_s);
}

static int may_use_switches(const struct cluster *c, const struct job *j)
{
    if (c->policy == NEVER || j->tree_size < 0)
        return 0;
    if (j->group >= 0)
        for (int64_t i = 0; i < c->count; i++)
            if (c->jobs[i]->group == j->group && c->jobs[i]->running && c->jobs[i]->in_network)
                return 0;
    for (int64_t i = 0; i < j->tree_size; i++)
        if (c->used[j->tree[i]] )
            return 0;
    if (c->policy == FIRST_COME)
        return 1;
    struct next mine, other;
    if (!next_sum(c, j, &mine))
        return 1;
    double own = gain(c, j, &mine);
    double end_s = c->now_s + c->profiles[j->profile].in_network_s[mine.sum];
    for (int64_t i = 0; i < c->count; i++) {
        const struct job *o = c->jobs[i];
        if (o == j || o->done || o->group < 0 || o->group != j->group || !next_sum(c, o, &other))
            continue;
        if (other.start_s >= end_s)
            continue;
        if (gain(c, o, &other) > own)
            return 0;
    }
    return 1;
}

static void hold(struct cluster *c, const struct job *j, int32_t by)
{
    for (int64_t i = 0; i < j->tree_size; i++)
        c->used[j->tree[i]] += by;
}

/* Let the job's due event happen. */
static void happen(struct cluster *c, struct job *j)
{
    const struct profile *p = &c->profiles[j->profile];
    if (j->running) {
        j->running = 0;
        j->sum++;
        if (j->in_network)
            hold(c, j, -1);
        if (j->changing) {
            j->tree = j->next_tree;
            j->tree_size = j->next_size;
            j->changing = 0;
        }
    } else if (j->sum >= p->sums) {
        j->sum = 0;
        j->step_start_s = c->now_s;
        if (++j->step == j->steps) {
            j->done = 1;
            j->finish_s = c->now_s;
        }
    } else {
        j->in_network = may_use_switches(c, j);
        j->running = 1;
        j->until_s = c->now_s + (j->in_network ? p->in_network_s[j->sum] : p->by_hosts_s[j->sum]);
        if (j->in_network)
            hold(c, j, 1);
    }
}

static int before(const struct cluster *c, int64_t a, int64_t b)
{
    double first_s = due_s(c, c->jobs[a]), second_s = due_s(c, c->jobs[b]);
    return first_s < second_s || (first_s == second_s && c->jobs[a]->rank < c->jobs[b]->rank);
}

static void sift(struct cluster *c, int64_t at, int64_t size)
{
    for (;;) {
        int64_t least = at, left = 2 * at + 1;
        for (int64_t child = left; child < left + 2 && child < size; child++)
            if (before(c, c->heap[child], c->heap[least]))
                least = child;
        if (least == at)
            return;
        int64_t held = c->heap[at];
        c->heap[at] = c->heap[least];
        c->heap[least] = held;
        at = least;
    }
}

/* Run until a job is done, and return its number; or until the first event after `end_s`, and return -1. */
int64_t mina_run(struct cluster *c, double end_s)
{
    int64_t size = 0;
    for (int64_t i = 0; i < c->count; i++)
        if (!c->jobs[i]->done)
            c->heap[size++] = i;
    for (int64_t at = size / 2; at-- > 0;)
        sift(c, at, size);
    while (size > 0) {
        int64_t number = c->heap[0];
        struct job *j = c->jobs[number];
        if (c->now_s > end_s)
            break;
        c->now_s = due_s(c, j);
        happen(c, j);
        if (j->done)
            return number;
        sift(c, 0, size);
    }
    return -1;
}
