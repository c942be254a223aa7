/* Groups by worth: the twin, with the reasons, is tests/twins/worth.py: the same steps in the same order with
 * the same arithmetic, so that equal choices are made alike. */
#include "weave.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GAIN = 1e-9; /* relative gain below which an exchange is taken for rounding */

/* The jobs of one size. */
struct class {
    struct weave_rounds *rounds;
    int32_t gpus, count;
    int32_t *job;             /* positions among all */
    struct weave_composition *of;
    double *worth, *value;    /* of the group that began with each job: for a whole round, and per second */
    double *loss;             /* count x count: of each merger, and on the diagonal of each drop */
    int32_t *least;           /* of each row, from the diagonal on: where the least loss is, the first of equals */
    double *total;            /* worth by number of groups, 0 to count */
    int32_t (*step)[2];       /* mergers, and drops of a group (twice the same) */
    uint8_t *live;
};

struct items {
    const int32_t *kind;
    const double *alone_s, *weight;
};

/* Sum as numpy does, whose order decides the last bits. */
static double pairwise_sum(const double *values, int64_t count)
{
    double sums[8], found = 0.0;
    int64_t at;
    if (count < 8) {
        for (at = 0; at < count; at++)
            found += values[at];
        return found;
    }
    if (count > 128) {
        int64_t half = count / 2 - count / 2 % 8;
        return pairwise_sum(values, half) + pairwise_sum(values + half, count - half);
    }
    memcpy(sums, values, sizeof sums);
    for (at = 8; at < count - count % 8; at += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += values[at + lane];
    found = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; at < count; at++)
        found += values[at];
    return found;
}

static void seek_least(struct class *c, int32_t i)
{
    const double *row = c->loss + (int64_t)i * c->count;
    int32_t least = i;
    for (int32_t j = i + 1; j < c->count; j++)
        least = row[j] < row[least] ? j : least;
    c->least[i] = least;
}

static double least_of(const struct class *c, int32_t i) { return c->loss[(int64_t)i * c->count + c->least[i]]; }

/* Set what a merger of i and k loses, and see whether that is the least of its row now. */
static void set_loss(struct class *c, int32_t i, int32_t k, double loss)
{
    int32_t row = i < k ? i : k, column = i < k ? k : i;
    c->loss[(int64_t)row * c->count + column] = loss;
    if (column == c->least[row])
        seek_least(c, row);
    else if (loss < least_of(c, row) || (loss == least_of(c, row) && column < c->least[row]))
        c->least[row] = column;
}

/* Merge or drop where the least worth is lost; of equals, at the first place of the first row. */
static int shrink(struct class *c, int32_t left)
{
    int32_t n = c->count, i = 0;
    for (int32_t row = 1; row < n; row++)
        i = least_of(c, row) < least_of(c, i) ? row : i;
    int32_t j = c->least[i];
    double loss = least_of(c, i);
    c->step[n - 1 - left][0] = i;
    c->step[n - 1 - left][1] = j;
    c->live[j] = 0;
    for (int32_t k = j; k < n; k++)
        c->loss[(int64_t)j * n + k] = INFINITY;
    c->least[j] = j;
    for (int32_t k = 0; k < j; k++)
        if (c->live[k])
            set_loss(c, k, j, INFINITY);
    c->total[left] = c->total[left + 1] - loss;
    if (i == j)
        return WEAVE_DONE;
    c->worth[i] += c->worth[j];
    c->of[i] = weave_union(c->rounds, &c->of[i], &c->of[j]);
    if (weave_count(c->rounds, &c->of[i]))
        return WEAVE_NO_MEMORY;
    c->value[i] = c->worth[i] / weave_length(c->rounds, &c->of[i]);
    c->loss[(int64_t)i * n + i] = c->value[i];
    for (int32_t k = 0; k < n; k++) {
        if (!c->live[k] || k == i)
            continue;
        struct weave_composition both = weave_union(c->rounds, &c->of[i], &c->of[k]);
        double length_s = weave_length(c->rounds, &both);
        double merger = c->value[i] + c->value[k] - (c->worth[i] + c->worth[k]) / length_s;
        if (k < i)
            set_loss(c, k, i, merger);
        else
            c->loss[(int64_t)i * n + k] = merger;
    }
    seek_least(c, i);
    return WEAVE_DONE;
}

