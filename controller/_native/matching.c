/* Galil's algorithm (Efficient algorithms for finding maximum matching in graphs, 1986): the primal-dual method
 * with blossoms, O(n^3). If several matchings have the largest weight, the order of the search decides which of them
 * is found. Nodes and edges are visited in the order of van Rantwijk's mwmatching.py, and of the libraries that
 * descend from it (networkx, rustworkx), so that all of them find the same matching.
 *
 * A stage searches for an augmenting path. Nodes without a partner are OUTER. A node that is reached from an OUTER
 * node by an edge without slack is INNER, and the partner of an INNER node is OUTER. An edge between two OUTER nodes
 * closes either an augmenting path or an odd cycle. An odd cycle becomes one node, a blossom. The number of an edge's
 * end is twice the number of the edge, plus 1 for its second node. Duals are stored doubled, so that they are whole
 * numbers. */
#include "matching.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GONE = -1, FREE = 0, OUTER = 1, INNER = 2, CRUMB = 5 };

struct edge {
    int32_t node[2];
    int64_t weight;
};

struct search {
    int32_t nodes, all, edges; /* `all` counts nodes and blossoms; blossoms have numbers from `nodes` on */
    struct edge *edge;
    int32_t *begin, *around;     /* the remote ends of each node's edges */
    int32_t *beside;             /* the nodes at these ends */
    int64_t *twice;              /* the doubled weights of these edges, in one place for `scan` */
    int32_t *mate;               /* for each node: the remote end of its matched edge, or -1 */
    int32_t *label, *label_end;  /* for each node and blossom: its label, and the end by which it was reached */
    int32_t *inside;             /* for each node: its outermost blossom */
    int32_t *parent, *base;
    int32_t *lightest;           /* the edge of least slack to an OUTER node or blossom, or -1 */
    int64_t *lightness;          /* that edge's slack, for the present duals */
    int32_t *children;           /* of each blossom, around the cycle from its base (nodes x nodes) */
    int32_t *joints;             /* the end that joins each child with the next child (nodes x nodes) */
    int32_t *lists, *child_count, *list_count; /* edges of least slack to each OUTER blossom, if known */
    int32_t *unused, unused_count;
    int32_t *queue, queued, *leaves, *path, *to;
    int64_t *dual;
    uint8_t *tight;              /* for each edge: whether it has no slack */
};

static int32_t node_at(const struct search *s, int32_t end) { return s->edge[end / 2].node[end & 1]; }

static int64_t slack(const struct search *s, int32_t edge)
{
    const struct edge *e = &s->edge[edge];
    return s->dual[e->node[0]] + s->dual[e->node[1]] - 2 * e->weight;
}

static int32_t *row(const struct search *s, int32_t *table, int32_t blossom)
{
    return table + (size_t)(blossom - s->nodes) * (size_t)s->nodes;
}

/* Write the nodes of a blossom in order; return their number. */
static int32_t leaves_of(const struct search *s, int32_t blossom, int32_t *out)
{
    if (blossom < s->nodes) {
        *out = blossom;
        return 1;
    }
    int32_t count = 0;
    for (int32_t n = 0; n < s->child_count[blossom]; n++)
        count += leaves_of(s, row(s, s->children, blossom)[n], out + count);
    return count;
}

static void reach(struct search *s, int32_t node, int32_t label, int32_t end)
{
    int32_t blossom = s->inside[node];
    s->label[node] = s->label[blossom] = label;
    s->label_end[node] = s->label_end[blossom] = end;
    s->lightest[node] = s->lightest[blossom] = -1;
    if (label == OUTER) {
        s->queued += leaves_of(s, blossom, s->queue + s->queued);
    } else {
        int32_t matched = s->mate[s->base[blossom]];
        reach(s, node_at(s, matched), OUTER, matched ^ 1);
    }
}

/* Go back from both nodes alternately; return the base of the cycle that their edge closes, or -1 for a path. */
static int32_t meet(struct search *s, int32_t v, int32_t w)
{
    int32_t length = 0, base = -1;
    while (v >= 0 || w >= 0) {
        int32_t blossom = s->inside[v];
        if (s->label[blossom] == CRUMB) {
            base = s->base[blossom];
            break;
        }
        s->path[length++] = blossom;
        s->label[blossom] = CRUMB;
        if (s->label_end[blossom] < 0) {
            v = -1;
        } else {
            blossom = s->inside[node_at(s, s->label_end[blossom])];
            v = node_at(s, s->label_end[blossom]);
        }
        if (w >= 0) {
            int32_t swap = v;
            v = w;
            w = swap;
        }
    }
    while (length)
        s->label[s->path[--length]] = OUTER;
    return base;
}

