/* Maximum-weight matching of a graph with whole weights. */
#ifndef MATCHING_H
#define MATCHING_H

#include <stdint.h>

/* `weight` is kinds x kinds, symmetric, with whole numbers; node u is of kind `kind[u]`, and an edge u < v weighs
 * weight[kind[u]][kind[v]] if that is above 0. `partner` gets each node's partner, -1 for none. Returns 0, or -1 if
 * there is no memory. */
int matching_of(int32_t count, const int32_t *kind, int32_t kinds, const double *weight, int32_t *partner);

#endif
