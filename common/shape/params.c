/* params.c: the parameter table.
 *
 * Each architecture is a table of rows: a tensor, the store it lies in, its dimensions and how
 * the tensor group splits it.  One loop walks embedding rows, layer rows once per layer, and
 * output rows; that walk is the table order of everything: params, stores, pieces.  Rows in a
 * row that name the same store are stacked in it (k over v, gate over up).
 */
#include "common/shape/params.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "common/shape/flops.h"
#include "common/spec/spec.h"

enum dim { DIM_ONE, DIM_HIDDEN, DIM_QKV, DIM_HEADS, DIM_KV, DIM_FFN, DIM_VOCAB, DIM_POSITIONS };
enum split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLS };

struct row {
    enum store_kind store;
    const char *name;
    enum dim rows, cols; /* cols DIM_ONE: a vector */
    enum split split;
    enum param_init init;
    bool residual; /* writes to the residual stream: smaller initial weights */
};

struct arch {
    const char *layer_prefix;
    const struct row *in, *layer, *out; /* each ended by a NULL name */
};

static const struct row gpt2_in[] = {
    {STORE_EMBED, "transformer.wte.weight", DIM_VOCAB, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 0},
    {STORE_POSITION, "transformer.wpe.weight", DIM_POSITIONS, DIM_HIDDEN, SPLIT_NONE,
     INIT_NORMAL, 0},
    {0},
};
static const struct row gpt2_layer[] = {
    {STORE_NORM1_GAIN, "ln_1.weight", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ONE, 0},
    {STORE_NORM1_BIAS, "ln_1.bias", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ZERO, 0},
    {STORE_QKV_W, "attn.c_attn.weight", DIM_HIDDEN, DIM_QKV, SPLIT_COLS, INIT_NORMAL, 0},
    {STORE_QKV_B, "attn.c_attn.bias", DIM_QKV, DIM_ONE, SPLIT_ROWS, INIT_ZERO, 0},
    {STORE_PROJ_W, "attn.c_proj.weight", DIM_HEADS, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 1},
    {STORE_PROJ_B, "attn.c_proj.bias", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ZERO, 0},
    {STORE_NORM2_GAIN, "ln_2.weight", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ONE, 0},
    {STORE_NORM2_BIAS, "ln_2.bias", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ZERO, 0},
    {STORE_UP_W, "mlp.c_fc.weight", DIM_HIDDEN, DIM_FFN, SPLIT_COLS, INIT_NORMAL, 0},
    {STORE_UP_B, "mlp.c_fc.bias", DIM_FFN, DIM_ONE, SPLIT_ROWS, INIT_ZERO, 0},
    {STORE_DOWN_W, "mlp.c_proj.weight", DIM_FFN, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 1},
    {STORE_DOWN_B, "mlp.c_proj.bias", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ZERO, 0},
    {0},
};
static const struct row gpt2_out[] = {
    {STORE_NORMF_GAIN, "transformer.ln_f.weight", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ONE, 0},
    {STORE_NORMF_BIAS, "transformer.ln_f.bias", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ZERO, 0},
    {STORE_HEAD, "lm_head.weight", DIM_VOCAB, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 0},
    {0},
};

