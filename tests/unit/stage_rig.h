/* stage_rig.h: whole tiny models in one process, for the tests of worker/model.
 *
 * A rig is one rank: its spec, table, plan, arena and stage.  The ranks of a tensor group are
 * threads that reduce through memory, in rank order, as comm.h demands of every transport.
 */
#ifndef DS_TESTS_STAGE_RIG_H
#define DS_TESTS_STAGE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/own.h"
#include "common/shape/memory.h"
#include "common/spec/spec.h"
#include "kernels/dev.h"
#include "kernels/kernels.h"
#include "worker/comm.h"
#include "worker/model/stage.h"

#define must(x)                                   \
    do {                                          \
        if (!(x))                                 \
            fail_msg("%s: %s", #x, rig_err.text); \
    } while (0)
static struct err rig_err;

/* The models of tests/fixtures: 2 layers, hidden 32, vocab 259, micro-batch 2 x 16. */
static inline struct spec tiny_spec(enum spec_arch arch)
{
    struct spec s = {0};
    s.model.arch = arch;
    s.model.layers = 2;
    s.model.hidden = 32;
    s.model.heads = 4;
    s.model.kv_heads = arch == ARCH_GPT2 ? 4 : 2;
    s.model.ffn = arch == ARCH_GPT2 ? 128 : 48;
    s.model.vocab = 259;
    s.model.max_positions = 20;
    s.model.tied = arch == ARCH_GPT2;
    s.model.rope_theta = 10000;
    s.model.norm_eps = 1e-5;
    s.parallel.data = s.parallel.tensor = s.parallel.pipeline = 1;
    s.train.steps = 1;
    s.train.batch = s.train.micro_batch = 2;
    s.train.seq_len = 16;
    s.train.seed = 11;
    return s;
}

/* What layouts are tried with: gpt2, llama, and llama with qwen2's biases. */
enum { TINY_MODELS = 3 };
static inline struct spec tiny_model(int i)
{
    struct spec s = tiny_spec(i == 0 ? ARCH_GPT2 : ARCH_LLAMA);
    s.model.qkv_bias = i != 1;
    return s;
}

/* A tensor group in memory. */
struct board {
    pthread_barrier_t barrier;
    uint32_t size;
    const void *posted[8];
};
struct mem_comm {
    struct comm c;
    struct board *board;
};

static inline void board_wait(struct board *b)
{
    (void)pthread_barrier_wait(&b->barrier);
}

/* out[n] = sum or maximum over members of posted[rank][at + i], fp32, in rank order. */
static inline void board_reduce(const struct board *b, size_t at, size_t n, enum comm_red r,
                                float *out)
{
    for (size_t i = 0; i < n; i++) {
        float v = ((const float *)b->posted[0])[at + i];
        for (uint32_t m = 1; m < b->size; m++) {
            float w = ((const float *)b->posted[m])[at + i];
            v = r == COMM_SUM ? v + w : v > w ? v : w;
        }
        out[i] = v;
    }
}

static inline int mem_reduce(struct comm *c, const void *send, size_t at, size_t n, void *recv,
                             enum comm_red r)
{
    struct board *b = ((struct mem_comm *)c)->board;
    AUTO_FREE float *sum = xmalloc(n * sizeof(*sum));
    b->posted[c->rank] = send;
    board_wait(b);
    board_reduce(b, at, n, r, sum);
    board_wait(b);
    memcpy(recv, sum, n * sizeof(*sum));
    return 0;
}

static inline int mem_all_reduce(struct comm *c, void *buf, size_t n, enum dtype t,
                                 enum comm_red r, struct dev_stream *s, struct err *e)
{
    (void)s, (void)e;
    assert_int_equal(t, DT_F32);
    return mem_reduce(c, buf, 0, n, buf, r);
}

static inline int mem_reduce_scatter(struct comm *c, const void *send, void *recv, size_t n,
                                     enum dtype t, enum comm_red r, struct dev_stream *s,
                                     struct err *e)
{
    (void)s, (void)e;
    assert_int_equal(t, DT_F32);
    return mem_reduce(c, send, c->rank * n, n, recv, r);
}

static inline int mem_all_gather(struct comm *c, const void *send, void *recv, size_t n,
                                 enum dtype t, struct dev_stream *s, struct err *e)
{
    struct board *b = ((struct mem_comm *)c)->board;
    size_t bytes = n * dtype_bytes(t);
    (void)s, (void)e;
    b->posted[c->rank] = send;
    board_wait(b);
    for (uint32_t m = 0; m < b->size; m++)
        memmove((char *)recv + m * bytes, b->posted[m], bytes);
    board_wait(b);
    return 0;
}

static const struct comm_ops mem_comm_ops = {
    .name = "memory",
    .all_reduce = mem_all_reduce,
    .reduce_scatter = mem_reduce_scatter,
    .all_gather = mem_all_gather,
};

/* One rank. */
struct rig {
    struct spec spec;
    struct params *params;
    struct sched *sched;
    struct mem_plan *mem;
    struct dev *dev;
    struct dev_stream *stream;
    struct kern *kern;
    void *arena;
    struct stage *stage;
    float *grads; /* MEM_GRAD */
};

/* n_micro > 1 gives more slots. */
static inline void rig_open(struct rig *r, const struct spec *s, struct coord c,
                            uint32_t n_micro, struct comm *tensor, struct comm *kv,
                            enum plant plant)
{
    *r = (struct rig){.spec = *s};
    r->params = params_new(&r->spec, c);
    r->sched = sched_new(SCHEDULE_GPIPE, s->parallel.pipeline, n_micro);
    r->mem = mem_plan_new(&r->spec, r->params, r->sched);
    must(r->dev = dev_cpu_open(&rig_err));
    must(r->stream = r->dev->stream_new(r->dev, &rig_err));
    must(r->kern = kern_cpu_open(1, &rig_err));
    must(!r->dev->alloc(r->dev, r->mem->arena_bytes, &r->arena, &rig_err));
    const struct stage_params p = {
        .spec = &r->spec,
        .params = r->params,
        .mem = r->mem,
        .kern = r->kern,
        .dev = r->dev,
        .stream = r->stream,
        .tensor = tensor,
        .kv = kv,
        .tp = c.tp,
        .plant = plant,
        .arena = r->arena,
    };
    must(r->stage = stage_new(&p, &rig_err));
    r->grads = (float *)((char *)r->arena + mem_plan_offset(r->mem, MEM_GRAD, -1, 0));
    must(!stage_init_weights(r->stage, &rig_err));
}

static inline void rig_close(struct rig *r)
{
    stage_free(r->stage);
    r->dev->free(r->dev, r->arena);
    r->dev->stream_free(r->dev, r->stream);
    kern_close(r->kern);
    dev_close(r->dev);
    mem_plan_free(r->mem);
    sched_free(r->sched);
    params_free(r->params);
}

/* Between an arena of the rank and whole logical tensors. */
enum copy_way { TO_RANK, FROM_RANK };
static inline void rig_copy(const struct rig *r, const struct piece *q, float *arena,
                            float *logical, enum copy_way way)
{
    const struct param *m = &r->params->params[q->param];
    float *at = arena + r->params->stores[q->store].offset + q->offset;
    for (int64_t i = 0; i < q->size[0]; i++) {
        float *a = at + i * q->stride;
        float *l = logical + (q->start[0] + i) * m->shape[1] + q->start[1];
        size_t bytes = (size_t)q->size[1] * sizeof(float);
        if (way == TO_RANK)
            memcpy(a, l, bytes);
        else
            memcpy(l, a, bytes);
    }
}

static inline double norm_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* ||a - b|| */
static inline double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

/* Every logical gradient of the model; a tied one is the sum of its two stores.  Owned by the
 * caller.  Adds what rig `r` owns. */
static inline float **model_grads_new(const struct params *p)
{
    float **g = xcalloc(p->n_params, sizeof(*g));
    for (size_t i = 0; i < p->n_params; i++)
        g[i] = xcalloc((size_t)(p->params[i].shape[0] * p->params[i].shape[1]), sizeof(float));
    return g;
}

static inline void model_grads_free(float **g, const struct params *p)
{
    for (size_t i = 0; i < p->n_params; i++)
        free(g[i]);
    free(g);
}

static inline void model_grads_add(float **g, const struct rig *r)
{
    for (size_t i = 0; i < r->params->n_pieces; i++) {
        const struct piece *q = &r->params->pieces[i];
        const struct param *m = &r->params->params[q->param];
        const struct store *s = &r->params->stores[q->store];
        if (!q->owner && !(m->tied && s->kind == STORE_HEAD))
            continue;
        for (int64_t row = 0; row < q->size[0]; row++) {
            const float *a = r->grads + s->offset + q->offset + row * q->stride;
            float *l = g[q->param] + (q->start[0] + row) * m->shape[1] + q->start[1];
            for (int64_t c = 0; c < q->size[1]; c++)
                l[c] += a[c];
        }
    }
}

#endif
