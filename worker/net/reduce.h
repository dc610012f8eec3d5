/* reduce.h: element i of dst = x_0[i] (+, max, min) x_1[i] ... x_{k-1}[i], in that order. */
#ifndef DS_NET_REDUCE_H
#define DS_NET_REDUCE_H

#include <stddef.h>

#include "common/base/dtype.h"
#include "worker/comm.h"

struct err;

/* ERR_PROTOCOL for types whose sums are not built (bf16, f16). */
int reduce_check(enum dtype t, enum comm_red r, struct err *e);
/* x[k] -> dst[n].  dst may be one of the x; no other overlap.  Sums of integers wrap; max and
 * min keep a NaN. */
void reduce_in_order(void *dst, const void *const *x, size_t k, size_t n, enum dtype t,
                     enum comm_red r);

#endif