static const struct row llama_in[] = {
    {STORE_EMBED, "model.embed_tokens.weight", DIM_VOCAB, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL,
     0},
    {0},
};
static const struct row llama_layer[] = {
    {STORE_NORM1_GAIN, "input_layernorm.weight", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ONE, 0},
    {STORE_Q_W, "self_attn.q_proj.weight", DIM_HEADS, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 0},
    {STORE_KV_W, "self_attn.k_proj.weight", DIM_KV, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 0},
    {STORE_KV_W, "self_attn.v_proj.weight", DIM_KV, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 0},
    {STORE_Q_B, "self_attn.q_proj.bias", DIM_HEADS, DIM_ONE, SPLIT_ROWS, INIT_ZERO, 0},
    {STORE_KV_B, "self_attn.k_proj.bias", DIM_KV, DIM_ONE, SPLIT_ROWS, INIT_ZERO, 0},
    {STORE_KV_B, "self_attn.v_proj.bias", DIM_KV, DIM_ONE, SPLIT_ROWS, INIT_ZERO, 0},
    {STORE_PROJ_W, "self_attn.o_proj.weight", DIM_HIDDEN, DIM_HEADS, SPLIT_COLS, INIT_NORMAL,
     1},
    {STORE_NORM2_GAIN, "post_attention_layernorm.weight", DIM_HIDDEN, DIM_ONE, SPLIT_NONE,
     INIT_ONE, 0},
    {STORE_UP_W, "mlp.gate_proj.weight", DIM_FFN, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 0},
    {STORE_UP_W, "mlp.up_proj.weight", DIM_FFN, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 0},
    {STORE_DOWN_W, "mlp.down_proj.weight", DIM_HIDDEN, DIM_FFN, SPLIT_COLS, INIT_NORMAL, 1},
    {0},
};
static const struct row llama_out[] = {
    {STORE_NORMF_GAIN, "model.norm.weight", DIM_HIDDEN, DIM_ONE, SPLIT_NONE, INIT_ONE, 0},
    {STORE_HEAD, "lm_head.weight", DIM_VOCAB, DIM_HIDDEN, SPLIT_ROWS, INIT_NORMAL, 0},
    {0},
};

static const struct arch archs[] = {
    [ARCH_GPT2] = {"transformer.h.", gpt2_in, gpt2_layer, gpt2_out},
    [ARCH_LLAMA] = {"model.layers.", llama_in, llama_layer, llama_out},
};

static int64_t dim_size(const struct spec *s, enum dim d)
{
    const int64_t hidden = s->model.hidden;
    switch (d) {
    case DIM_ONE:
        return 1;
    case DIM_HIDDEN:
    case DIM_HEADS: /* heads * head_dim */
        return hidden;
    case DIM_QKV:
        return 3 * hidden;
    case DIM_KV:
        return hidden / s->model.heads * s->model.kv_heads;
    case DIM_FFN:
        return s->model.ffn;
    case DIM_VOCAB:
        return s->model.vocab;
    case DIM_POSITIONS:
        return s->model.max_positions;
    }
    assert(!"no such dimension");
    return 0;
}

/* What a rank has of a dimension: `parts` runs of `size` from `start`, `whole / parts` apart in
 * the tensor and `room` apart in the store. */
struct span {
    int64_t start, size, room;
    uint32_t parts;
};

static struct span span_of(const struct spec *s, enum dim d, bool split, uint32_t tp)
{
    const int64_t whole = dim_size(s, d), tensor = split ? s->parallel.tensor : 1;
    struct span x = {0, whole, whole, 1};
    if (tensor == 1)
        return x;
    if (d == DIM_QKV)
        x.parts = 3;
    if (d == DIM_KV && tensor > s->model.kv_heads) {
        x.room = x.size = whole / s->model.kv_heads;
        x.start = tp / (tensor / s->model.kv_heads) * x.size;
    } else if (d == DIM_VOCAB) { /* padded; the last ranks may hold less, or padding alone */
        x.room = (whole + tensor - 1) / tensor;
        x.start = tp * x.room < whole ? tp * x.room : whole;
        x.size = whole - x.start < x.room ? whole - x.start : x.room;
    } else {
        x.room = x.size = whole / x.parts / tensor;
        x.start = tp * x.size;
    }
    return x;
}

struct builder {
    const struct spec *s;
    struct params *p;
    struct coord at;
    int64_t end;          /* of the last local store, not rounded up */
    const struct row *on; /* row before, if of the same layer */
};