/* Number the kinds of a class's jobs: `kinds` gets them, `number` has that of each job. Return how many. */
static int32_t number_kinds(const struct class *c, int32_t *kinds, int32_t *number)
{
    int32_t found = 0;
    for (int32_t i = 0; i < c->count; i++) {
        int32_t n = 0;
        while (n < found && kinds[n] != c->of[i].kinds[0])
            n++;
        if (n == found)
            kinds[found++] = c->of[i].kinds[0];
        number[i] = n;
    }
    return found;
}

static int merge(struct class *c, const struct items *items)
{
    int32_t n = c->count;
    for (int32_t i = 0; i < n; i++) {
        int32_t job = c->job[i];
        c->of[i] = weave_one(items->kind[job]);
        c->worth[i] = items->weight[job] * items->alone_s[job];
        c->value[i] = items->weight[job];
        c->live[i] = 1;
        if (weave_count(c->rounds, &c->of[i]))
            return WEAVE_NO_MEMORY;
    }
    int32_t *kinds = c->least, *number = &c->step[0][0]; /* not needed yet */
    int32_t kind_count = number_kinds(c, kinds, number);
    for (int32_t a = 0; a < kind_count; a++) {
        for (int32_t b = a; b < kind_count; b++) {
            struct weave_composition first = weave_one(kinds[a]), second = weave_one(kinds[b]);
            struct weave_composition both = weave_union(c->rounds, &first, &second);
            /* below the diagonal is room: row b has b + 1 numbers there, with the diagonal */
            c->loss[(int64_t)b * n + a] = weave_length(c->rounds, &both);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = i + 1; j < n; j++) {
            int32_t a = number[i] < number[j] ? number[i] : number[j], b = number[i] < number[j] ? number[j] : number[i];
            double length_s = c->loss[(int64_t)b * n + a];
            c->loss[(int64_t)i * n + j] = c->value[i] + c->value[j] - (c->worth[i] + c->worth[j]) / length_s;
        }
    }
    for (int32_t i = 0; i < n; i++)
        c->loss[(int64_t)i * n + i] = c->value[i];
    for (int32_t i = 0; i < n; i++)
        seek_least(c, i);
    c->total[n] = pairwise_sum(c->value, n);
    for (int32_t left = n - 1; left >= 0 && !weave_asks(c->rounds); left--)
        if (shrink(c, left))
            return WEAVE_NO_MEMORY;
    return weave_asks(c->rounds) ? WEAVE_ASKS : WEAVE_DONE;
}

/* Choose how many groups of each class give the highest total worth: a knapsack, solved exactly. `counts` gets
 * them; `memory` has room for 2 (capacity + 1) doubles, `choice` for classes x (capacity + 1). */
static void share(const struct class *classes, int32_t count, int32_t capacity, double *memory, int32_t *choice,
                  int32_t *counts)
{
    double *best = memory, *found = memory + capacity + 1;
    memset(best, 0, (size_t)(capacity + 1) * sizeof *best);
    for (int32_t n = 0; n < count; n++) {
        const struct class *c = &classes[n];
        int32_t *chosen = choice + (int64_t)n * (capacity + 1);
        for (int32_t gpus = 0; gpus <= capacity; gpus++) {
            found[gpus] = -INFINITY;
            chosen[gpus] = 0;
        }
        for (int32_t groups = 0; groups <= c->count && groups <= capacity / c->gpus; groups++) {
            int32_t used = groups * c->gpus;
            for (int32_t gpus = used; gpus <= capacity; gpus++) {
                double candidate = best[gpus - used] + c->total[groups];
                if (candidate > found[gpus]) {
                    found[gpus] = candidate;
                    chosen[gpus] = groups;
                }
            }
        }
        double *swap = best;
        best = found;
        found = swap;
    }
    for (int32_t n = count - 1, left = capacity; n >= 0; n--) {
        counts[n] = choice[(int64_t)n * (capacity + 1) + left];
        left -= counts[n] * classes[n].gpus;
    }
}

/* Seats: `members` for each group, then one for each dropped job, and an empty one. */
struct seats {
    struct weave_rounds *rounds;
    const struct items *items;
    int32_t count, inside, members;
    int32_t *who;                /* -1: nobody */
    int32_t *kind;               /* number of the kind of who sits there, among `kinds` */
    int32_t *kinds, kind_count;
    struct weave_composition *rest; /* the others in the group */
    double *worth, *rest_worth, *value;
    double *after;               /* [x, y]: worth of x's group if y's occupant sat in x; rows of seats inside */
    double *lengths;             /* scratch: by kind */
};

