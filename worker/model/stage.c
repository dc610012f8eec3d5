/* stage.c: one pipeline stage: its shapes, its pointers, and the order of its parts. */
#include "worker/model/stage.h"

#include <assert.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/spec/spec.h"
#include "kernels/dev.h"
#include "worker/comm.h"
#include "worker/model/stage_priv.h"

#define COPY_TIMEOUT_NS (60 * NS_PER_S)

static float *buf_at(struct stage *st, enum mem_id id, int32_t layer, uint32_t slot)
{
    const struct mem_buf *b = mem_plan_buf(st->p.mem, id, layer, slot);
    return b ? (float *)((char *)st->p.arena + b->offset) : NULL;
}

/* [mean,] rstd */
static void stat_at(struct stage *st, enum mem_id id, int32_t layer, uint32_t slot,
                    float **ret_mean, float **ret_rstd)
{
    float *at = buf_at(st, id, layer, slot);
    bool mean = st->norm.kind == NORM_LAYER;
    *ret_mean = at && mean ? at : NULL;
    *ret_rstd = at && mean ? at + st->d.rows_local : at;
}

static void take_slot(struct stage *st, uint32_t n)
{
    struct slot *s = &st->slots[n];
    s->layers = xcalloc(st->n_layers, sizeof(*s->layers));
    for (uint32_t i = 0; i < st->n_layers; i++) {
        struct slot_layer *l = &s->layers[i];
        int32_t layer = (int32_t)i;
        *l = (struct slot_layer){
            .res1 = buf_at(st, MEM_RES1, layer, n),
            .n1 = buf_at(st, MEM_N1, layer, n),
            .qkv = buf_at(st, MEM_QKV, layer, n),
            .att = buf_at(st, MEM_ATT, layer, n),
            .lse = buf_at(st, MEM_LSE, layer, n),
            .res2 = buf_at(st, MEM_RES2, layer, n),
            .n2 = buf_at(st, MEM_N2, layer, n),
            .up = buf_at(st, MEM_UP, layer, n),
            .act = buf_at(st, MEM_ACT, layer, n),
        };
        stat_at(st, MEM_STAT1, layer, n, &l->mean1, &l->rstd1);
        stat_at(st, MEM_STAT2, layer, n, &l->mean2, &l->rstd2);
    }
    s->ids = (int32_t *)buf_at(st, MEM_IDS, -1, n);
    s->targets = (int32_t *)buf_at(st, MEM_TARGETS, -1, n);
    s->resf = buf_at(st, MEM_RESF, -1, n);
    s->nf = buf_at(st, MEM_NF, -1, n);
    s->logits = buf_at(st, MEM_LOGITS, -1, n);
    s->loss = (double *)buf_at(st, MEM_LOSS, -1, n);
    s->act_out = buf_at(st, MEM_ACT_OUT, -1, n);
    stat_at(st, MEM_STATF, -1, n, &s->meanf, &s->rstdf);
    if (st->d.last) {
        s->row_max = buf_at(st, MEM_ROW_VALUES, -1, n);
        s->row_sum = s->row_max + st->d.rows;
        s->row_target = s->row_sum + st->d.rows;
    }
}

static void take_buffers(struct stage *st)
{
    st->weights = buf_at(st, MEM_WEIGHT, -1, 0);
    st->grad_in = buf_at(st, MEM_GRAD_IN, -1, 0);
    st->grad_out = buf_at(st, MEM_GRAD_OUT, -1, 0);
    st->full_in = buf_at(st, MEM_FULL_IN, -1, 0);
    st->full_out = buf_at(st, MEM_FULL_OUT, -1, 0);
    st->norm_grads = buf_at(st, MEM_NORM_GRADS, -1, 0);
    st->delta = buf_at(st, MEM_DELTA, -1, 0);
    st->d_norm = buf_at(st, MEM_D_NORM, -1, 0);
    st->d_att = buf_at(st, MEM_D_ATT, -1, 0);
    st->d_qkv = buf_at(st, MEM_D_QKV, -1, 0);
    st->d_act = buf_at(st, MEM_D_ACT, -1, 0);
    st->scratch = buf_at(st, MEM_KERN_SCRATCH, -1, 0);
    st->n_slots = st->p.mem->n_slots;
    st->slots = xcalloc(st->n_slots, sizeof(*st->slots));
    st->loss = xcalloc(st->n_slots, sizeof(*st->loss));
    for (uint32_t i = 0; i < st->n_slots; i++)
        take_slot(st, i);
}

