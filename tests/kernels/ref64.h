/* ref64.h: every op once more, in fp64 and as plainly as its formula.
 *
 * The shape comes from the op's own argument struct (its pointers are not read, but for ids and
 * targets); the tensors are fp64.  Backward functions write `=`.
 */
#ifndef DS_TESTS_KERNELS_REF64_H
#define DS_TESTS_KERNELS_REF64_H

#include "kernels/kernels.h"

void ref_embed_fwd(const struct embed_args *a, const double *table, const double *pos,
                   double *y);
void ref_embed_bwd(const struct embed_args *a, const double *dy, double *dtable, double *dpos);

/* bias, dbias may be NULL; s [rows, cols] is the summed input */
void ref_norm_fwd(const struct norm_args *a, const double *s, const double *gain,
                  const double *bias, double *y);
void ref_norm_bwd(const struct norm_args *a, const double *s, const double *gain,
                  const double *dy, const double *dsum, double *dx, double *dgain,
                  double *dbias);

void ref_linear_fwd(const struct linear_args *a, const double *x, const double *w,
                    const double *bias, double *y);
void ref_linear_bwd(const struct linear_args *a, const double *x, const double *w,
                    const double *dy, double *dx, double *dw, double *dbias);

void ref_rope(const struct rope_args *a, double *qkv);

void ref_attn_fwd(const struct attn_args *a, const double *qkv, double *out, double *lse);
void ref_attn_bwd(const struct attn_args *a, const double *qkv, const double *dout,
                  double *dqkv);

void ref_act_fwd(const struct act_args *a, const double *x, double *y);
void ref_act_bwd(const struct act_args *a, const double *x, const double *dy, double *dx);

/* Over the whole vocabulary: a->vocab columns of which vocab_valid count.  dlogits may be
 * NULL.  Returns the loss, not scaled. */
/* The loss has the z-loss in it, unless loss_only. */
double ref_xent(const struct xent_args *a, const double *logits, double *dlogits);

void ref_adamw(const struct adamw_args *a, double grad_scale, bool decay, int64_t n, double *p,
               double *m, double *v, const double *g);

#endif