static void turn_round(int32_t *values, int32_t count)
{
    for (int32_t n = 0; n < count / 2; n++) {
        int32_t swap = values[n];
        values[n] = values[count - 1 - n];
        values[count - 1 - n] = swap;
    }
}

static void keep_lighter(struct search *s, int32_t of, int32_t edge, int64_t its_slack)
{
    if (s->lightest[of] < 0 || its_slack < s->lightness[of]) {
        s->lightest[of] = edge;
        s->lightness[of] = its_slack;
    }
}

/* Record an edge from the new blossom to another OUTER node or blossom, if no other edge to it has less slack. */
static void consider(struct search *s, int32_t blossom, int32_t edge, int32_t *found)
{
    const struct edge *e = &s->edge[edge];
    int32_t other = s->inside[e->node[s->inside[e->node[1]] == blossom ? 0 : 1]];
    if (other == blossom || s->label[other] != OUTER)
        return;
    if (s->to[other] < 0) {
        s->to[other] = edge;
        s->path[(*found)++] = other;
    } else if (slack(s, edge) < slack(s, s->to[other])) {
        s->to[other] = edge;
    }
}

static void find_lightest(struct search *s, int32_t blossom)
{
    int32_t found = 0, *list = row(s, s->lists, blossom);
    for (int32_t n = 0; n < s->child_count[blossom]; n++) {
        int32_t child = row(s, s->children, blossom)[n];
        if (child >= s->nodes && s->list_count[child]) {
            for (int32_t at = 0; at < s->list_count[child]; at++)
                consider(s, blossom, row(s, s->lists, child)[at], &found);
        } else {
            int32_t count = leaves_of(s, child, s->leaves);
            for (int32_t leaf = 0; leaf < count; leaf++)
                for (int32_t at = s->begin[s->leaves[leaf]]; at < s->begin[s->leaves[leaf] + 1]; at++)
                    consider(s, blossom, s->around[at] / 2, &found);
        }
        s->list_count[child] = 0;
        s->lightest[child] = -1;
    }
    s->lightest[blossom] = -1;
    s->list_count[blossom] = found;
    for (int32_t n = 0; n < found; n++) {
        list[n] = s->to[s->path[n]];
        s->to[s->path[n]] = -1;
        keep_lighter(s, blossom, list[n], slack(s, list[n]));
    }
}

/* Make a blossom of the odd cycle that `edge`, between two OUTER nodes, closes. */
static void shrink(struct search *s, int32_t base, int32_t edge)
{
    int32_t blossom = s->unused[--s->unused_count], bottom = s->inside[base], count = 0;
    int32_t *children = row(s, s->children, blossom), *joints = row(s, s->joints, blossom);
    s->base[blossom] = base;
    s->parent[blossom] = -1;
    s->parent[bottom] = blossom;
    for (int side = 0; side < 2; side++) {
        int32_t child = s->inside[s->edge[edge].node[side]];
        while (child != bottom) {
            s->parent[child] = blossom;
            children[count] = child;
            joints[count++] = s->label_end[child] ^ side;
            child = s->inside[node_at(s, s->label_end[child])];
        }
        if (!side) {
            children[count] = bottom;
            turn_round(children, count + 1);
            turn_round(joints, count);
            joints[count++] = 2 * edge;
        }
    }
    s->child_count[blossom] = count;
    s->label[blossom] = OUTER;
    s->label_end[blossom] = s->label_end[bottom];
    s->dual[blossom] = 0;
    int32_t leaf_count = leaves_of(s, blossom, s->leaves);
    for (int32_t n = 0; n < leaf_count; n++) {
        if (s->label[s->inside[s->leaves[n]]] == INNER)
            s->queue[s->queued++] = s->leaves[n];
        s->inside[s->leaves[n]] = blossom;
    }
    find_lightest(s, blossom);
}

