/* Maximum-weight matching of a graph with whole weights. */
#ifndef MATCHING_H
#define MATCHING_H

#include <stdint.h>

/* `weight` is a symmetric matrix, kinds x kinds, of whole numbers. Node u has the kind `kind[u]`. Two nodes u and v are
 * joined by an edge of weight weight[kind[u]][kind[v]] if this weight is above 0. Writes each node's partner into
 * `partner`; -1: no partner. Returns 0, or -1 if there is not enough memory. */
int matching_of(int32_t count, const int32_t *kind, int32_t kinds, const double *weight, int32_t *partner);

#endif
