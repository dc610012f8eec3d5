/* embed.c: token and position embedding.
 *
 * Backward finishes a row's gradient in scratch and then writes or adds it, so that a
 * micro-batch's contribution has the same bits whether it is the first or a later one.
 */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"

static int check(const char *op, const struct embed_args *a, struct err *e)
{
    int64_t sizes[] = {a->rows, a->hidden, a->vocab, a->seq_len};
    return cpu_check_sizes(op, sizes, 4, e);
}

int embed_fwd_prepare(struct kern_cpu *c, const void *args, size_t *ret, struct err *e)
{
    (void)c;
    *ret = 0;
    return check("embed_fwd", args, e);
}

/* int32 first[vocab], next[rows]: the rows of each id, ascending; float sum[hidden] */
int embed_bwd_prepare(struct kern_cpu *c, const void *args, size_t *ret, struct err *e)
{
    (void)c;
    const struct embed_args *a = args;
    int64_t n = scratch_floats(a->vocab) + scratch_floats(a->rows) + scratch_floats(a->hidden);
    *ret = (size_t)n * sizeof(float);
    return check("embed_bwd", a, e);
}

void embed_fwd_cpu(struct kern *k, const struct embed_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    const float *table = a->table, *pos = a->pos;
    size_t row_bytes = (size_t)a->hidden * sizeof(float);
    for (int64_t r = 0; r < a->rows; r++) {
        float *y = (float *)a->y + r * a->hidden;
        int64_t id = a->ids[r] - a->v0;
        if (id >= 0 && id < a->vocab)
            memcpy(y, table + id * a->hidden, row_bytes);
        else
            memset(y, 0, row_bytes);
        if (pos)
            cpu_add_f32(y, pos + (a->row0 + r) % a->seq_len * a->hidden, a->hidden);
    }
}

static void table_bwd(const struct embed_args *a, int32_t *first, int32_t *next, float *sum)
{
    const float *dy = a->dy;
    size_t row_bytes = (size_t)a->hidden * sizeof(float);
    for (int64_t v = 0; v < a->vocab; v++)
        first[v] = -1;
    for (int64_t r = a->rows - 1; r >= 0; r--) {
        int64_t id = a->ids[r] - a->v0;
        if (id < 0 || id >= a->vocab)
            continue;
        next[r] = first[id];
        first[id] = (int32_t)r;
    }
    for (int64_t v = 0; v < a->vocab; v++) {
        float *out = a->dtable + v * a->hidden;
        if (first[v] < 0) {
            if (!a->accumulate)
                memset(out, 0, row_bytes);
            continue;
        }
        memset(sum, 0, row_bytes);
        for (int32_t r = first[v]; r >= 0; r = next[r])
            cpu_add_f32(sum, dy + r * a->hidden, a->hidden);
        cpu_put_f32(out, sum, a->hidden, a->accumulate);
    }
}

static void pos_bwd(const struct embed_args *a, float *sum)
{
    const float *dy = a->dy;
    size_t row_bytes = (size_t)a->hidden * sizeof(float);
    for (int64_t p = 0; p < a->seq_len; p++) {
        int64_t r = (p - a->row0 % a->seq_len + a->seq_len) % a->seq_len;
        memset(sum, 0, row_bytes);
        for (; r < a->rows; r += a->seq_len)
            cpu_add_f32(sum, dy + r * a->hidden, a->hidden);
        cpu_put_f32(a->dpos + p * a->hidden, sum, a->hidden, a->accumulate);
    }
}

void embed_bwd_cpu(struct kern *k, const struct embed_args *a, struct dev_stream *s)
{
    (void)k, (void)s;
    assert(a->dtype == DT_F32);
    int32_t *first = a->scratch;
    int32_t *next = first + scratch_floats(a->vocab);
    float *sum = (float *)(next + scratch_floats(a->rows));
    if (a->dtable)
        table_bwd(a, first, next, sum);
    if (a->dpos)
        pos_bwd(a, sum);
}
