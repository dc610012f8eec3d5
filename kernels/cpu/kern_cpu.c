/* kern_cpu.c: the CPU's struct kern, the reference for every other back end.
 *
 * Ops run at once in the calling thread; `threads` is for the GEMM library alone.
 */
#include <assert.h>
#include <cblas.h>

#include "common/base/err.h"
#include "common/base/own.h"
#include "kernels/cpu/cpu_ops.h"

static const char *const op_names[KERN_OP_COUNT] = {
    [KERN_EMBED_FWD] = "embed_fwd",
    [KERN_EMBED_BWD] = "embed_bwd",
    [KERN_NORM_FWD] = "norm_fwd",
    [KERN_NORM_BWD] = "norm_bwd",
    [KERN_LINEAR_FWD] = "linear_fwd",
    [KERN_LINEAR_BWD_DATA] = "linear_bwd_data",
    [KERN_LINEAR_BWD_WEIGHT] = "linear_bwd_weight",
    [KERN_ROPE] = "rope",
    [KERN_ATTN_FWD] = "attn_fwd",
    [KERN_ATTN_BWD] = "attn_bwd",
    [KERN_ACT_FWD] = "act_fwd",
    [KERN_ACT_BWD] = "act_bwd",
    [KERN_XENT_MAX] = "xent_max",
    [KERN_XENT_SUM] = "xent_sum",
    [KERN_XENT_GRAD] = "xent_grad",
    [KERN_ADD] = "add",
    [KERN_SUMSQ] = "sumsq",
    [KERN_ADAMW] = "adamw",
};

/* An op that is not here needs nothing: no scratch, no table, any shape. */
static cpu_prepare_fn *const prepares[KERN_OP_COUNT] = {
    [KERN_EMBED_FWD] = embed_fwd_prepare,
    [KERN_EMBED_BWD] = embed_bwd_prepare,
    [KERN_NORM_FWD] = norm_fwd_prepare,
    [KERN_NORM_BWD] = norm_bwd_prepare,
    [KERN_LINEAR_FWD] = linear_prepare,
    [KERN_LINEAR_BWD_DATA] = linear_prepare,
    [KERN_LINEAR_BWD_WEIGHT] = linear_bwd_weight_prepare,
    [KERN_ROPE] = rope_prepare,
    [KERN_ATTN_FWD] = attn_fwd_prepare,
    [KERN_ATTN_BWD] = attn_bwd_prepare,
};

int cpu_check_sizes(const char *op, const int64_t *sizes, int n, struct err *e)
{
    for (int i = 0; i < n; i++)
        if (sizes[i] < 1 || sizes[i] > INT32_MAX)
            return err_set(e, ERR_SPEC, "%s: a size of %lld is not possible on cpu", op,
                           (long long)sizes[i]);
    return 0;
}

static bool cpu_supports(const struct kern *k, enum kern_op op, enum dtype dtype)
{
    (void)k;
    return (unsigned)op < KERN_OP_COUNT && dtype == DT_F32;
}

static int cpu_prepare(struct kern *k, enum kern_op op, const void *args,
                       size_t *ret_scratch_bytes, struct err *e)
{
    assert((unsigned)op < KERN_OP_COUNT);
    /* `dtype` is the first member of every op's struct but sumsq's, which is fp32. */
    enum dtype dtype = op == KERN_SUMSQ ? DT_F32 : *(const enum dtype *)args;
    if (!cpu_supports(k, op, dtype))
        return err_set(e, ERR_SPEC, "%s: no %s on cpu", op_names[op], dtype_name(dtype));
    size_t scratch_bytes = 0;
    if (prepares[op] && prepares[op](k->ctx, args, &scratch_bytes, e) != 0)
        return -1;
    *ret_scratch_bytes = scratch_bytes;
    return 0;
}

static void cpu_close(struct kern *k)
{
    struct kern_cpu *c = k->ctx;
    rope_tables_free(c->ropes);
    free(c);
}

struct kern *kern_cpu_open(uint32_t threads, struct err *e)
{
    if (threads < 1 || threads > 1024) {
        err_set(e, ERR_SPEC, "cpu: %u threads is not possible", threads);
        return NULL;
    }
    openblas_set_num_threads((int)threads);
    struct kern_cpu *c = xcalloc(1, sizeof(*c));
    c->kern = (struct kern){
        .name = "cpu",
        .ctx = c,
        .supports = cpu_supports,
        .prepare = cpu_prepare,
        .embed_fwd = embed_fwd_cpu,
        .embed_bwd = embed_bwd_cpu,
        .norm_fwd = norm_fwd_cpu,
        .norm_bwd = norm_bwd_cpu,
        .linear_fwd = linear_fwd_cpu,
        .linear_bwd_data = linear_bwd_data_cpu,
        .linear_bwd_weight = linear_bwd_weight_cpu,
        .rope = rope_cpu,
        .attn_fwd = attn_fwd_cpu,
        .attn_bwd = attn_bwd_cpu,
        .act_fwd = act_fwd_cpu,
        .act_bwd = act_bwd_cpu,
        .xent_max = xent_max_cpu,
        .xent_sum = xent_sum_cpu,
        .xent_grad = xent_grad_cpu,
        .add = add_cpu,
        .sumsq = sumsq_cpu,
        .adamw = adamw_cpu,
        .close = cpu_close,
    };
    return &c->kern;
}

void kern_close(struct kern *k)
{
    if (k)
        k->close(k);
}
