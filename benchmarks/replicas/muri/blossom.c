/* Dense maximum-weight matching: the O(n^3) primal-dual method (Galil, Computing Surveys 18, 1986) with the
 * public simulator's order of search, so that ties break alike: labels start at the largest weight, the free
 * nodes are searched breadth first in order of number, an edge is tight when its slack is not positive, and
 * the search for another augmenting path ends when a label runs out. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FREE = -1, OUTER = 0, INNER = 1 };

struct pair {
    int32_t near, far;
};

struct search {
    int32_t count, top, most; /* nodes; the last blossom in use; the last that there can be */
    double *twice;            /* (count + 1) x (count + 1): doubled weights */
    struct pair *ends;        /* (most + 1) x (most + 1), as is linked */
    uint8_t *linked;
    int32_t *part;  /* (most + 1) x (count + 1), as is cycle */
    int32_t *cycle; /* parts of each blossom, `length` of them */
    double *label;
    int32_t *length, *match, *root, *state, *parent, *lightest, *seen, *level, *scratch;
    struct pair *work;
    int32_t stamp;
    int32_t *queue; /* a search puts each node there once at most */
    int32_t head, tail;
};

static struct pair *ends_of(const struct search *s, int32_t a, int32_t b)
{
    return &s->ends[(size_t)a * (size_t)(s->most + 1) + (size_t)b];
}

static uint8_t *linked(const struct search *s, int32_t a, int32_t b)
{
    return &s->linked[(size_t)a * (size_t)(s->most + 1) + (size_t)b];
}

static int32_t *part_of(const struct search *s, int32_t b)
{
    return &s->part[(size_t)b * (size_t)(s->count + 1)];
}

static int32_t *cycle_of(const struct search *s, int32_t b)
{
    return &s->cycle[(size_t)b * (size_t)(s->count + 1)];
}

static double edge_slack(const struct search *s, int32_t u, int32_t v)
{
    return s->label[u] + s->label[v] - s->twice[(size_t)u * (size_t)(s->count + 1) + (size_t)v];
}

static double slack(const struct search *s, int32_t a, int32_t b)
{
    const struct pair *edge = ends_of(s, a, b);
    return edge_slack(s, edge->near, edge->far);
}

static void enqueue(struct search *s, int32_t x)
{
    int32_t first = 0, last = 0;
    s->level[last++] = x;
    while (first < last) {
        x = s->level[first++];
        if (x <= s->count) {
            s->queue[s->tail++] = x;
        } else {
            for (int32_t i = 0; i < s->length[x]; i++)
                s->level[last++] = cycle_of(s, x)[i];
        }
    }
}

static int32_t common_ancestor(struct search *s, int32_t u, int32_t v)
{
    s->stamp++;
    while (u || v) {
        if (u) {
            if (s->seen[u] == s->stamp)
                return u;
            s->seen[u] = s->stamp;
            u = s->root[s->match[u]];
            if (u)
                u = s->root[s->parent[u]];
        }
        int32_t other = v;
        v = u;
        u = other;
    }
    return 0;
}

static void turn_round(int32_t *cycle, int32_t length)
{
    for (int32_t i = 1, j = length - 1; i < j; i++, j--) {
        int32_t part = cycle[i];
        cycle[i] = cycle[j];
        cycle[j] = part;
    }
}

/* Return the position of `entry` in the cycle of b, turning the cycle round if it is odd. */
static int32_t even_position(struct search *s, int32_t b, int32_t entry)
{
    int32_t *cycle = cycle_of(s, b), length = s->length[b], position = 0;
    while (cycle[position] != entry)
        position++;
    if (position % 2 == 0)
        return position;
    turn_round(cycle, length);
    return length - position;
}