static void sit(struct seats *s, int32_t seat)
{
    int32_t who = s->who[seat], kind = who < 0 ? -1 : s->items->kind[who], n = 0;
    while (n < s->kind_count && s->kinds[n] != kind)
        n++;
    if (n == s->kind_count)
        s->kinds[s->kind_count++] = kind;
    s->kind[seat] = n;
    s->worth[seat] = who < 0 ? 0.0 : s->items->weight[who] * s->items->alone_s[who];
}

static int assess(struct seats *s, int32_t first)
{
    struct weave_composition all = weave_one(-1);
    double total = 0.0;
    for (int32_t seat = first; seat < first + s->members; seat++) {
        struct weave_composition one = weave_one(s->kinds[s->kind[seat]]);
        total += s->worth[seat];
        all = weave_union(s->rounds, &all, &one);
    }
    double value = total / weave_length(s->rounds, &all);
    for (int32_t seat = first; seat < first + s->members; seat++) {
        struct weave_composition others = weave_one(-1);
        for (int32_t other = first; other < first + s->members; other++) {
            struct weave_composition one = weave_one(other == seat ? -1 : s->kinds[s->kind[other]]);
            others = weave_union(s->rounds, &others, &one);
        }
        s->value[seat] = value;
        s->rest[seat] = others;
        s->rest_worth[seat] = total - s->worth[seat];
        if (weave_count(s->rounds, &others))
            return WEAVE_NO_MEMORY;
    }
    return WEAVE_DONE;
}

static double worth_after(const struct seats *s, int32_t x, int32_t y, double length_s)
{
    return (s->rest_worth[x] + s->worth[y]) / length_s;
}

static double length_with(struct seats *s, int32_t x, int32_t kind)
{
    struct weave_composition one = weave_one(kind), both = weave_union(s->rounds, &s->rest[x], &one);
    return weave_length(s->rounds, &both);
}

static void fill_row(struct seats *s, int32_t x)
{
    for (int32_t n = 0; n < s->kind_count; n++)
        s->lengths[n] = length_with(s, x, s->kinds[n]);
    for (int32_t y = 0; y < s->count; y++)
        s->after[(int64_t)x * s->count + y] = worth_after(s, x, y, s->lengths[s->kind[y]]);
}

static void fill_column(struct seats *s, int32_t y)
{
    for (int32_t x = 0; x < s->inside; x++)
        s->after[(int64_t)x * s->count + y] = worth_after(s, x, y, length_with(s, x, s->kinds[s->kind[y]]));
}

/* Return the gain of the best exchange, and its seats; the first of equal ones. */
static double best_exchange(const struct seats *s, int32_t *x, int32_t *y)
{
    double best = -INFINITY;
    for (int32_t a = 0; a < s->count; a++) {
        const double *row = s->after + (int64_t)a * s->count;
        int32_t group = a < s->inside ? a / s->members * s->members : a;
        int32_t behind = a < s->inside ? group + s->members : a + 1;
        for (int32_t b = 0; b < s->count; b++) {
            double gain = row[b] + s->after[(int64_t)b * s->count + a];
            gain = gain - s->value[a] - s->value[b];
            gain = b >= group && b < behind ? 0.0 : gain;
            if (gain > best) {
                best = gain;
                *x = a;
                *y = b;
            }
        }
    }
    return best;
}

static int settle(struct seats *s)
{
    double most = 0.0;
    struct weave_composition nobody = weave_one(-1);
    if (weave_count(s->rounds, &nobody))
        return WEAVE_NO_MEMORY;
    for (int32_t seat = 0; seat < s->count; seat++)
        sit(s, seat);
    for (int32_t first = 0; first < s->inside; first += s->members)
        if (assess(s, first))
            return WEAVE_NO_MEMORY;
    for (int32_t x = 0; x < s->inside; x++)
        fill_row(s, x);
    for (int32_t seat = 0; seat < s->count; seat++)
        most = s->value[seat] > most ? s->value[seat] : most;
    while (!weave_asks(s->rounds)) {
        int32_t seat[2];
        if (!(best_exchange(s, &seat[0], &seat[1]) > GAIN * most))
            return WEAVE_DONE;
        int32_t who = s->who[seat[0]];
        s->who[seat[0]] = s->who[seat[1]];
        s->who[seat[1]] = who;
        sit(s, seat[0]);
        sit(s, seat[1]);
        for (int n = 0; n < 2; n++)
            if (seat[n] < s->inside && assess(s, seat[n] / s->members * s->members))
                return WEAVE_NO_MEMORY;
        for (int n = 0; n < 2; n++) {
            int32_t first = seat[n] < s->inside ? seat[n] / s->members * s->members : seat[n];
            int32_t behind = seat[n] < s->inside ? first + s->members : first + 1;
            for (int32_t x = first; x < behind && x < s->inside; x++)
                fill_row(s, x);
            fill_column(s, seat[n]);
        }
    }
    return WEAVE_ASKS;
}