static void take_stores(struct stage *st)
{
    const struct params *p = st->p.params;
    st->layers = xcalloc(st->n_layers, sizeof(*st->layers));
    memset(st->layers, -1, st->n_layers * sizeof(*st->layers));
    memset(&st->outer, -1, sizeof(st->outer));
    for (size_t i = 0; i < p->n_stores; i++) {
        const struct store *s = &p->stores[i];
        struct layer_at *l =
            s->layer < 0 ? &st->outer : &st->layers[(uint32_t)s->layer - p->layer0];
        l->at[s->kind] = s->offset;
    }
}

static void shape_ops(struct stage *st)
{
    const struct spec *s = st->p.spec;
    const struct mem_dims *d = &st->d;
    bool gpt2 = s->model.arch == ARCH_GPT2;
    const struct linear_args lin = {.dtype = DT_F32,
                                    .order = gpt2 ? WEIGHT_IN_OUT : WEIGHT_OUT_IN,
                                    .rows = d->rows,
                                    .in = d->hidden,
                                    .out = d->hidden};
    const int64_t seq_len = s->train.seq_len;

    st->qkv = st->proj = st->up = st->down = st->head = lin;
    st->qkv.out = d->qkv_cols;
    st->proj.in = d->att_cols;
    st->up.out = d->up_cols;
    st->down.in = d->ffn;
    st->head.out = d->vocab;
    st->head.order = WEIGHT_OUT_IN;
    st->norm = (struct norm_args){.dtype = DT_F32,
                                  .kind = gpt2 ? NORM_LAYER : NORM_RMS,
                                  .rows = d->rows_local,
                                  .cols = d->hidden,
                                  .eps = (float)s->model.norm_eps};
    st->embed = (struct embed_args){.dtype = DT_F32,
                                    .rows = d->rows,
                                    .hidden = d->hidden,
                                    .vocab = d->vocab,
                                    .v0 = st->p.params->vocab_start,
                                    .seq_len = seq_len};
    st->rope = (struct rope_args){.dtype = DT_F32,
                                  .rows = d->rows,
                                  .seq_len = gpt2 ? 0 : seq_len,
                                  .heads = d->heads,
                                  .kv_heads = d->kv_heads,
                                  .head_dim = d->head_dim,
                                  .theta = s->model.rope_theta};
    st->attn = (struct attn_args){.dtype = DT_F32,
                                  .batch = s->train.micro_batch,
                                  .seq_len = seq_len,
                                  .heads = d->heads,
                                  .kv_heads = d->kv_heads,
                                  .head_dim = d->head_dim};
    st->act = (struct act_args){
        .dtype = DT_F32, .kind = gpt2 ? ACT_GELU : ACT_SWIGLU, .rows = d->rows, .cols = d->ffn};
    st->xent = (struct xent_args){.dtype = DT_F32,
                                  .rows = d->rows,
                                  .vocab = d->vocab,
                                  .v0 = st->p.params->vocab_start,
                                  .vocab_valid = s->model.vocab,
                                  .z = (float)s->train.z_loss};
    if (st->p.plant == PLANT_PAD_VOCAB)
        st->xent.vocab_valid = INT64_MAX;
    st->add = (struct add_args){.dtype = DT_F32, .n = d->rows_local * d->hidden};
}

static int prepare(struct stage *st, enum kern_op op, const void *args, struct err *e)
{
    const size_t have = mem_plan_buf(st->p.mem, MEM_KERN_SCRATCH, -1, 0)->bytes;
    struct kern *k = st->p.kern;
    size_t need = 0;

    if (!k->supports(k, op, DT_F32))
        return err_set(e, ERR_SPEC, "kernels of %s: op %d is not there for fp32", k->name,
                       (int)op);
    if (k->prepare(k, op, args, &need, e))
        return -1;
    if (need > have)
        return err_set(e, ERR_MEMORY,
                       "kernels of %s: op %d asks for %zu bytes of scratch, the plan has %zu",
                       k->name, (int)op, need, have);
    return 0;
}

/* What runs over whole gradients: sums over micro-batches and of the tied table, norm, AdamW.
 */