/* Label again the children of an INNER blossom that has been taken apart. */
static void relabel(struct search *s, int32_t blossom)
{
    const int32_t *children = row(s, s->children, blossom), *joints = row(s, s->joints, blossom);
    int32_t count = s->child_count[blossom], end = s->label_end[blossom];
    int32_t entry = s->inside[node_at(s, end ^ 1)], at = 0;
    while (children[at] != entry)
        at++;
    int32_t back = !(at & 1), step = back ? -1 : 1; /* the direction with an even number of edges */
    if (!back)
        at -= count;
    while (at) {
        int32_t joint = at - back < 0 ? at - back + count : at - back;
        s->label[node_at(s, end ^ 1)] = FREE;
        s->label[node_at(s, joints[joint] ^ back ^ 1)] = FREE;
        reach(s, node_at(s, end ^ 1), INNER, end);
        s->tight[joints[joint] / 2] = 1;
        at += step;
        joint = at - back < 0 ? at - back + count : at - back;
        end = joints[joint] ^ back;
        s->tight[end / 2] = 1;
        at += step;
    }
    int32_t child = children[0];
    s->label[node_at(s, end ^ 1)] = s->label[child] = INNER;
    s->label_end[node_at(s, end ^ 1)] = s->label_end[child] = end;
    s->lightest[child] = -1;
    for (at = step; (child = children[at < 0 ? at + count : at]) != entry; at += step) {
        if (s->label[child] == OUTER)
            continue;
        int32_t leaf_count = leaves_of(s, child, s->leaves), node = s->leaves[leaf_count - 1];
        for (int32_t n = leaf_count - 1; n >= 0; n--)
            node = s->label[s->leaves[n]] != FREE ? s->leaves[n] : node;
        if (s->label[node] == FREE)
            continue;
        s->label[node] = FREE;
        s->label[node_at(s, s->mate[s->base[child]])] = FREE;
        reach(s, node, INNER, s->label_end[node]);
    }
}

/* Take a blossom apart; at the end of a stage, also take apart the blossoms in it that have a dual of 0. */
static void expand(struct search *s, int32_t blossom, int end_of_stage)
{
    for (int32_t n = 0; n < s->child_count[blossom]; n++) {
        int32_t child = row(s, s->children, blossom)[n];
        s->parent[child] = -1;
        if (child < s->nodes) {
            s->inside[child] = child;
        } else if (end_of_stage && s->dual[child] == 0) {
            expand(s, child, 1);
        } else {
            int32_t count = leaves_of(s, child, s->leaves);
            for (int32_t leaf = 0; leaf < count; leaf++)
                s->inside[s->leaves[leaf]] = child;
        }
    }
    if (!end_of_stage && s->label[blossom] == INNER)
        relabel(s, blossom);
    s->label[blossom] = GONE;
    s->label_end[blossom] = s->base[blossom] = s->lightest[blossom] = -1;
    s->child_count[blossom] = 0;
    s->unused[s->unused_count++] = blossom;
}

static void rotate(int32_t *values, int32_t count, int32_t by, int32_t *scratch)
{
    memcpy(scratch, values, (size_t)by * sizeof *values);
    memmove(values, values + by, (size_t)(count - by) * sizeof *values);
    memcpy(values + count - by, scratch, (size_t)by * sizeof *values);
}

/* Exchange matched and unmatched edges between a node and the base of its blossom. */
static void augment_blossom(struct search *s, int32_t blossom, int32_t node)
{
    int32_t *children = row(s, s->children, blossom), *joints = row(s, s->joints, blossom);
    int32_t count = s->child_count[blossom], child = node, start = 0;
    while (s->parent[child] != blossom)
        child = s->parent[child];
    if (child >= s->nodes)
        augment_blossom(s, child, node);
    while (children[start] != child)
        start++;
    int32_t back = !(start & 1), step = back ? -1 : 1, at = back ? start : start - count;
    while (at) {
        at += step;
        int32_t joint = at - back < 0 ? at - back + count : at - back;
        int32_t end = joints[joint] ^ back;
        for (int side = 0; side < 2; side++) {
            child = children[at < 0 ? at + count : at];
            if (child >= s->nodes)
                augment_blossom(s, child, node_at(s, end ^ side));
            at += side ? 0 : step;
        }
        s->mate[node_at(s, end)] = end ^ 1;
        s->mate[node_at(s, end ^ 1)] = end;
    }
    rotate(children, count, start, s->path);
    rotate(joints, count, start, s->path);
    s->base[blossom] = s->base[children[0]];
}