/* Replay the steps of a class down to `groups` groups: members follow each other, -1 behind each group, and
 * `dropped` gets the others. Return how many numbers were written. */
static int32_t replay(const struct class *c, int32_t groups, int32_t *chain, int32_t *found, int32_t *dropped,
                      int32_t *dropped_count)
{
    int32_t n = c->count, *next = chain, *last = chain + n, written = 0;
    uint8_t *gone = c->live; /* not needed any more */
    for (int32_t i = 0; i < n; i++) {
        next[i] = -1;
        last[i] = i;
        gone[i] = 0;
    }
    *dropped_count = 0;
    for (int32_t at = 0; at < n - groups; at++) {
        int32_t i = c->step[at][0], j = c->step[at][1];
        gone[j] = 1;
        if (i != j) {
            next[last[i]] = j;
            last[i] = last[j];
            continue;
        }
        for (int32_t member = j; member >= 0; member = next[member])
            dropped[(*dropped_count)++] = c->job[member];
    }
    for (int32_t i = 0; i < n; i++) {
        if (gone[i])
            continue;
        for (int32_t member = i; member >= 0; member = next[member])
            found[written++] = c->job[member];
        found[written++] = WEAVE_BEHIND;
    }
    return written;
}

static void *take(char **memory, size_t bytes)
{
    void *found = *memory;
    *memory += (bytes + 15) / 16 * 16;
    return found;
}

/* Exchange seats between the groups written to `found` and the dropped jobs. Return how many numbers are written
 * to `found` then, or a negative status (-1 - WEAVE_ASKS if lengths are missing). */
static int32_t improve_groups(struct weave_rounds *rounds, const struct items *items, int32_t *found,
                              int32_t written, const int32_t *dropped, int32_t dropped_count)
{
    int32_t groups = 0, members = weave_members(rounds);
    for (int32_t at = 0; at < written; at++)
        groups += found[at] < 0;
    if (!groups)
        return written;
    size_t count = (size_t)groups * (size_t)members + (size_t)dropped_count + 1;
    size_t each = sizeof(struct weave_composition) + 4 * sizeof(int32_t) + 4 * sizeof(double);
    char *memory = malloc(count * (each + count * sizeof(double)) + 16 * 16), *rest = memory;
    if (!memory)
        return WEAVE_NO_MEMORY;
    struct seats s = { .rounds = rounds, .items = items, .count = (int32_t)count, .members = members };
    s.inside = groups * members;
    s.after = take(&rest, count * count * sizeof *s.after);
    s.worth = take(&rest, count * sizeof *s.worth);
    s.rest_worth = take(&rest, count * sizeof *s.rest_worth);
    s.value = take(&rest, count * sizeof *s.value);
    s.lengths = take(&rest, count * sizeof *s.lengths);
    s.rest = take(&rest, count * sizeof *s.rest);
    s.who = take(&rest, count * sizeof *s.who);
    s.kind = take(&rest, count * sizeof *s.kind);
    s.kinds = take(&rest, count * sizeof *s.kinds);
    for (size_t at = (size_t)s.inside * count; at < count * count; at++)
        s.after[at] = 0.0;
    for (size_t seat = 0; seat < count; seat++)
        s.who[seat] = -1;
    for (int32_t at = 0, seat = 0; at < written; at++) {
        if (found[at] >= 0)
            s.who[seat++] = found[at];
        else
            seat = (seat + members - 1) / members * members;
    }
    for (int32_t n = 0; n < dropped_count; n++)
        s.who[s.inside + n] = dropped[n];
    for (size_t seat = 0; seat < count; seat++)
        s.value[seat] = 0.0;
    int status = settle(&s);
    written = 0;
    for (int32_t seat = 0; seat < s.inside; seat++) {
        if (s.who[seat] >= 0)
            found[written++] = s.who[seat];
        if (seat % members == members - 1 && written && found[written - 1] >= 0)
            found[written++] = WEAVE_BEHIND;
    }
    free(memory);
    return status == WEAVE_DONE ? written : status == WEAVE_ASKS ? -1 - WEAVE_ASKS : status;
}

