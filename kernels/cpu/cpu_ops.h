/* cpu_ops.h: what the files of the CPU back end share.
 *
 * One file per family of ops, all fp32 today: kern_cpu.c is the table that says which op is
 * where, and which types it takes.  A further type adds its loops beside the fp32 ones of a
 * file and its entry to `supports`.
 */
#ifndef DS_KERNELS_CPU_CPU_OPS_H
#define DS_KERNELS_CPU_CPU_OPS_H

#include "kernels/kernels.h"

struct rope_table;

struct kern_cpu {
    struct kern kern;
    struct rope_table *ropes; /* made by prepare, found by rope */
};

/* Scratch is cut in pieces of whole cache lines. */
static inline int64_t scratch_floats(int64_t n)
{
    return (n + 15) / 16 * 16;
}

/* Checks the shape and says how many bytes of scratch a run needs. */
typedef int cpu_prepare_fn(struct kern_cpu *c, const void *args, size_t *ret_scratch_bytes,
                           struct err *e);
cpu_prepare_fn embed_fwd_prepare, embed_bwd_prepare, norm_fwd_prepare, norm_bwd_prepare,
    linear_prepare, linear_bwd_weight_prepare, rope_prepare, attn_fwd_prepare, attn_bwd_prepare;

/* ERR_SPEC that names the op unless all of the n sizes are in 1..INT32_MAX. */
int cpu_check_sizes(const char *op, const int64_t *sizes, int n, struct err *e);

void embed_fwd_cpu(struct kern *k, const struct embed_args *a, struct dev_stream *s);
void embed_bwd_cpu(struct kern *k, const struct embed_args *a, struct dev_stream *s);
void norm_fwd_cpu(struct kern *k, const struct norm_args *a, struct dev_stream *s);
void norm_bwd_cpu(struct kern *k, const struct norm_args *a, struct dev_stream *s);
void linear_fwd_cpu(struct kern *k, const struct linear_args *a, struct dev_stream *s);
void linear_bwd_data_cpu(struct kern *k, const struct linear_args *a, struct dev_stream *s);
void linear_bwd_weight_cpu(struct kern *k, const struct linear_args *a, struct dev_stream *s);
void rope_cpu(struct kern *k, const struct rope_args *a, struct dev_stream *s);
void attn_fwd_cpu(struct kern *k, const struct attn_args *a, struct dev_stream *s);
void attn_bwd_cpu(struct kern *k, const struct attn_args *a, struct dev_stream *s);
void act_fwd_cpu(struct kern *k, const struct act_args *a, struct dev_stream *s);
void act_bwd_cpu(struct kern *k, const struct act_args *a, struct dev_stream *s);
void xent_max_cpu(struct kern *k, const struct xent_args *a, struct dev_stream *s);
void xent_sum_cpu(struct kern *k, const struct xent_args *a, struct dev_stream *s);
void xent_grad_cpu(struct kern *k, const struct xent_args *a, struct dev_stream *s);
void add_cpu(struct kern *k, const struct add_args *a, struct dev_stream *s);
void sumsq_cpu(struct kern *k, const struct sumsq_args *a, struct dev_stream *s);
void adamw_cpu(struct kern *k, const struct adamw_args *a, struct dev_stream *s);

/* y[n] += x[n] */
void cpu_add_f32(float *restrict y, const float *restrict x, int64_t n);
/* out[n] = or += sum[n]: a gradient that was finished in scratch goes where it belongs. */
void cpu_put_f32(float *restrict out, const float *restrict sum, int64_t n, bool accumulate);

void rope_tables_free(struct rope_table *t);

#endif