/* Exchange matched and unmatched edges along the augmenting path through `edge`. */
static void augment(struct search *s, int32_t edge)
{
    for (int side = 0; side < 2; side++) {
        int32_t node = s->edge[edge].node[side], end = 2 * edge + 1 - side;
        for (;;) {
            int32_t outer = s->inside[node];
            if (outer >= s->nodes)
                augment_blossom(s, outer, node);
            s->mate[node] = end;
            if (s->label_end[outer] < 0)
                break;
            int32_t inner = s->inside[node_at(s, s->label_end[outer])], way = s->label_end[inner];
            int32_t near = node_at(s, way ^ 1);
            if (inner >= s->nodes)
                augment_blossom(s, inner, near);
            s->mate[near] = way;
            node = node_at(s, way);
            end = way ^ 1;
        }
    }
}

/* Search from OUTER nodes along edges without slack; return whether an augmenting path was found. */
static int scan(struct search *s)
{
    while (s->queued) {
        int32_t v = s->queue[--s->queued];
        for (int32_t at = s->begin[v]; at < s->begin[v + 1]; at++) {
            int32_t end = s->around[at], edge = end / 2, w = s->beside[at];
            int64_t its_slack = 0;
            if (s->inside[v] == s->inside[w])
                continue;
            if (!s->tight[edge]) {
                its_slack = s->dual[v] + s->dual[w] - s->twice[at];
                s->tight[edge] = its_slack <= 0;
            }
            int32_t label = s->label[s->inside[w]];
            if (!s->tight[edge]) {
                if (label == OUTER)
                    keep_lighter(s, s->inside[v], edge, its_slack);
                else if (s->label[w] == FREE)
                    keep_lighter(s, w, edge, its_slack);
            } else if (label == FREE) {
                reach(s, w, INNER, end ^ 1);
            } else if (label == OUTER) {
                int32_t base = meet(s, v, w);
                if (base < 0) {
                    augment(s, edge);
                    return 1;
                }
                shrink(s, base, edge);
            } else if (s->label[w] == FREE) {
                s->label[w] = INNER;
                s->label_end[w] = end ^ 1;
            }
        }
    }
    return 0;
}

/* Change the duals by the largest possible amount; return whether the search can continue. */
static int loosen(struct search *s)
{
    int64_t delta = s->dual[0];
    int32_t edge = -1, blossom = -1;
    for (int32_t v = 1; v < s->nodes; v++)
        delta = s->dual[v] < delta ? s->dual[v] : delta;
    for (int32_t v = 0; v < s->nodes; v++) {
        if (s->label[s->inside[v]] != FREE || s->lightest[v] < 0 || s->lightness[v] >= delta)
            continue;
        delta = s->lightness[v];
        edge = s->lightest[v];
    }
    for (int32_t b = 0; b < s->all; b++) {
        if (s->parent[b] >= 0 || s->label[b] != OUTER || s->lightest[b] < 0 || s->lightness[b] / 2 >= delta)
            continue;
        delta = s->lightness[b] / 2;
        edge = s->lightest[b];
    }
    for (int32_t b = s->nodes; b < s->all; b++) {
        if (s->base[b] < 0 || s->parent[b] >= 0 || s->label[b] != INNER || s->dual[b] >= delta)
            continue;
        delta = s->dual[b];
        blossom = b;
    }
    for (int32_t v = 0; v < s->nodes; v++) {
        int32_t label = s->label[s->inside[v]];
        s->dual[v] += label == OUTER ? -delta : label == INNER ? delta : 0;
    }
    for (int32_t b = s->nodes; b < s->all; b++)
        if (s->base[b] >= 0 && s->parent[b] < 0)
            s->dual[b] += s->label[b] == OUTER ? delta : s->label[b] == INNER ? -delta : 0;
    for (int32_t b = 0; b < s->all; b++)
        if (s->lightest[b] >= 0)
            s->lightness[b] = slack(s, s->lightest[b]);
    if (blossom >= 0) {
        expand(s, blossom, 0);
    } else if (edge >= 0) {
        const struct edge *e = &s->edge[edge];
        s->tight[edge] = 1;
        s->queue[s->queued++] = e->node[s->label[s->inside[e->node[0]]] == FREE];
    }
    return blossom >= 0 || edge >= 0;
}

/* Find one augmenting path and augment along it; return whether there is one. */
static int augments(struct search *s)
{
    for (int32_t b = 0; b < s->all; b++) {
        s->label[b] = FREE;
        s->label_end[b] = s->lightest[b] = -1;
        s->list_count[b] = 0;
    }
    memset(s->tight, 0, (size_t)s->edges);
    s->queued = 0;
    for (int32_t v = 0; v < s->nodes; v++)
        if (s->mate[v] < 0 && s->label[s->inside[v]] == FREE)
            reach(s, v, OUTER, -1);
    while (!scan(s))
        if (!loosen(s))
            return 0;
    for (int32_t b = s->nodes; b < s->all; b++)
        if (s->parent[b] < 0 && s->base[b] >= 0 && s->label[b] == OUTER && s->dual[b] == 0)
            expand(s, b, 1);
    return 1;
}