static int prepare_gradient_ops(struct stage *st, struct err *e)
{
    const struct params *p = st->p.params;
    const struct add_args all = {.dtype = DT_F32, .n = p->n_elements};
    const struct adamw_args adamw = {.dtype = DT_F32, .n_segments = (int64_t)p->n_stores};

    if (prepare(st, KERN_ADD, &all, e) || prepare(st, KERN_ADAMW, &adamw, e))
        return -1;
    for (size_t i = 0; i < p->n_stores; i++) {
        const struct sumsq_args sumsq = {.n = p->stores[i].n};
        const struct add_args add = {.dtype = DT_F32, .n = p->stores[i].n};
        if (prepare(st, KERN_SUMSQ, &sumsq, e) || prepare(st, KERN_ADD, &add, e))
            return -1;
    }
    return 0;
}

static int prepare_ops(struct stage *st, struct err *e)
{
    const struct {
        enum kern_op op;
        const void *args;
        bool used;
    } ops[] = {
        {KERN_EMBED_FWD, &st->embed, st->d.first},
        {KERN_EMBED_BWD, &st->embed, st->d.first},
        {KERN_NORM_FWD, &st->norm, true},
        {KERN_NORM_BWD, &st->norm, true},
        {KERN_LINEAR_FWD, &st->qkv, true},
        {KERN_LINEAR_BWD_DATA, &st->qkv, true},
        {KERN_LINEAR_BWD_WEIGHT, &st->qkv, true},
        {KERN_LINEAR_FWD, &st->proj, true},
        {KERN_LINEAR_BWD_DATA, &st->proj, true},
        {KERN_LINEAR_BWD_WEIGHT, &st->proj, true},
        {KERN_LINEAR_FWD, &st->up, true},
        {KERN_LINEAR_BWD_DATA, &st->up, true},
        {KERN_LINEAR_BWD_WEIGHT, &st->up, true},
        {KERN_LINEAR_FWD, &st->down, true},
        {KERN_LINEAR_BWD_DATA, &st->down, true},
        {KERN_LINEAR_BWD_WEIGHT, &st->down, true},
        {KERN_LINEAR_FWD, &st->head, st->d.last},
        {KERN_LINEAR_BWD_DATA, &st->head, st->d.last},
        {KERN_LINEAR_BWD_WEIGHT, &st->head, st->d.last},
        {KERN_ROPE, &st->rope, st->rope.seq_len > 0},
        {KERN_ATTN_FWD, &st->attn, true},
        {KERN_ATTN_BWD, &st->attn, true},
        {KERN_ACT_FWD, &st->act, true},
        {KERN_ACT_BWD, &st->act, true},
        {KERN_XENT_MAX, &st->xent, st->d.last},
        {KERN_XENT_SUM, &st->xent, st->d.last},
        {KERN_XENT_GRAD, &st->xent, st->d.last},
        {KERN_ADD, &st->add, !st->d.last},
    };
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        if (ops[i].used && prepare(st, ops[i].op, ops[i].args, e))
            return -1;
    return prepare_gradient_ops(st, e);
}

struct stage *stage_new(const struct stage_params *p, struct err *e)
{
    AUTO(stage) struct stage *st = xcalloc(1, sizeof(*st));
    st->p = *p;
    st->d = mem_dims_of(p->spec, p->params);
    st->t = p->spec->parallel.tensor;
    st->n_layers = p->params->n_layers;
    assert(st->n_layers > 0);
    assert(st->t == 1 || (p->tensor && p->tensor->size == st->t));

    shape_ops(st);
    take_stores(st);
    take_buffers(st);
    if (prepare_ops(st, e))
        return NULL;
    return TAKE(st);
}

void stage_free(struct stage *st)
{
    if (!st)
        return;
    for (uint32_t i = 0; st->slots && i < st->n_slots; i++)
        free(st->slots[i].layers);
    free(st->slots);
    free(st->loss);
    free(st->layers);
    free(st);
}

void *stage_scratch(struct stage *st)
{
    return st->scratch;
}

float *stage_weights(struct stage *st)
{
    return st->weights;
}

void *stage_act_in(struct stage *st, uint32_t slot)
{
    assert(slot < st->n_slots && !st->d.first);
    return st->slots[slot].layers[0].res1;
}

