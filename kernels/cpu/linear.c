/* linear.c: matrix products through CBLAS, which is where the time goes.
 *
 * A weight gradient is made in panels of its rows.  With `accumulate` a panel is finished in
 * scratch and then added: a GEMM with beta = 1 would add its blocks of K in another order, and
 * a micro-batch's gradient would have other bits as the second one of a rank than as the first
 * one of another rank.  Both cases call the GEMM with the same panels.
 */
#include <assert.h>
#include <cblas.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"

enum { PANEL_FLOATS = 4 << 20 }; /* 16 MiB of scratch at most, unless one row is longer */

static int check(const char *op, const struct linear_args *a, struct err *e)
{
    int64_t sizes[] = {a->rows, a->in, a->out};
    return cpu_check_sizes(op, sizes, 3, e);
}

int linear_prepare(struct kern_cpu *c, const void *args, size_t *ret, struct err *e)
{
    (void)c;
    *ret = 0;
    return check("linear", args, e);
}

/* dw is [m, n] */
static int64_t panel_rows(int64_t m, int64_t n)
{
    int64_t rows = PANEL_FLOATS / n;
    return rows < 1 ? 1 : rows < m ? rows : m;
}

/* float dbias[out], panel[panel_rows, n] if accumulate */
int linear_bwd_weight_prepare(struct kern_cpu *c, const void *args, size_t *ret, struct err *e)
{
    (void)c;
    const struct linear_args *a = args;
    if (check("linear_bwd_weight", a, e) != 0)
        return -1;
    int64_t m = a->order == WEIGHT_OUT_IN ? a->out : a->in;
    int64_t n = a->order == WEIGHT_OUT_IN ? a->in : a->out;
    int64_t floats = scratch_floats(a->out) + (a->accumulate ? panel_rows(m, n) * n : 0);
    *ret = (size_t)floats * sizeof(float);
    return 0;
}

static enum CBLAS_TRANSPOSE trans(bool t)
{
    return t ? CblasTrans : CblasNoTrans;
}

/* C[m,n] = op(A) op(B), all row-major; lda and ldb are the row lengths as stored. */
static void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                 const float *b, int64_t ldb, float *c)
{
    cblas_sgemm(CblasRowMajor, trans(ta), trans(tb), (int)m, (int)n, (int)k, 1.0f, a, (int)lda,
                b, (int)ldb, 0.0f, c, (int)n);
}

void linear_fwd_cpu(struct kern *k, const struct linear_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    bool t = a->order == WEIGHT_OUT_IN;
    gemm(false, t, a->rows, a->out, a->in, a->x, a->in, a->w, t ? a->in : a->out, a->y);
    if (a->bias)
        for (int64_t r = 0; r < a->rows; r++)
            cpu_add_f32((float *)a->y + r * a->out, a->bias, a->out);
}

void linear_bwd_data_cpu(struct kern *k, const struct linear_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    bool t = a->order == WEIGHT_IN_OUT;
    gemm(false, t, a->rows, a->in, a->out, a->dy, a->out, a->w, t ? a->out : a->in, a->dx);
}

static void bias_bwd(const struct linear_args *a, float *sum)
{
    const float *dy = a->dy;
    memset(sum, 0, (size_t)a->out * sizeof(float));
    for (int64_t r = 0; r < a->rows; r++)
        cpu_add_f32(sum, dy + r * a->out, a->out);
    cpu_put_f32(a->dbias, sum, a->out, a->accumulate);
}

void linear_bwd_weight_cpu(struct kern *k, const struct linear_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    /* dw[m,n] = p[rows,m]^T q[rows,n] */
    bool out_in = a->order == WEIGHT_OUT_IN;
    const float *p = out_in ? a->dy : a->x, *q = out_in ? a->x : a->dy;
    int64_t m = out_in ? a->out : a->in, n = out_in ? a->in : a->out;
    float *panel = (float *)a->scratch + scratch_floats(a->out);
    int64_t step = panel_rows(m, n);
    for (int64_t i = 0; i < m; i += step) {
        int64_t rows = m - i < step ? m - i : step;
        float *dw = a->dw + i * n;
        gemm(true, false, rows, n, a->rows, p + i, m, q, n, a->accumulate ? panel : dw);
        if (a->accumulate)
            cpu_add_f32(dw, panel, rows * n);
    }
    if (a->dbias)
        bias_bwd(a, a->scratch);
}