static int by_gpus(const void *a, const void *b)
{
    const struct class *left = a, *right = b;
    return (left->gpus > right->gpus) - (left->gpus < right->gpus);
}

/* Find the classes, ascending by size, with their jobs in order. Return how many. */
static int32_t sort_out(struct class *classes, int32_t count, const int32_t *gpus, int32_t *jobs)
{
    int32_t found = 0;
    for (int32_t job = 0; job < count; job++) {
        int32_t n = 0;
        while (n < found && classes[n].gpus != gpus[job])
            n++;
        if (n == found)
            classes[found++] = (struct class){ .gpus = gpus[job] };
        classes[n].count++;
    }
    qsort(classes, (size_t)found, sizeof *classes, by_gpus);
    for (int32_t n = 0; n < found; n++) {
        classes[n].job = jobs;
        for (int32_t job = 0; job < count; job++)
            if (gpus[job] == classes[n].gpus)
                *jobs++ = job;
    }
    return found;
}

/* `found` gets the groups, their members' positions with -1 behind each group, and -2 behind the last: room for
 * 2 count + 1. */
int weave_group(struct weave_rounds *rounds, int32_t count, const int32_t *kind, const int32_t *gpus,
                const double *alone_s, const double *weight, int32_t capacity, int improve, int32_t *found)
{
    struct items items = { kind, alone_s, weight };
    size_t n = (size_t)count, room = (size_t)capacity + 1, squares = 0;
    int status = WEAVE_NO_MEMORY;
    struct class *classes = calloc(n ? n : 1, sizeof *classes);
    int32_t *jobs = calloc(n ? 5 * n : 1, sizeof *jobs), *chain = jobs + n, *dropped = chain + 2 * n;
    int32_t *counts = dropped + n, written = 0, class_count;
    char *memory = NULL, *rest;
    if (!classes || !jobs)
        goto out;
    weave_begin(rounds);
    class_count = sort_out(classes, count, gpus, jobs);
    for (int32_t at = 0; at < class_count; at++)
        squares += (size_t)classes[at].count * (size_t)classes[at].count;
    size_t each = sizeof(struct weave_composition) + 3 * sizeof(double) + 3 * sizeof(int32_t) + 1;
    rest = memory = malloc(squares * sizeof(double) + n * each + (size_t)class_count * (9 * 16 + room * 4 + 8) +
                           2 * room * sizeof(double) + 4 * 16);
    if (!memory)
        goto out;
    double *best = take(&rest, 2 * room * sizeof *best);
    int32_t *choice = take(&rest, (size_t)class_count * room * sizeof *choice);
    for (int32_t at = 0; at < class_count; at++) {
        struct class *c = &classes[at];
        size_t jobs_of = (size_t)c->count;
        c->rounds = rounds;
        c->loss = take(&rest, jobs_of * jobs_of * sizeof *c->loss);
        c->worth = take(&rest, jobs_of * sizeof *c->worth);
        c->value = take(&rest, jobs_of * sizeof *c->value);
        c->total = take(&rest, (jobs_of + 1) * sizeof *c->total);
        c->of = take(&rest, jobs_of * sizeof *c->of);
        c->least = take(&rest, jobs_of * sizeof *c->least);
        c->step = take(&rest, jobs_of * sizeof *c->step);
        c->live = take(&rest, jobs_of);
        if ((status = merge(c, &items)) != WEAVE_DONE)
            goto out;
    }
    share(classes, class_count, capacity, best, choice, counts);
    for (int32_t at = 0; at < class_count; at++) {
        int32_t dropped_count, of_class = replay(&classes[at], counts[at], chain, found + written, dropped, &dropped_count);
        if (improve)
            of_class = improve_groups(rounds, &items, found + written, of_class, dropped, dropped_count);
        if (of_class < 0) {
            status = of_class == WEAVE_NO_MEMORY ? WEAVE_NO_MEMORY : WEAVE_ASKS;
            goto out;
        }
        written += of_class;
    }
    found[written] = WEAVE_LAST;
out:
    free(memory);
    free(jobs);
    free(classes);
    return status;
}