void *stage_act_out(struct stage *st, uint32_t slot)
{
    assert(slot < st->n_slots && !st->d.last);
    return st->slots[slot].act_out;
}

void *stage_grad_in(struct stage *st)
{
    assert(!st->d.first);
    return st->grad_in;
}

void *stage_grad_out(struct stage *st)
{
    assert(!st->d.last);
    return st->grad_out;
}

int64_t stage_act_elements(const struct stage *st)
{
    return st->d.rows_local * st->d.hidden;
}

double stage_loss(const struct stage *st, uint32_t slot)
{
    assert(slot < st->n_slots && st->d.last);
    return st->loss[slot];
}

static int copy_input(struct stage *st, int32_t *dst, const int32_t *src, struct err *e)
{
    assert(src);
    return st->p.dev->copy_async(st->p.dev, dst, src, (size_t)st->d.rows * sizeof(int32_t),
                                 st->p.stream, e);
}

int stage_forward(struct stage *st, uint32_t slot, const int32_t *ids, const int32_t *targets,
                  struct err *e)
{
    assert(slot < st->n_slots);
    struct slot *s = &st->slots[slot];

    if (st->d.first && (copy_input(st, s->ids, ids, e) || embed_fwd(st, s, e)))
        return -1;
    if (st->d.last && copy_input(st, s->targets, targets, e))
        return -1;
    for (uint32_t i = 0; i < st->n_layers; i++) {
        bool to_next_stage = i + 1 == st->n_layers && !st->d.last;
        if (block_fwd(st, i, s, to_next_stage ? s->act_out : st->delta, e))
            return -1;
    }
    if (st->d.last)
        return head_fwd(st, s, e);

    /* The sum that the next stage's first norm would have fused. */
    struct add_args a = st->add;
    a.x = s->layers[st->n_layers - 1].res2;
    a.y = s->act_out;
    a.scratch = st->scratch;
    st->p.kern->add(st->p.kern, &a, st->p.stream);
    return 0;
}

int stage_backward(struct stage *st, uint32_t slot, float loss_scale_per_token, float *grads,
                   struct err *e)
{
    assert(slot < st->n_slots);
    struct slot *s = &st->slots[slot];

    if (st->d.last && head_bwd(st, s, loss_scale_per_token, grads, e))
        return -1;
    for (uint32_t i = st->n_layers; i-- > 0;) {
        const float *dout = i + 1 == st->n_layers && !st->d.last ? st->grad_out : st->grad_in;
        if (block_bwd(st, i, s, dout, grads, e))
            return -1;
    }
    if (st->d.first && embed_bwd(st, s, grads, e))
        return -1;
    return norm_reduce(st, grads, e);
}

static int copy_and_wait(struct stage *st, void *dst, const void *src, size_t bytes,
                         struct err *e)
{
    struct dev *d = st->p.dev;
    struct dev_event *done = d->event_new(d, e);
    if (!done)
        return -1;
    int rc = d->copy_async(d, dst, src, bytes, st->p.stream, e);
    if (!rc)
        rc = d->event_record(d, done, st->p.stream, e);
    if (!rc)
        rc = d->event_wait(d, done, clock_now_ns() + COPY_TIMEOUT_NS, e);
    d->event_free(d, done);
    return rc;
}

int stage_logits(struct stage *st, uint32_t slot, int64_t row, float *ret, struct err *e)
{
    assert(slot < st->n_slots && st->d.last && row >= 0 && row < st->d.rows);
    return copy_and_wait(st, ret, st->slots[slot].logits + row * st->d.vocab,
                         (size_t)st->d.vocab * sizeof(*ret), e);
}

int stage_init_weights(struct stage *st, struct err *e)
{
    const struct params *p = st->p.params;
    size_t bytes = (size_t)p->n_elements * sizeof(float);
    void *host = NULL;

    if (st->p.dev->host_memory) {
        init_pieces(p, st->p.spec->train.seed, st->weights);
        return 0;
    }
    if (st->p.dev->host_alloc(st->p.dev, bytes, &host, e))
        return -1;
    init_pieces(p, st->p.spec->train.seed, host);
    int rc = copy_and_wait(st, st->weights, host, bytes, e);
    st->p.dev->host_free(st->p.dev, host);
    return rc;
}