static uint32_t add_param(struct builder *b, const struct row *r, int32_t layer)
{
    const struct spec *s = b->s;
    struct params *p = b->p;
    if (r->store == STORE_HEAD && s->model.tied) {
        p->params[0].tied = true;
        return 0;
    }
    struct param *m = &p->params[p->n_params];
    if (layer < 0)
        (void)snprintf(m->name, sizeof(m->name), "%s", r->name);
    else
        (void)snprintf(m->name, sizeof(m->name), "%s%d.%s", archs[s->model.arch].layer_prefix,
                       layer, r->name);
    m->ndim = r->cols == DIM_ONE ? 1 : 2;
    m->shape[0] = dim_size(s, r->rows);
    m->shape[1] = dim_size(s, r->cols);
    m->init = r->init;
    m->std = r->residual ? 0.02 / sqrt(2.0 * s->model.layers) : 0.02;
    m->decay = m->ndim == 2;
    return (uint32_t)p->n_params++;
}

static enum store_share share_of(const struct spec *s, const struct row *r)
{
    if (r->split == SPLIT_NONE)
        return SHARE_TENSOR;
    return r->rows == DIM_KV && s->parallel.tensor > s->model.kv_heads ? SHARE_KV : SHARE_NONE;
}

/* Is this rank the first of the tensor group that holds these values? */
static bool first_holder(const struct spec *s, enum store_share share, uint32_t tp)
{
    switch (share) {
    case SHARE_NONE:
        return true;
    case SHARE_TENSOR:
        return tp == 0;
    case SHARE_KV:
        return tp % (s->parallel.tensor / s->model.kv_heads) == 0;
    }
    assert(!"no such share");
    return false;
}

/* The row's part of the current store: a store begins, or grows by the row's rows. */
static void add_pieces(struct builder *b, const struct row *r, uint32_t param, int32_t layer)
{
    struct params *p = b->p;
    const struct span rows = span_of(b->s, r->rows, r->split == SPLIT_ROWS, b->at.tp);
    const struct span cols = span_of(b->s, r->cols, r->split == SPLIT_COLS, b->at.tp);
    const int64_t width = cols.parts * cols.room;

    if (!b->on || b->on->store != r->store) {
        const int64_t block = PARAMS_BLOCK;
        const int64_t round = r->store == STORE_KV_W || r->store == STORE_KV_B ? 1 : block;
        p->stores[p->n_stores++] = (struct store){
            .kind = r->store,
            .layer = layer,
            .index = p->n_stores_all,
            .cols = width,
            .offset = (b->end + round - 1) / round * round,
            .share = share_of(b->s, r),
            .decay = r->cols != DIM_ONE,
        };
    }
    struct store *st = &p->stores[p->n_stores - 1];
    const int64_t above = st->n;
    st->rows += rows.parts * rows.room;
    st->n = st->rows * st->cols;
    b->end = st->offset + st->n;

    const bool copy = r->store == STORE_HEAD && b->s->model.tied;
    for (uint32_t i = 0; i < rows.parts && rows.size; i++) {
        for (uint32_t j = 0; j < cols.parts; j++) {
            p->pieces[p->n_pieces++] = (struct piece){
                .param = param,
                .store = (uint32_t)p->n_stores - 1,
                .start = {i * (dim_size(b->s, r->rows) / rows.parts) + rows.start,
                          j * (dim_size(b->s, r->cols) / cols.parts) + cols.start},
                .size = {rows.size, cols.size},
                .offset = above + i * rows.room * width + j * cols.room,
                .stride = width,
                .owner = !copy && first_holder(b->s, st->share, b->at.tp),
            };
        }
    }
}

static bool in_model(const struct spec *s, const struct row *r)
{
    return s->model.qkv_bias || (r->store != STORE_Q_B && r->store != STORE_KV_B);
}

static void add_rows(struct builder *b, const struct row *rows, int32_t layer, bool here)
{
    b->on = NULL;
    for (const struct row *r = rows; r->name; r++) {
        if (!in_model(b->s, r))
            continue;
        uint32_t param = add_param(b, r, layer);
        if (here)
            add_pieces(b, r, param, layer);
        if (r[1].store != r->store || !r[1].name)
            b->p->n_stores_all++;
        b->on = r;
    }
}