static void read_edges(struct search *s, const int32_t *kind, int32_t kinds, const double *weight)
{
    int64_t most = 0;
    int32_t edge = 0;
    for (int32_t a = 0; a < s->nodes; a++) {
        const double *row = weight + (size_t)kind[a] * (size_t)kinds;
        for (int32_t b = a + 1; b < s->nodes; b++) {
            int64_t whole = (int64_t)row[kind[b]];
            if (whole <= 0)
                continue;
            s->edge[edge++] = (struct edge){ { a, b }, whole };
            s->begin[a + 1]++;
            s->begin[b + 1]++;
            most = whole > most ? whole : most;
        }
    }
    for (int32_t v = 0; v < s->nodes; v++) {
        s->begin[v + 1] += s->begin[v];
        s->path[v] = s->begin[v];
        s->dual[v] = most;
    }
    for (edge = 0; edge < s->edges; edge++)
        for (int side = 0; side < 2; side++) {
            int32_t at = s->path[s->edge[edge].node[side]]++;
            s->around[at] = 2 * edge + 1 - side;
            s->beside[at] = s->edge[edge].node[1 - side];
            s->twice[at] = 2 * s->edge[edge].weight;
        }
}

static void *take(char **memory, size_t bytes)
{
    void *found = *memory;
    *memory += (bytes + 15) / 16 * 16;
    return found;
}

int matching_of(int32_t count, const int32_t *kind, int32_t kinds, const double *weight, int32_t *partner)
{
    struct search s = { .nodes = count, .all = 2 * count };
    size_t n = (size_t)count, all = 2 * n, edges = 0;
    for (size_t a = 0; a < n; a++) {
        partner[a] = -1;
        const double *row = weight + (size_t)kind[a] * (size_t)kinds;
        for (size_t b = a + 1; b < n; b++)
            edges += row[kind[b]] >= 1.0;
    }
    if (!edges)
        return 0;
    s.edges = (int32_t)edges;
    /* calloc, because most of the memory of the large tables is never used */
    char *memory = calloc(1, edges * (sizeof(struct edge) + 2 * (4 + 4 + 8) + 1) + n * n * 3 * 4 + n * 4 * 24 + all * 16 + 32 * 16);
    if (!memory)
        return -1;
    char *rest = memory;
    s.edge = take(&rest, edges * sizeof *s.edge);
    s.dual = take(&rest, all * sizeof *s.dual);
    s.lightness = take(&rest, all * sizeof *s.lightness);
    s.twice = take(&rest, 2 * edges * sizeof *s.twice);
    s.beside = take(&rest, 2 * edges * 4);
    s.around = take(&rest, 2 * edges * 4);
    s.tight = take(&rest, edges);
    s.begin = take(&rest, (n + 1) * 4);
    int32_t **per_node[] = { &s.mate, &s.inside, &s.unused, &s.queue, &s.leaves };
    for (size_t at = 0; at < sizeof per_node / sizeof *per_node; at++)
        *per_node[at] = take(&rest, n * 4);
    int32_t **per_blossom[] = { &s.label, &s.label_end, &s.parent, &s.base, &s.lightest, &s.child_count,
                                &s.list_count, &s.path, &s.to };
    for (size_t at = 0; at < sizeof per_blossom / sizeof *per_blossom; at++)
        *per_blossom[at] = take(&rest, all * 4);
    s.children = take(&rest, n * n * 4);
    s.joints = take(&rest, n * n * 4);
    s.lists = take(&rest, n * n * 4);
    read_edges(&s, kind, kinds, weight);
    for (int32_t b = 0; b < s.all; b++) {
        s.parent[b] = s.to[b] = -1;
        s.base[b] = b < count ? b : -1;
        if (b < count) {
            s.mate[b] = -1;
            s.inside[b] = b;
        } else {
            s.unused[s.unused_count++] = b;
        }
    }
    for (int32_t stage = 0; stage < count && augments(&s); stage++)
        ;
    for (int32_t v = 0; v < count; v++)
        partner[v] = s.mate[v] < 0 ? -1 : node_at(&s, s.mate[v]);
    free(memory);
    return 0;
}