static void set_match(struct search *s, int32_t u, int32_t v)
{
    int32_t first = 0, last = 0;
    s->work[last++] = (struct pair){u, v};
    while (first < last) {
        u = s->work[first].near;
        v = s->work[first++].far;
        struct pair edge = *ends_of(s, u, v);
        s->match[u] = edge.far;
        if (u <= s->count)
            continue;
        int32_t entry = part_of(s, u)[edge.near];
        int32_t position = even_position(s, u, entry);
        int32_t *cycle = cycle_of(s, u), length = s->length[u];
        for (int32_t i = 0; i < position; i++)
            s->work[last++] = (struct pair){cycle[i], cycle[i ^ 1]};
        s->work[last++] = (struct pair){entry, v};
        for (int32_t i = 0; i < length; i++)
            s->scratch[i] = cycle[(i + position) % length];
        memcpy(cycle, s->scratch, (size_t)length * sizeof *cycle);
    }
}

/* Match along the path from u to its tree's root. */
static void flip(struct search *s, int32_t u, int32_t v)
{
    for (;;) {
        int32_t mate = s->root[s->match[u]];
        set_match(s, u, v);
        if (!mate)
            return;
        int32_t above = s->root[s->parent[mate]];
        set_match(s, mate, above);
        u = above;
        v = mate;
    }
}

static void set_root(struct search *s, int32_t x, int32_t b)
{
    s->root[x] = b;
    if (x > s->count)
        for (int32_t i = 0; i < s->length[x]; i++)
            set_root(s, cycle_of(s, x)[i], b);
}

static void set_lightest(struct search *s, int32_t x)
{
    double best = 0.0;
    s->lightest[x] = 0;
    for (int32_t u = 1; u <= s->count; u++)
        if (*linked(s, u, x) && s->root[u] != x && s->state[s->root[u]] == OUTER) {
            double here = slack(s, u, x);
            if (!s->lightest[x] || here < best) {
                s->lightest[x] = u;
                best = here;
            }
        }
}

static void climb(struct search *s, int32_t x, int32_t ancestor, int32_t b)
{
    while (x != ancestor) {
        int32_t mate = s->root[s->match[x]];
        cycle_of(s, b)[s->length[b]++] = x;
        cycle_of(s, b)[s->length[b]++] = mate;
        enqueue(s, mate);
        x = s->root[s->parent[mate]];
    }
}

static int32_t new_blossom(struct search *s)
{
    for (int32_t b = s->count + 1; b <= s->top; b++)
        if (!s->root[b])
            return b;
    return ++s->top;
}

static void shrink(struct search *s, int32_t u, int32_t ancestor, int32_t v)
{
    int32_t b = new_blossom(s), *cycle = cycle_of(s, b);
    s->label[b] = 0.0;
    s->state[b] = OUTER;
    s->match[b] = s->match[ancestor];
    cycle[0] = ancestor;
    s->length[b] = 1;
    climb(s, u, ancestor, b);
    turn_round(cycle, s->length[b]);
    climb(s, v, ancestor, b);
    set_root(s, b, b);
    for (int32_t x = 1; x <= s->top; x++)
        *linked(s, b, x) = *linked(s, x, b) = 0;
    memset(part_of(s, b), 0, (size_t)(s->count + 1) * sizeof(int32_t));
    for (int32_t i = 0; i < s->length[b]; i++) {
        int32_t inner = cycle[i];
        for (int32_t x = 1; x <= s->top; x++)
            if (!*linked(s, b, x) || slack(s, inner, x) < slack(s, b, x)) {
                *ends_of(s, b, x) = *ends_of(s, inner, x);
                *linked(s, b, x) = *linked(s, inner, x);
                *ends_of(s, x, b) = *ends_of(s, x, inner);
                *linked(s, x, b) = *linked(s, x, inner);
            }
        for (int32_t x = 1; x <= s->count; x++)
            if (part_of(s, inner)[x])
                part_of(s, b)[x] = inner;
    }
    set_lightest(s, b);
}

