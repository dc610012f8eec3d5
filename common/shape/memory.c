/* memory.c: the arena of a rank.
 *
 * One function says how large each buffer is; one loop lays them out in the order of enum
 * mem_id. All but the work buffers live for the whole run.  Work buffers live in phases of a
 * micro-batch (forward; backward of the head, of a feed-forward half, of an attention half):
 * two that share no phase may share bytes.
 */
#include "common/shape/memory.h"

#include <assert.h>

#include "common/spec/spec.h"

enum { PHASE_F = 1, PHASE_B_HEAD = 2, PHASE_B_FFN = 4, PHASE_B_ATT = 8 };
enum { PER_LAYER = 1, PER_SLOT = 2 };

static const struct {
    enum mem_class cls;
    unsigned per;
    unsigned phases; /* of work buffers */
} kinds[MEM_ID_COUNT] = {
    [MEM_WEIGHT] = {MEM_WEIGHTS, 0, 0},
    [MEM_GRAD] = {MEM_GRADS, 0, 0},
    [MEM_MICRO_GRAD] = {MEM_GRADS, 0, 0},
    [MEM_EXP_AVG] = {MEM_OPTIMIZER, 0, 0},
    [MEM_EXP_AVG_SQ] = {MEM_OPTIMIZER, 0, 0},
    [MEM_STEP_VALUES] = {MEM_OPTIMIZER, 0, 0},
    [MEM_NORM_SUMS] = {MEM_COMM, 0, 0},
    [MEM_RES1] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_STAT1] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_N1] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_QKV] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_ATT] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_LSE] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_RES2] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_STAT2] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_N2] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_UP] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_ACT] = {MEM_ACTIVATIONS, PER_LAYER | PER_SLOT, 0},
    [MEM_RESF] = {MEM_ACTIVATIONS, PER_SLOT, 0},
    [MEM_STATF] = {MEM_ACTIVATIONS, PER_SLOT, 0},
    [MEM_NF] = {MEM_ACTIVATIONS, PER_SLOT, 0},
    [MEM_LOGITS] = {MEM_ACTIVATIONS, PER_SLOT, 0},
    [MEM_ROW_VALUES] = {MEM_ACTIVATIONS, PER_SLOT, 0},
    [MEM_LOSS] = {MEM_ACTIVATIONS, PER_SLOT, 0},
    [MEM_IDS] = {MEM_INPUT, PER_SLOT, 0},
    [MEM_TARGETS] = {MEM_INPUT, PER_SLOT, 0},
    [MEM_ACT_OUT] = {MEM_COMM, PER_SLOT, 0},
    [MEM_GRAD_OUT] = {MEM_COMM, 0, 0},
    [MEM_GRAD_IN] = {MEM_COMM, 0, 0},
    [MEM_FULL_IN] = {MEM_COMM, 0, 0},
    [MEM_FULL_OUT] = {MEM_COMM, 0, 0},
    [MEM_NORM_GRADS] = {MEM_COMM, 0, 0},
    [MEM_DELTA] = {MEM_SCRATCH, 0, PHASE_F},
    [MEM_D_NORM] = {MEM_SCRATCH, 0, PHASE_B_HEAD | PHASE_B_FFN | PHASE_B_ATT},
    [MEM_D_ATT] = {MEM_SCRATCH, 0, PHASE_B_ATT},
    [MEM_D_QKV] = {MEM_SCRATCH, 0, PHASE_B_ATT},
    [MEM_D_ACT] = {MEM_SCRATCH, 0, PHASE_B_FFN},
    [MEM_KERN_SCRATCH] = {MEM_SCRATCH, 0, PHASE_F | PHASE_B_HEAD | PHASE_B_FFN | PHASE_B_ATT},
};

const char *mem_class_name(enum mem_class c)
{
    static const char *const names[MEM_CLASS_COUNT] = {
        [MEM_WEIGHTS] = "weights",     [MEM_GRADS] = "gradients",
        [MEM_OPTIMIZER] = "optimizer", [MEM_ACTIVATIONS] = "activations",
        [MEM_COMM] = "comm",           [MEM_INPUT] = "input",
        [MEM_SCRATCH] = "scratch",
    };
    return names[c];
}

