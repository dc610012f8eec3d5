/* tensor.c: linears whose weight is split over the tensor group (Shoeybi et al. 2019; with rows
 * split between them, Korthikanti et al. 2022).
 *
 * A column-parallel linear needs all rows of its input and leaves its own columns of the
 * output; a row-parallel one takes those columns and leaves a summand of all rows.  Between
 * blocks the rows are either replicated (then the sum is an all-reduce) or split (then it is a
 * reduce-scatter, and the next column-parallel gathers).  The gathered input is not kept for
 * the backward, it is gathered again.
 */
#include "worker/comm.h"
#include "worker/model/stage_priv.h"

float *tensor_part(struct stage *st, float *y)
{
    return st->d.sequence ? st->full_out : y;
}

int tensor_reduce(struct stage *st, float *y, struct err *e)
{
    struct comm *c = st->p.tensor;
    size_t n = (size_t)(st->d.rows_local * st->d.hidden);

    if (st->t == 1)
        return 0;
    if (st->d.sequence)
        return c->ops->reduce_scatter(c, st->full_out, y, n, DT_F32, COMM_SUM, st->p.stream, e);
    return c->ops->all_reduce(c, y, n, DT_F32, COMM_SUM, st->p.stream, e);
}

int tensor_gather(struct stage *st, const float *x, float *full, const float **ret,
                  struct err *e)
{
    struct comm *c = st->p.tensor;
    size_t n = (size_t)(st->d.rows_local * st->d.hidden);

    *ret = x;
    if (!st->d.sequence)
        return 0;
    *ret = full;
    return c->ops->all_gather(c, x, full, n, DT_F32, st->p.stream, e);
}

static void fwd(struct stage *st, const struct linear_args *shape, const float *x,
                const float *w, const float *b, float *y)
{
    struct linear_args a = *shape;
    a.x = x;
    a.w = w;
    a.bias = b;
    a.y = y;
    a.scratch = st->scratch;
    st->p.kern->linear_fwd(st->p.kern, &a, st->p.stream);
}

static void bwd_data(struct stage *st, const struct linear_args *shape, const float *w,
                     const float *dy, float *dx)
{
    struct linear_args a = *shape;
    a.w = w;
    a.dy = dy;
    a.dx = dx;
    a.scratch = st->scratch;
    st->p.kern->linear_bwd_data(st->p.kern, &a, st->p.stream);
}

static void bwd_weight(struct stage *st, const struct linear_args *shape, const float *x,
                       const float *dy, float *dw, float *db)
{
    struct linear_args a = *shape;
    a.x = x;
    a.dy = dy;
    a.dw = dw;
    a.dbias = db;
    a.scratch = st->scratch;
    st->p.kern->linear_bwd_weight(st->p.kern, &a, st->p.stream);
}

int tensor_col_fwd(struct stage *st, const struct linear_args *a, const float *x,
                   const float *w, const float *b, float *y, struct err *e)
{
    if (tensor_gather(st, x, st->full_in, &x, e))
        return -1;
    fwd(st, a, x, w, b, y);
    return 0;
}

int tensor_col_bwd(struct stage *st, const struct linear_args *a, const float *x,
                   const float *w, const float *dy, float *dx, float *dw, float *db,
                   struct err *e)
{
    if (tensor_gather(st, x, st->full_in, &x, e))
        return -1;
    bwd_weight(st, a, x, dy, dw, db);
    bwd_data(st, a, w, dy, tensor_part(st, dx));
    return tensor_reduce(st, dx, e);
}

int tensor_row_fwd(struct stage *st, const struct linear_args *a, const float *x,
                   const float *w, const float *b, float *y, struct err *e)
{
    fwd(st, a, x, w, st->p.tp == 0 ? b : NULL, tensor_part(st, y));
    return tensor_reduce(st, y, e);
}

int tensor_row_bwd(struct stage *st, const struct linear_args *a, const float *x,
                   const float *w, const float *dy, float *dx, float *dw, float *db,
                   struct err *e)
{
    if (tensor_gather(st, dy, st->full_out, &dy, e))
        return -1;
    bwd_weight(st, a, x, dy, dw, db);
    bwd_data(st, a, w, dy, dx);
    return 0;
}