struct params *params_new(const struct spec *s, struct coord c)
{
    enum { ROWS_MAX = 16, PARTS_MAX = 3 };
    const struct arch *a = &archs[s->model.arch];
    const size_t rows_max = ROWS_MAX * ((size_t)s->model.layers + 1);
    struct params *p = xcalloc(1, sizeof(*p));
    p->params = xcalloc(rows_max, sizeof(*p->params));
    p->stores = xcalloc(rows_max, sizeof(*p->stores));
    p->pieces = xcalloc(rows_max * PARTS_MAX, sizeof(*p->pieces));

    AUTO_FREE uint32_t *stages = xcalloc(s->parallel.pipeline, sizeof(*stages));
    params_stages(s, stages);
    p->stage = c.pp;
    for (uint32_t i = 0; i < c.pp; i++)
        p->layer0 += stages[i];
    p->n_layers = stages[c.pp];
    p->vocab_local = span_of(s, DIM_VOCAB, true, c.tp).room;
    p->vocab_start = c.tp * p->vocab_local;

    struct builder b = {.s = s, .p = p, .at = c};
    add_rows(&b, a->in, -1, c.pp == 0);
    for (uint32_t l = 0; l < s->model.layers; l++)
        add_rows(&b, a->layer, (int32_t)l, l >= p->layer0 && l < p->layer0 + p->n_layers);
    add_rows(&b, a->out, -1, c.pp + 1 == s->parallel.pipeline);
    p->n_elements = (b.end + PARAMS_BLOCK - 1) / PARAMS_BLOCK * PARAMS_BLOCK;
    return p;
}

void params_free(struct params *p)
{
    if (!p)
        return;
    free(p->params);
    free(p->stores);
    free(p->pieces);
    free(p);
}

const struct store *params_store(const struct params *p, enum store_kind kind, int32_t layer)
{
    for (size_t i = 0; i < p->n_stores; i++)
        if (p->stores[i].kind == kind && p->stores[i].layer == layer)
            return &p->stores[i];
    return NULL;
}

/* The largest stage costs max(ceil((L - x) / (P - 1)) layer, x layer + head), with x the layers
 * of the last stage and layer and head their FLOPs per token; the embedding is a look-up and
 * costs none.  x is where that is least, the larger x of two.  The other stages share the rest,
 * later ones taking what is over: an earlier stage keeps more micro-batches alive. */
void params_stages(const struct spec *s, uint32_t *ret)
{
    const uint32_t n = s->parallel.pipeline, layers = s->model.layers;
    assert(n >= 1 && layers >= n);
    if (s->parallel.stages) {
        for (uint32_t i = 0; i < n; i++)
            ret[i] = s->parallel.stages[i];
        return;
    }
    ret[n - 1] = layers;
    if (n == 1)
        return;
    const double layer = flops_layer_per_token(s), head = flops_head_per_token(s);
    double least = INFINITY;
    for (uint32_t x = 1; x + n - 1 <= layers; x++) {
        double others = (layers - x + n - 2) / (n - 1) * layer, last = x * layer + head;
        double most = others > last ? others : last;
        if (most <= least) {
            least = most;
            ret[n - 1] = x;
        }
    }
    const uint32_t rest = layers - ret[n - 1];
    for (uint32_t i = 0; i + 1 < n; i++)
        ret[i] = rest / (n - 1) + (i >= n - 1 - rest % (n - 1));
}

int64_t params_count(const struct spec *s)
{
    AUTO(params) struct params *p = params_new(s, (struct coord){0});
    int64_t n = 0;
    for (size_t i = 0; i < p->n_params; i++)
        n += p->params[i].shape[0] * p->params[i].shape[1];
    return n;
}