struct mem_dims mem_dims_of(const struct spec *s, const struct params *p)
{
    int64_t t = s->parallel.tensor;
    bool gpt2 = s->model.arch == ARCH_GPT2;
    struct mem_dims d = {
        .rows = (int64_t)s->train.micro_batch * s->train.seq_len,
        .hidden = s->model.hidden,
        .head_dim = s->model.hidden / s->model.heads,
        .heads = s->model.heads / t,
        .kv_heads = s->model.kv_heads < t ? 1 : s->model.kv_heads / t,
        .ffn = s->model.ffn / t,
        .vocab = p->vocab_local,
        .sequence = s->parallel.sequence && t > 1,
        .first = p->stage == 0,
        .last = p->stage + 1 == s->parallel.pipeline,
    };
    d.rows_local = d.sequence ? d.rows / t : d.rows;
    d.att_cols = d.heads * d.head_dim;
    d.qkv_cols = (d.heads + 2 * d.kv_heads) * d.head_dim;
    d.up_cols = gpt2 ? d.ffn : 2 * d.ffn;
    d.norm_grads = d.sequence ? (2 * p->n_layers + d.last) * d.hidden * (gpt2 ? 2 : 1) : 0;
    return d;
}

/* What prepare of the ops may ask for at these sizes: a ceiling that a back end is held to at
 * stage_new, not its own formula.  Attention keeps some [seq_len, head_dim] of one head,
 * padded; sums over rows some of a row; the rest is tiles. */
static int64_t kern_scratch(const struct mem_dims *d, int64_t seq_len)
{
    int64_t attention = 10 * (seq_len + 64) * (d->head_dim + 16);
    int64_t sums = d->vocab + 4 * (d->rows + d->hidden + d->qkv_cols + d->up_cols);
    return ((int64_t)1 << 20) + (attention + sums) * (int64_t)sizeof(float);
}

/* Bytes of a buffer, 0 if this rank has none. */
static int64_t bytes_of(enum mem_id id, const struct mem_dims *d, const struct spec *s,
                        const struct params *p, const struct sched *sched)
{
    const int64_t f32 = sizeof(float), f64 = sizeof(double), i32 = sizeof(int32_t);
    const int64_t stats = s->model.arch == ARCH_GPT2 ? 2 : 1;
    const int64_t grid = (int64_t)s->parallel.pipeline * s->parallel.tensor;

    switch (id) {
    case MEM_WEIGHT:
    case MEM_GRAD:
    case MEM_EXP_AVG:
    case MEM_EXP_AVG_SQ:
        return p->n_elements * f32;
    case MEM_MICRO_GRAD:
        return sched->n_micro > 1 ? p->n_elements * f32 : 0;
    case MEM_STEP_VALUES:
        return MEM_STEP_VALUES_BYTES;
    case MEM_NORM_SUMS:
        return (1 + grid) * p->n_stores_all * f64;
    case MEM_RES1:
    case MEM_N1:
    case MEM_RES2:
    case MEM_N2:
    case MEM_GRAD_IN:
    case MEM_DELTA:
    case MEM_D_NORM:
        return d->rows_local * d->hidden * f32;
    case MEM_STAT1:
    case MEM_STAT2:
        return stats * d->rows_local * f32;
    case MEM_QKV:
    case MEM_D_QKV:
        return d->rows * d->qkv_cols * f32;
    case MEM_ATT:
    case MEM_D_ATT:
        return d->rows * d->att_cols * f32;
    case MEM_LSE:
        return d->rows * d->heads * f32;
    case MEM_UP:
        return d->rows * d->up_cols * f32;
    case MEM_ACT:
    case MEM_D_ACT:
        return d->rows * d->ffn * f32;
    case MEM_RESF:
    case MEM_NF:
        return d->last ? d->rows_local * d->hidden * f32 : 0;
    case MEM_STATF:
        return d->last ? stats * d->rows_local * f32 : 0;
    case MEM_LOGITS:
        return d->last ? d->rows * d->vocab * f32 : 0;
    case MEM_ROW_VALUES:
        return d->last ? 3 * d->rows * f32 : 0;
    case MEM_LOSS:
        return d->last ? f64 : 0;
    case MEM_IDS:
        return d->first ? d->rows * i32 : 0;
    case MEM_TARGETS:
        return d->last ? d->rows * i32 : 0;
    case MEM_ACT_OUT:
    case MEM_GRAD_OUT:
        return d->last ? 0 : d->rows_local * d->hidden * f32;
    case MEM_FULL_IN:
    case MEM_FULL_OUT:
        return d->sequence ? d->rows * d->hidden * f32 : 0;
    case MEM_NORM_GRADS:
        return d->norm_grads * f32;
    case MEM_KERN_SCRATCH:
        return kern_scratch(d, s->train.seq_len);
    case MEM_ID_COUNT:
        break;
    }
    assert(!"no such buffer");
    return 0;
}

