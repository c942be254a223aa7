/* When each job would end if no further jobs arrived: the twin, with the reasons, is tests/twins/outlook.py. */
#include "weave.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct event {
    double at_s;
    int32_t first; /* of the members that are left, as a position in `member` */
};

struct outlook {
    struct weave_rounds *rounds;
    const int32_t *kind, *gpus;
    const double *alone_s, *restart_s;
    double *left;
    int32_t *member, *end; /* members of all groups; behind each, where its group ends */
    int32_t members;
    struct event *events; /* a heap: the earliest first; of equal ones the one whose job comes first */
    int32_t event_count;
    int64_t free;
    int32_t sizes, *size, *head; /* who waits, by number of GPUs: the first, and who is next of as many */
    int32_t *next;
};

static int before(const struct outlook *o, struct event a, struct event b)
{
    return a.at_s < b.at_s || (a.at_s == b.at_s && o->member[a.first] < o->member[b.first]);
}

static void push(struct outlook *o, struct event event)
{
    int32_t at = o->event_count++;
    for (; at > 0 && before(o, event, o->events[(at - 1) / 2]); at = (at - 1) / 2)
        o->events[at] = o->events[(at - 1) / 2];
    o->events[at] = event;
}

static struct event pop(struct outlook *o)
{
    struct event first = o->events[0], last = o->events[--o->event_count];
    int32_t at = 0;
    for (int32_t child; (child = 2 * at + 1) < o->event_count; at = child) {
        child += child + 1 < o->event_count && before(o, o->events[child + 1], o->events[child]);
        if (!before(o, o->events[child], last))
            break;
        o->events[at] = o->events[child];
    }
    o->events[at] = last;
    return first;
}

/* Note when the first of a group's members ends; they are in order of what they have left. */
static void go_on(struct outlook *o, int32_t first, double at_s)
{
    double least = o->left[o->member[first]], length_s;
    int32_t count = o->end[first] - first;
    for (int32_t at = first; at < o->end[first]; at++)
        o->left[o->member[at]] -= least;
    if (count == 1) {
        length_s = o->alone_s[o->member[first]];
    } else {
        struct weave_composition of = weave_one(o->kind[o->member[first]]);
        for (int32_t at = first + 1; at < o->end[first]; at++) {
            struct weave_composition other = weave_one(o->kind[o->member[at]]);
            of = weave_union(o->rounds, &of, &other);
        }
        length_s = weave_length(o->rounds, &of);
    }
    push(o, (struct event){ at_s + least * length_s, first });
}

/* Start a group of these jobs. */
static void start(struct outlook *o, const int32_t *jobs, int32_t count, double at_s)
{
    int32_t first = o->members;
    o->free -= o->gpus[jobs[0]];
    for (int32_t n = 0; n < count; n++) { /* insertion keeps the order of those with as much left */
        int32_t at = first + n;
        for (; at > first && o->left[jobs[n]] < o->left[o->member[at - 1]]; at--)
            o->member[at] = o->member[at - 1];
        o->member[at] = jobs[n];
        o->end[first + n] = first + count;
    }
    o->members += count;
    go_on(o, first, at_s);
}

static void start_waiting(struct outlook *o, double now_s)
{
    for (;;) {
        int32_t first = -1, from = -1;
        for (int32_t n = 0; n < o->sizes; n++)
            if (o->size[n] <= o->free && o->head[n] >= 0 && (first < 0 || o->head[n] < first))
                first = o->head[from = n];
        if (first < 0)
            return;
        o->head[from] = o->next[first];
        start(o, &first, 1, now_s + o->restart_s[first]);
    }
}

static void wait_in_order(struct outlook *o, int32_t count, const uint8_t *started)
{
    for (int32_t job = count - 1; job >= 0; job--) {
        int32_t n = 0;
        if (started[job])
            continue;
        while (n < o->sizes && o->size[n] != o->gpus[job])
            n++;
        if (n == o->sizes) {
            o->size[o->sizes++] = o->gpus[job];
            o->head[n] = -1;
        }
        o->next[job] = o->head[n];
        o->head[n] = job;
    }
}

/* `draft` has, for each group, whether it runs already, its number of members, and these. */
int weave_ends(struct weave_rounds *rounds, int32_t count, const int32_t *kind, const int32_t *gpus,
               const double *iterations, const double *alone_s, const double *restart_s, int32_t capacity,
               int32_t named, const int32_t *draft, double *end_s)
{
    size_t n = (size_t)(count > 0 ? count : 1);
    char *memory = malloc(n * (sizeof(struct event) + sizeof(double) + 5 * sizeof(int32_t) + 1));
    if (!memory)
        return WEAVE_NO_MEMORY;
    struct outlook o = { .rounds = rounds, .kind = kind, .gpus = gpus, .alone_s = alone_s, .restart_s = restart_s };
    o.events = (struct event *)memory;
    o.left = (double *)(o.events + n);
    o.member = (int32_t *)(o.left + n);
    o.end = o.member + n;
    o.size = o.end + n;
    o.head = o.size + n;
    o.next = o.head + n;
    uint8_t *started = (uint8_t *)(o.next + n);
    memset(started, 0, n);
    memcpy(o.left, iterations, (size_t)count * sizeof *o.left);
    o.free = capacity;
    weave_begin(rounds);
    for (int32_t at = 0; at < named; at += 2 + draft[at + 1]) {
        const int32_t *jobs = draft + at + 2;
        double cost_s = 0.0;
        for (int32_t member = 0; member < draft[at + 1]; member++) {
            started[jobs[member]] = 1;
            cost_s += draft[at] ? 0.0 : restart_s[jobs[member]];
        }
        start(&o, jobs, draft[at + 1], cost_s);
    }
    wait_in_order(&o, count, started);
    start_waiting(&o, 0.0);
    while (o.event_count && !weave_asks(rounds)) {
        struct event event = pop(&o);
        end_s[o.member[event.first]] = event.at_s;
        if (o.end[event.first] - event.first > 1) {
            go_on(&o, event.first + 1, event.at_s);
        } else {
            o.free += gpus[o.member[event.first]];
            start_waiting(&o, event.at_s);
        }
    }
    free(memory);
    return weave_asks(rounds) ? WEAVE_ASKS : WEAVE_DONE;
}
