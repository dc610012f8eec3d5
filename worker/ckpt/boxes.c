#include "worker/ckpt/boxes.h"

#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"

static const char *const suffix[CKPT_KIND_COUNT] = {"", ".exp_avg", ".exp_avg_sq"};

struct boxes *boxes_new(const struct spec *s, const struct params *p, uint32_t dp)
{
    struct boxes *b = xcalloc(1, sizeof *b);
    b->box = xcalloc(p->n_pieces * CKPT_KIND_COUNT, sizeof *b->box);
    uint32_t owned = 0;
    for (uint32_t i = 0; i < p->n_pieces; i++) {
        const struct piece *q = &p->pieces[i];
        if (!q->owner || owned++ % s->parallel.data != dp)
            continue;
        uint64_t bytes = (uint64_t)(q->size[0] * q->size[1]) * sizeof(float);
        for (enum ckpt_kind k = 0; k < CKPT_KIND_COUNT; k++) {
            b->box[b->n++] = (struct box){i, k, b->bytes, b->bytes + bytes};
            b->bytes += bytes;
        }
    }
    return b;
}

void boxes_free(struct boxes *b)
{
    if (!b)
        return;
    free(b->box);
    free(b);
}

void boxes_tensor_name(const struct params *p, uint32_t param, enum ckpt_kind kind, char *ret)
{
    (void)snprintf(ret, 128, "%s%s", p->params[param].name, suffix[kind]);
}

void boxes_header(const struct boxes *b, const struct params *p, struct buf *out)
{
    char name[128];
    uint64_t len = 0;
    (void)buf_add(out, &len, sizeof len);
    (void)buf_puts(out, "{\"__metadata__\":{\"format\":\"dslaunch\"}");
    for (size_t i = 0; i < b->n; i++) {
        const struct box *x = &b->box[i];
        const struct piece *q = &p->pieces[x->piece];
        boxes_tensor_name(p, q->param, x->kind, name);
        (void)buf_printf(out, ",\"%s@%lld,%lld\":{\"dtype\":\"F32\",\"shape\":[%lld", name,
                         (long long)q->start[0], (long long)q->start[1], (long long)q->size[0]);
        if (p->params[q->param].ndim == 2)
            (void)buf_printf(out, ",%lld", (long long)q->size[1]);
        (void)buf_printf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)x->begin,
                         (unsigned long long)x->end);
    }
    (void)buf_puts(out, "}");
    while (out->len % 8)
        (void)buf_puts(out, " ");
    len = out->len - sizeof len;
    for (unsigned i = 0; i < sizeof len; i++)
        out->data[i] = (char)(len >> (8 * i));
}

void boxes_pack(const struct piece *q, const float *store, float *dense)
{
    for (int64_t r = 0; r < q->size[0]; r++)
        memcpy(dense + r * q->size[1], store + q->offset + r * q->stride,
               (size_t)q->size[1] * sizeof *dense);
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t boxes_unpack(const struct piece *q, float *store, const int64_t start[2],
                     const int64_t size[2], const float *dense)
{
    int64_t lo[2], hi[2];
    for (int d = 0; d < 2; d++) {
        lo[d] = max64(q->start[d], start[d]);
        hi[d] = min64(q->start[d] + q->size[d], start[d] + size[d]);
        if (lo[d] >= hi[d])
            return 0;
    }
    for (int64_t r = lo[0]; r < hi[0]; r++)
        memcpy(store + q->offset + (r - q->start[0]) * q->stride + (lo[1] - q->start[1]),
               dense + (r - start[0]) * size[1] + (lo[1] - start[1]),
               (size_t)(hi[1] - lo[1]) * sizeof *dense);
    return (hi[0] - lo[0]) * (hi[1] - lo[1]);
}
