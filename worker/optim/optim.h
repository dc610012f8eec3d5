/* optim.h: learning rate, gradient norm and the weight update of one rank.
 *
 * The numbers that every rank must agree on to the bit (learning rate, bias corrections, norm,
 * clip factor) are computed in fp64 with + - * / and sqrt only, in the same order on every
 * rank.
 */
#ifndef DS_OPTIM_OPTIM_H
#define DS_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stdint.h>

struct comm;
struct dev_stream;
struct err;
struct kern;
struct params;
struct spec;

/* Of the step with this index (from 0).  Linear warm-up (step + 1) / warmup to peak, then
 *   constant      peak
 *   cosine        half a cosine from peak to min, which is the last step's
 *   linear        a line between the same two
 *   wsd           peak, and in the last lr.decay * steps steps a line to min (Hu et al. 2024)
 *   inverse-sqrt  peak * sqrt(warmup / (step + 1)), never below min (Vaswani et al. 2017)
 * All of it times batch / reference_batch, or its root, if lr.scale says so. */
double optim_lr(const struct spec *s, uint64_t step);

/* Global gradient norm: each store's sum of squares in fp64 (kernels.h, KERN_SUMSQ_BLOCK),
 * replicated and tied ones counted once, gathered over the tensor and pipeline groups (NULL:
 * size 1) and added in table order.  `local_only` is the planted bug PLANT_LOCAL_CLIP.
 * Collective. */
struct optim_norm {
    const struct spec *spec;
    const struct params *params;
    uint32_t tp;
    struct comm *tensor, *pipeline;
    bool local_only;
    double *sums;  /* MEM_NORM_SUMS: [1 + pipeline * tensor, n_stores_all] */
    void *scratch; /* of the ops, prepared by stage_new */
};
int optim_grad_norm(const struct optim_norm *o, struct kern *k, const float *grads,
                    struct dev_stream *stream, double *ret, struct err *e);

/* min(1, clip / (norm + 1e-6)), PyTorch's clip_grad_norm_; 1 if clip is 0. */
float optim_clip_factor(double clip, double norm);

/* One AdamW step over the rank's arenas; t from 1. */
struct optim_arenas { /* params->n_elements floats each, store offsets */
    float *weights, *grads, *exp_avg, *exp_avg_sq;
};
/* What AdamW reads on the device, in MEM_STEP_VALUES. */
struct optim_values {
    float grad_scale;
    int32_t skip;
};
void optim_step(const struct spec *s, const struct params *p, struct kern *k,
                const struct optim_arenas *a, double lr, uint64_t t,
                const struct optim_values *v, void *scratch, struct dev_stream *stream);

#endif