static void expand(struct search *s, int32_t b)
{
    int32_t *cycle = cycle_of(s, b), length = s->length[b];
    for (int32_t i = 0; i < length; i++)
        set_root(s, cycle[i], cycle[i]);
    int32_t entry = part_of(s, b)[ends_of(s, b, s->parent[b])->near];
    int32_t position = even_position(s, b, entry);
    for (int32_t i = 0; i < position; i += 2) {
        int32_t x = cycle[i], y = cycle[i + 1];
        s->parent[x] = ends_of(s, y, x)->near;
        s->state[x] = INNER;
        s->state[y] = OUTER;
        s->lightest[x] = 0;
        set_lightest(s, y);
        enqueue(s, y);
    }
    s->state[entry] = INNER;
    s->parent[entry] = s->parent[b];
    for (int32_t i = position + 1; i < length; i++) {
        s->state[cycle[i]] = FREE;
        set_lightest(s, cycle[i]);
    }
    s->root[b] = 0;
}

/* Use a tight edge from an outer node: grow the tree, shrink a blossom, or augment, and return 1. */
static int tight(struct search *s, int32_t node_u, int32_t node_v)
{
    int32_t u = s->root[node_u], v = s->root[node_v];
    if (s->state[v] == FREE) {
        s->parent[v] = node_u;
        s->state[v] = INNER;
        int32_t mate = s->root[s->match[v]];
        s->lightest[v] = s->lightest[mate] = 0;
        s->state[mate] = OUTER;
        enqueue(s, mate);
    } else if (s->state[v] == OUTER) {
        int32_t ancestor = common_ancestor(s, u, v);
        if (!ancestor) {
            flip(s, u, v);
            flip(s, v, u);
            return 1;
        }
        shrink(s, u, ancestor, v);
    }
    return 0;
}

static int is_close(double a, double b)
{
    if (a == b)
        return 1;
    if (isinf(a) || isinf(b))
        return 0;
    double apart = fabs(a - b);
    return apart <= fabs(1e-5 * b) || apart <= fabs(1e-5 * a);
}

/* Change the labels by as much as is possible; return 0 if one of them runs out. */
static int relax(struct search *s)
{
    double step = INFINITY;
    for (int32_t b = s->count + 1; b <= s->top; b++)
        if (s->root[b] == b && s->state[b] == INNER && s->label[b] / 2.0 < step)
            step = s->label[b] / 2.0;
    for (int32_t x = 1; x <= s->top; x++) {
        int32_t near = s->lightest[x];
        if (near && s->root[x] == x && s->state[x] != INNER) {
            double here = s->state[x] == FREE ? slack(s, near, x) : slack(s, near, x) / 2.0;
            if (here < step)
                step = here;
        }
    }
    for (int32_t u = 1; u <= s->count; u++) {
        int32_t state = s->state[s->root[u]];
        if (state == OUTER) {
            if (s->label[u] <= step || is_close(s->label[u], step))
                return 0;
            s->label[u] -= step;
        } else if (state == INNER) {
            s->label[u] += step;
        }
    }
    for (int32_t b = s->count + 1; b <= s->top; b++)
        if (s->root[b] == b && s->state[b] != FREE)
            s->label[b] += s->state[b] == OUTER ? step * 2 : -step * 2;
    return 1;
}

/* Search all edges of an outer node; return 1 if the matching has grown. */
static int scan(struct search *s, int32_t u)
{
    const double *row = &s->twice[(size_t)u * (size_t)(s->count + 1)];
    for (int32_t v = 1; v <= s->count; v++) {
        int32_t x = s->root[v];
        if (row[v] <= 0.0 || v == u || s->root[u] == x)
            continue;
        int32_t other = s->lightest[x];
        if (s->label[u] + s->label[v] - row[v] <= 0.0) {
            if (tight(s, u, v))
                return 1;
        } else if (!other || (other != u && slack(s, u, x) < slack(s, other, x))) {
            s->lightest[x] = u;
        }
    }
    return 0;
}