/* Lowest place among the n work buffers laid out already where none is that lives in a phase of
 * `b`: only 0 and the ends of others can be lowest. */
static size_t work_place(const struct mem_buf *work, size_t n, const struct mem_buf *b)
{
    size_t best = SIZE_MAX;
    for (size_t c = 0; c <= n; c++) {
        size_t at = c < n ? work[c].offset + work[c].bytes : 0;
        bool clash = false;
        for (size_t i = 0; i < n && !clash; i++) {
            clash = (kinds[work[i].id].phases & kinds[b->id].phases) &&
                    at < work[i].offset + work[i].bytes && work[i].offset < at + b->bytes;
        }
        if (!clash && at < best)
            best = at;
    }
    return best;
}

/* No device has what does not fit into a size_t; so it stays the most that can be asked for. */
static size_t plus(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

struct mem_plan *mem_plan_new(const struct spec *s, const struct params *p,
                              const struct sched *sched)
{
    const struct mem_dims d = mem_dims_of(s, p);
    struct mem_plan *m = xcalloc(1, sizeof(*m));
    m->n_slots = sched->lanes[p->stage].n_slots;
    m->bufs = xcalloc((size_t)MEM_ID_COUNT * (p->n_layers + 1) * m->n_slots, sizeof(*m->bufs));

    size_t end = 0, work_bytes = 0, first_work = SIZE_MAX;
    for (uint32_t id = 0; id < MEM_ID_COUNT; id++) {
        uint32_t n_layers = kinds[id].per & PER_LAYER ? p->n_layers : 1;
        uint32_t n_slots = kinds[id].per & PER_SLOT ? m->n_slots : 1;
        m->of_id[id].first = m->n_bufs;
        m->of_id[id].n_layers = n_layers;
        for (uint32_t i = 0; i < n_layers * n_slots; i++) {
            int32_t layer = kinds[id].per & PER_LAYER ? (int32_t)(i % n_layers) : -1;
            int64_t bytes = bytes_of(id, &d, s, p, sched);
            if (!bytes)
                continue;
            struct mem_buf *b = &m->bufs[m->n_bufs];
            *b = (struct mem_buf){
                .cls = kinds[id].cls,
                .id = id,
                .layer = layer,
                .slot = i / n_layers,
                .bytes = ((size_t)bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN,
            };
            if (id == MEM_RES1 && layer == 0 && p->stage > 0)
                b->cls = MEM_COMM;
            if (kinds[id].phases) {
                if (first_work == SIZE_MAX)
                    first_work = m->n_bufs;
                b->offset = work_place(m->bufs + first_work, m->n_bufs - first_work, b);
                if (b->offset + b->bytes > work_bytes)
                    work_bytes = b->offset + b->bytes;
            } else {
                b->offset = end;
                end = plus(end, b->bytes);
                m->class_bytes[b->cls] = plus(m->class_bytes[b->cls], b->bytes);
            }
            m->n_bufs++;
        }
        m->of_id[id].n = m->n_bufs - m->of_id[id].first;
    }
    for (size_t i = first_work; i < m->n_bufs; i++)
        m->bufs[i].offset += end;
    m->class_bytes[MEM_SCRATCH] = work_bytes;
    m->arena_bytes = plus(end, work_bytes);
    return m;
}

void mem_plan_free(struct mem_plan *m)
{
    if (!m)
        return;
    free(m->bufs);
    free(m);
}

const struct mem_buf *mem_plan_buf(const struct mem_plan *m, uint32_t id, int32_t layer,
                                   uint32_t slot)
{
    assert(id < MEM_ID_COUNT);
    const uint32_t n_layers = m->of_id[id].n_layers;
    const bool per_layer = kinds[id].per & PER_LAYER;
    if (per_layer ? layer < 0 || (uint32_t)layer >= n_layers : layer != -1)
        return NULL;
    size_t at = (size_t)slot * n_layers + (per_layer ? (uint32_t)layer : 0);
    return at < m->of_id[id].n ? &m->bufs[m->of_id[id].first + at] : NULL;
}

size_t mem_plan_offset(const struct mem_plan *m, uint32_t id, int32_t layer, uint32_t slot)
{
    const struct mem_buf *b = mem_plan_buf(m, id, layer, slot);
    assert(b);
    return b->offset;
}
