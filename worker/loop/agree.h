/* agree.h: the one exchange of each step in which all ranks tell all.
 *
 * Each rank gives the losses of its micro-batches, whether it was asked to stop, and the newest
 * snapshot its agent has written.  Every rank then holds the same rows and draws the same
 * conclusions, summing in the same order: global micro-batch order for losses.  This is what
 * makes stop, commit and failure decisions unanimous without a controller.
 */
#ifndef DS_LOOP_AGREE_H
#define DS_LOOP_AGREE_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct groups;

struct agree_in {
    bool stop;
    uint64_t written;
    const double *losses; /* [n_losses], looked at on the last stage */
    uint32_t n_losses;    /* the same on all ranks */
};
struct agree_out {
    bool stop; /* any */
    uint64_t written_min;
    double loss_sum; /* over all replicas' micro-batches, in global order */
};

int agree(struct groups *g, const struct agree_in *in, struct agree_out *ret, struct err *e);

#endif
