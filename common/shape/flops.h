/* flops.h: model FLOPs, the base of mfu and of the balance of stages.
 *
 * Per token, forward and backward: 6 N_matmul + 6 L (heads head_dim) T, N_matmul = weights that
 * take part in a matrix product (the head counts, the embedding look-up does not), causal
 * attention counted as the half it is, recompute not counted.  Source: Narayanan et al. 2021
 * with the causal half; Llama 3 8B at T = 8192 gives 51.47 GFLOP per token.
 */
#ifndef DS_SHAPE_FLOPS_H
#define DS_SHAPE_FLOPS_H

struct spec;

double flops_per_token(const struct spec *s);       /* whole model, forward + backward */
double flops_layer_per_token(const struct spec *s); /* one layer */
double flops_head_per_token(const struct spec *s);  /* the output head */

#endif