/* Search for one augmenting path and apply it; return whether there was one. */
static int augment_once(struct search *s)
{
    s->head = s->tail = 0;
    for (int32_t x = 0; x <= s->most; x++) {
        s->state[x] = FREE;
        s->lightest[x] = 0;
    }
    for (int32_t x = 1; x <= s->top; x++)
        if (s->root[x] == x && !s->match[x]) {
            s->parent[x] = 0;
            s->state[x] = OUTER;
            enqueue(s, x);
        }
    if (s->head == s->tail)
        return 0;
    for (;;) {
        while (s->head < s->tail) {
            int32_t u = s->queue[s->head++];
            if (s->state[s->root[u]] != INNER && scan(s, u))
                return 1;
        }
        if (!relax(s))
            return 0;
        s->head = s->tail = 0;
        int32_t top = s->top;
        for (int32_t x = 1; x <= top; x++) {
            int32_t near = s->lightest[x];
            if (near && s->root[x] == x && s->root[near] != x && slack(s, near, x) <= 0.0) {
                struct pair edge = *ends_of(s, near, x);
                if (tight(s, edge.near, edge.far))
                    return 1;
            }
        }
        top = s->top;
        for (int32_t b = s->count + 1; b <= top; b++)
            if (s->root[b] == b && s->state[b] == INNER && s->label[b] <= 0.0)
                expand(s, b);
    }
}

static void prepare(struct search *s, const double *weights)
{
    int32_t count = s->count;
    double largest = weights[0];
    for (int32_t u = 1; u <= count; u++) {
        s->root[u] = u;
        part_of(s, u)[u] = u;
        for (int32_t v = 0; v <= count; v++)
            *ends_of(s, u, v) = (struct pair){u, v};
        for (int32_t v = 1; v <= count; v++) {
            double weight = weights[(size_t)(u - 1) * (size_t)count + (size_t)(v - 1)];
            s->twice[(size_t)u * (size_t)(count + 1) + (size_t)v] = 2.0 * weight;
            *linked(s, u, v) = weight > 0.0;
            largest = weight > largest ? weight : largest;
        }
    }
    for (int32_t v = 0; v <= count; v++) {
        *ends_of(s, 0, v) = (struct pair){0, v};
        s->label[v] = largest;
    }
}

/* Write each node's partner, -1 for none; return 0, or -1 if there is not enough memory. */
int blossom_match(int32_t count, const double *weights, int32_t *partner)
{
    struct search s = {.count = count, .top = count, .most = count + count / 2 + 1};
    size_t nodes = (size_t)count + 1, all = (size_t)s.most + 1;
    s.twice = calloc(nodes * nodes + all, sizeof *s.twice);
    s.ends = calloc(all * all + 2 * all, sizeof *s.ends);
    s.linked = calloc(all * all, sizeof *s.linked);
    s.part = calloc(2 * all * nodes, sizeof *s.part);
    s.length = calloc(10 * all, sizeof *s.length);
    int enough = s.twice && s.ends && s.linked && s.part && s.length;
    if (enough) {
        s.label = s.twice + nodes * nodes;
        s.work = s.ends + all * all;
        s.cycle = s.part + all * nodes;
        s.match = s.length + all;
        s.root = s.match + all;
        s.state = s.root + all;
        s.parent = s.state + all;
        s.lightest = s.parent + all;
        s.seen = s.lightest + all;
        s.level = s.seen + all;
        s.scratch = s.level + all;
        s.queue = s.scratch + all;
        prepare(&s, weights);
        while (augment_once(&s))
            ;
        for (int32_t u = 1; u <= count; u++)
            partner[u - 1] = s.match[u] - 1;
    }
    free(s.twice);
    free(s.ends);
    free(s.linked);
    free(s.part);
    free(s.length);
    return enough ? 0 : -1;
}
