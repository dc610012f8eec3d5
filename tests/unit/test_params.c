/* params.h: pieces tile tensors, stores do not overlap, one order in every layout. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/shape/params.h"
#include "common/shape/topo.h"
#include "common/spec/spec.h"

/* SplitMix64: the same cases in every run. */
static uint32_t pick(uint64_t *state, uint32_t n)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % n);
}

static void random_spec(uint64_t *rng, struct spec *s)
{
    *s = (struct spec){0};
    uint32_t tensor = 1u << pick(rng, 4), heads = tensor * (1 + pick(rng, 3));
    s->model.arch = pick(rng, 2) ? ARCH_LLAMA : ARCH_GPT2;
    s->model.heads = s->model.kv_heads = heads;
    if (s->model.arch == ARCH_LLAMA) {
        uint32_t kv;
        do
            kv = 1 + pick(rng, heads);
        while (heads % kv || (kv % tensor && tensor % kv));
        s->model.kv_heads = kv;
        s->model.qkv_bias = pick(rng, 2);
    }
    s->model.hidden = heads * 2 * (1 + pick(rng, 4));
    s->model.ffn = tensor * (1 + pick(rng, 20));
    s->model.layers = 1 + pick(rng, 6);
    s->model.vocab = 1 + pick(rng, 70); /* also fewer rows than ranks */
    s->model.max_positions = 5;
    s->model.tied = pick(rng, 2);
    s->parallel.tensor = tensor;
    s->parallel.data = 1 + pick(rng, 2);
    s->parallel.pipeline = 1 + pick(rng, s->model.layers);
    s->train.seq_len = 5;
}

/* How often each element of each param lies in a piece that counts. */
struct cover {
    struct params *first;
    int64_t *at; /* [n_params] */
    uint8_t *n;
    int64_t total;
};

static void cover_init(struct cover *c, const struct spec *s)
{
    c->first = params_new(s, (struct coord){0});
    c->at = xcalloc(c->first->n_params, sizeof *c->at);
    c->total = 0;
    for (size_t i = 0; i < c->first->n_params; i++) {
        c->at[i] = c->total;
        c->total += c->first->params[i].shape[0] * c->first->params[i].shape[1];
    }
    c->n = xcalloc((size_t)c->total, 1);
}

static void cover_done(struct cover *c)
{
    params_free(c->first);
    free(c->at);
    free(c->n);
}

static void cover_piece(struct cover *c, const struct piece *q)
{
    const struct param *m = &c->first->params[q->param];
    for (int d = 0; d < 2; d++)
        assert_true(q->start[d] >= 0 && q->size[d] > 0 &&
                    q->start[d] + q->size[d] <= m->shape[d]);
    for (int64_t i = 0; i < q->size[0]; i++)
        for (int64_t j = 0; j < q->size[1]; j++)
            c->n[c->at[q->param] + (q->start[0] + i) * m->shape[1] + q->start[1] + j]++;
}

static void for_ranks_of_one_replica(const struct spec *s,
                                     void (*fn)(void *ctx, const struct spec *s,
                                                const struct params *p, struct coord c),
                                     void *ctx)
{
    struct topo t = topo_of_spec(s);
    for (uint32_t rank = 0; rank < topo_world(&t); rank++) {
        struct coord c = topo_coord(&t, rank);
        if (c.dp)
            continue;
        AUTO(params) struct params *p = params_new(s, c);
        fn(ctx, s, p, c);
    }
}

static void add_owned(void *ctx, const struct spec *s, const struct params *p, struct coord c)
{
    (void)s;
    (void)c;
    for (size_t i = 0; i < p->n_pieces; i++)
        if (p->pieces[i].owner)
            cover_piece(ctx, &p->pieces[i]);
}

static void test_owners_tile(void **state)
{
    (void)state;
    uint64_t rng = 1;
    for (int round = 0; round < 400; round++) {
        struct spec s;
        random_spec(&rng, &s);
        struct cover c;
        cover_init(&c, &s);
        for_ranks_of_one_replica(&s, add_owned, &c);
        for (int64_t i = 0; i < c.total; i++)
            assert_int_equal(c.n[i], 1);
        cover_done(&c);
    }
}

/* All of a rank's elements: no store overlaps another, no piece another, none leaves its store;
 * what no piece holds is vocabulary padding. */
static void check_arena(void *ctx, const struct spec *s, const struct params *p, struct coord c)
{
    (void)ctx;
    AUTO_FREE uint8_t *used = xcalloc((size_t)p->n_elements, 1);
    int64_t in_stores = 0, in_pieces = 0, padding = 0;
    assert_int_equal(p->n_elements % PARAMS_BLOCK, 0);
    for (size_t i = 0; i < p->n_stores; i++) {
        const struct store *st = &p->stores[i];
        assert_int_equal(st->n, st->rows * st->cols);
        assert_true(st->offset >= 0 && st->offset + st->n <= p->n_elements);
        if (st->kind == STORE_KV_W || st->kind == STORE_KV_B)
            assert_int_equal(st->offset, st[-1].offset + st[-1].n);
        else
            assert_int_equal(st->offset % PARAMS_BLOCK, 0);
        assert_true(i == 0 || st->offset >= st[-1].offset + st[-1].n);
        assert_ptr_equal(params_store(p, st->kind, st->layer), st);
        in_stores += st->n;
        if (st->kind == STORE_EMBED || st->kind == STORE_HEAD) {
            assert_int_equal(st->rows, p->vocab_local);
            int64_t real = s->model.vocab - p->vocab_start;
            real = real < 0 ? 0 : real > st->rows ? st->rows : real;
            padding += (st->rows - real) * st->cols;
        }
    }
    for (size_t i = 0; i < p->n_pieces; i++) {
        const struct piece *q = &p->pieces[i];
        const struct store *st = &p->stores[q->store];
        assert_true(i == 0 || q->store >= q[-1].store);
        for (int64_t r = 0; r < q->size[0]; r++)
            for (int64_t k = 0; k < q->size[1]; k++) {
                int64_t at = q->offset + r * q->stride + k;
                assert_true(at >= 0 && at < st->n);
                assert_int_equal(used[st->offset + at]++, 0);
            }
        in_pieces += q->size[0] * q->size[1];
    }
    assert_int_equal(in_stores, in_pieces + padding);
    assert_int_equal(p->stage, c.pp);
}

static void test_arenas(void **state)
{
    (void)state;
    uint64_t rng = 2;
    for (int round = 0; round < 200; round++) {
        struct spec s;
        random_spec(&rng, &s);
        for_ranks_of_one_replica(&s, check_arena, NULL);
    }
}

struct seen {
    const struct params *one; /* of the same model on one rank */
    uint8_t *n;               /* [n_stores_all]: stages that have it */
};

/* A rank's stores keep kind, layer and place of the whole model's. */
static void check_order(void *ctx, const struct spec *s, const struct params *p, struct coord c)
{
    struct seen *x = ctx;
    (void)s;
    assert_int_equal(p->n_stores_all, x->one->n_stores);
    assert_int_equal(p->n_params, x->one->n_params);
    for (size_t i = 0; i < p->n_params; i++) {
        const struct param *a = &p->params[i], *b = &x->one->params[i];
        assert_string_equal(a->name, b->name);
        assert_true(a->shape[0] == b->shape[0] && a->shape[1] == b->shape[1]);
        assert_true(a->init == b->init && a->decay == b->decay && a->tied == b->tied);
        assert_true(a->std == b->std && a->ndim == b->ndim);
    }
    for (size_t i = 0; i < p->n_stores; i++) {
        const struct store *st = &p->stores[i];
        assert_true(st->index < x->one->n_stores);
        assert_true(i == 0 || st->index == st[-1].index + 1 || st->kind >= STORE_NORMF_GAIN);
        assert_int_equal(st->kind, x->one->stores[st->index].kind);
        assert_int_equal(st->layer, x->one->stores[st->index].layer);
        if (c.tp == 0)
            x->n[st->index]++;
    }
}

static void test_one_order(void **state)
{
    (void)state;
    uint64_t rng = 3;
    for (int round = 0; round < 200; round++) {
        struct spec s, whole;
        random_spec(&rng, &s);
        whole = s;
        whole.parallel.data = whole.parallel.tensor = whole.parallel.pipeline = 1;
        AUTO(params) struct params *one = params_new(&whole, (struct coord){0});
        for (uint32_t i = 0; i < one->n_stores_all; i++)
            assert_int_equal(one->stores[i].index, i);
        AUTO_FREE uint8_t *n = xcalloc(one->n_stores_all, 1);
        for_ranks_of_one_replica(&s, check_order, &(struct seen){one, n});
        for (uint32_t i = 0; i < one->n_stores_all; i++)
            assert_int_equal(n[i], 1);
    }
}

static void gpt2_124m(struct spec *s)
{
    *s = (struct spec){0};
    s->model.arch = ARCH_GPT2;
    s->model.layers = 12;
    s->model.hidden = 768;
    s->model.heads = s->model.kv_heads = 12;
    s->model.ffn = 3072;
    s->model.vocab = 50257;
    s->model.max_positions = 1024;
    s->model.tied = true;
    s->train.seq_len = 1024;
    s->parallel.data = s->parallel.tensor = s->parallel.pipeline = 1;
}

static void llama3_8b(struct spec *s)
{
    gpt2_124m(s);
    s->model.arch = ARCH_LLAMA;
    s->model.layers = 32;
    s->model.hidden = 4096;
    s->model.heads = 32;
    s->model.kv_heads = 8;
    s->model.ffn = 14336;
    s->model.vocab = 128256;
    s->model.tied = false;
    s->train.seq_len = 8192;
}

static void qwen2_05b(struct spec *s)
{
    llama3_8b(s);
    s->model.layers = 24;
    s->model.hidden = 896;
    s->model.heads = 14;
    s->model.kv_heads = 2;
    s->model.ffn = 4864;
    s->model.vocab = 151936;
    s->model.tied = s->model.qkv_bias = true;
}

static void test_counts(void **state)
{
    (void)state;
    struct spec s;
    gpt2_124m(&s);
    assert_int_equal(params_count(&s), 124439808);
    s.model.tied = false;
    assert_int_equal(params_count(&s), 124439808 + 50257 * 768);
    llama3_8b(&s);
    assert_int_equal(params_count(&s), 8030261248);
    s.model.tied = true;
    assert_int_equal(params_count(&s), 8030261248 - 128256LL * 4096);
    s.parallel.tensor = 16;
    s.parallel.pipeline = 5;
    assert_int_equal(params_count(&s), 8030261248 - 128256LL * 4096);
    qwen2_05b(&s);
    assert_int_equal(params_count(&s), 494032768);
}

/* What the models that presets are named after have. */
static void test_presets(void **state)
{
    static const struct {
        const char *name;
        int64_t n;
    } want[] = {
        {"gpt2-124m", 124439808},   {"gpt2-355m", 354823168},   {"gpt2-774m", 774030080},
        {"gpt2-1558m", 1557611200}, {"llama-1.2b", 1235814400}, {"llama-3.2b", 3212749824},
        {"llama-8b", 8030261248},
    };
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct err e;
        AUTO_BUF struct buf report = BUF(4096);
        AUTO_FREE char *text = xasprintf("name: a\nmodel: {preset: %s}\ndata: {files: a}\n"
                                         "train: {steps: 1, batch: 1, seq_len: 1024}\n",
                                         want[i].name);
        AUTO(spec)
        struct spec *s = spec_parse("/a", text, strlen(text), NULL, 0, &report, &e);
        assert_string_equal(buf_str(&report), "");
        assert_int_equal(params_count(s), want[i].n);
    }
}

/* Names and shapes of Hugging Face's GPT2LMHeadModel and LlamaForCausalLM. */
static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t shape[2];
    } gpt2[] =
        {
            {"transformer.wte.weight", {50257, 768}},
            {"transformer.wpe.weight", {1024, 768}},
            {"transformer.h.0.ln_1.weight", {768, 1}},
            {"transformer.h.0.ln_1.bias", {768, 1}},
            {"transformer.h.0.attn.c_attn.weight", {768, 2304}},
            {"transformer.h.0.attn.c_attn.bias", {2304, 1}},
            {"transformer.h.0.attn.c_proj.weight", {768, 768}},
            {"transformer.h.0.attn.c_proj.bias", {768, 1}},
            {"transformer.h.0.ln_2.weight", {768, 1}},
            {"transformer.h.0.ln_2.bias", {768, 1}},
            {"transformer.h.0.mlp.c_fc.weight", {768, 3072}},
            {"transformer.h.0.mlp.c_fc.bias", {3072, 1}},
            {"transformer.h.0.mlp.c_proj.weight", {3072, 768}},
            {"transformer.h.0.mlp.c_proj.bias", {768, 1}},
            {"transformer.h.1.ln_1.weight", {768, 1}},
        },
      llama[] = {
          {"model.embed_tokens.weight", {128256, 4096}},
          {"model.layers.0.input_layernorm.weight", {4096, 1}},
          {"model.layers.0.self_attn.q_proj.weight", {4096, 4096}},
          {"model.layers.0.self_attn.k_proj.weight", {1024, 4096}},
          {"model.layers.0.self_attn.v_proj.weight", {1024, 4096}},
          {"model.layers.0.self_attn.o_proj.weight", {4096, 4096}},
          {"model.layers.0.post_attention_layernorm.weight", {4096, 1}},
          {"model.layers.0.mlp.gate_proj.weight", {14336, 4096}},
          {"model.layers.0.mlp.up_proj.weight", {14336, 4096}},
          {"model.layers.0.mlp.down_proj.weight", {4096, 14336}},
          {"model.layers.1.input_layernorm.weight", {4096, 1}},
      };
    struct spec s;
    gpt2_124m(&s);
    AUTO(params) struct params *g = params_new(&s, (struct coord){0});
    for (size_t i = 0; i < sizeof gpt2 / sizeof *gpt2; i++) {
        assert_string_equal(g->params[i].name, gpt2[i].name);
        assert_memory_equal(g->params[i].shape, gpt2[i].shape, sizeof gpt2[i].shape);
    }
    assert_string_equal(g->params[g->n_params - 1].name, "transformer.ln_f.bias");
    assert_true(g->params[0].tied && !g->params[1].tied);
    llama3_8b(&s);
    AUTO(params) struct params *l = params_new(&s, (struct coord){0});
    for (size_t i = 0; i < sizeof llama / sizeof *llama; i++) {
        assert_string_equal(l->params[i].name, llama[i].name);
        assert_memory_equal(l->params[i].shape, llama[i].shape, sizeof llama[i].shape);
    }
    assert_string_equal(l->params[l->n_params - 2].name, "model.norm.weight");
    assert_string_equal(l->params[l->n_params - 1].name, "lm_head.weight");
    assert_false(l->params[0].tied);
    s.model.qkv_bias = true; /* Qwen2ForCausalLM */
    AUTO(params) struct params *q = params_new(&s, (struct coord){0});
    assert_int_equal(q->n_params, l->n_params + 3 * 32);
    for (size_t i = 0; i < 3; i++) {
        const struct param *b = &q->params[5 + i];
        AUTO_FREE char *name = xasprintf("model.layers.0.self_attn.%c_proj.bias", "qkv"[i]);
        assert_string_equal(b->name, name);
        assert_true(b->ndim == 1 && b->shape[0] == (i ? 1024 : 4096) && !b->decay);
        assert_int_equal(b->init, INIT_ZERO);
    }
}

/* gpt2's fused q|k|v on tensor rank 1 of 2: the right columns of each third. */
static void test_fused_boxes(void **state)
{
    (void)state;
    struct spec s;
    gpt2_124m(&s);
    s.parallel.tensor = 2;
    AUTO(params) struct params *p = params_new(&s, (struct coord){.tp = 1});
    const struct store *w = params_store(p, STORE_QKV_W, 3);
    assert_true(w->rows == 768 && w->cols == 1152 && w->share == SHARE_NONE);
    int64_t n = 0;
    for (size_t i = 0; i < p->n_pieces; i++) {
        const struct piece *q = &p->pieces[i];
        if (&p->stores[q->store] != w)
            continue;
        assert_true(q->start[0] == 0 && q->size[0] == 768);
        assert_true(q->start[1] == n * 768 + 384 && q->size[1] == 384);
        assert_true(q->offset == n * 384 && q->stride == 1152 && q->owner);
        n++;
    }
    assert_int_equal(n, 3);
}

/* 8 tensor ranks, 2 kv heads: ranks 4..7 hold head 1, rank 4 owns it. */
static void test_shared_kv(void **state)
{
    (void)state;
    struct spec s;
    llama3_8b(&s);
    s.model.kv_heads = 2;
    s.model.qkv_bias = true;
    s.parallel.tensor = 8;
    for (uint32_t tp = 0; tp < 16; tp++) {
        AUTO(params) struct params *p = params_new(&s, (struct coord){.tp = tp % 8});
        const struct store *kv = params_store(p, tp / 8 ? STORE_KV_B : STORE_KV_W, 0);
        assert_true(kv->share == SHARE_KV && kv->rows == 2 * 128);
        assert_int_equal(params_store(p, STORE_NORM1_GAIN, 0)->share, SHARE_TENSOR);
        for (size_t i = 0; i < p->n_pieces; i++) {
            const struct piece *q = &p->pieces[i];
            if (&p->stores[q->store] != kv)
                continue;
            assert_int_equal(q->start[0], tp % 8 / 4 * 128);
            assert_int_equal(q->owner, tp % 4 == 0);
        }
    }
}

static void stages_are(struct spec *s, uint32_t pipeline, const char *want)
{
    uint32_t n[16];
    char got[64] = "";
    s->parallel.pipeline = pipeline;
    params_stages(s, n);
    for (uint32_t i = 0; i < pipeline; i++)
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%u", i ? "," : "", n[i]);
    assert_string_equal(got, want);
}

static void test_stages(void **state)
{
    (void)state;
    struct spec s;
    llama3_8b(&s); /* the head is worth 2 layers */
    stages_are(&s, 1, "32");
    stages_are(&s, 2, "17,15");
    stages_are(&s, 4, "8,9,9,6");
    s.model.vocab = 256;
    stages_are(&s, 4, "8,8,8,8");
    stages_are(&s, 5, "6,6,7,7,6");
    s.model.layers = 3;
    s.model.vocab = 1 << 20;
    stages_are(&s, 3, "1,1,1");
    stages_are(&s, 2, "2,1");
    s.parallel.stages = (uint32_t[]){1, 2};
    s.parallel.n_stages = 2;
    stages_are(&s, 2, "1,2");
}

/* No other split has a smaller largest stage: all splits tried. */
static double largest(const uint32_t *n, uint32_t stages, double head)
{
    double most = 0;
    for (uint32_t i = 0; i < stages; i++) {
        double cost = n[i] + (i + 1 == stages ? head : 0);
        most = most < cost ? cost : most;
    }
    return most;
}

static void test_stages_least(void **state)
{
    (void)state;
    struct spec s;
    llama3_8b(&s);
    s.parallel.pipeline = 3;
    for (uint32_t layers = 3; layers < 12; layers++)
        for (uint32_t vocab = 1000; vocab < 600000; vocab *= 3) {
            s.model.layers = layers;
            s.model.vocab = vocab;
            double per_layer = 6.0 * (4096.0 * (4096 * 2 + 1024 * 2 + 3 * 14336)) +
                               6.0 * 4096 * s.train.seq_len;
            double head = 6.0 * 4096 * vocab / per_layer;
            uint32_t n[3], t[3];
            params_stages(&s, n);
            assert_int_equal(n[0] + n[1] + n[2], layers);
            double got = largest(n, 3, head);
            for (t[0] = 1; t[0] < layers; t[0]++)
                for (t[1] = 1; t[0] + t[1] < layers; t[1]++) {
                    t[2] = layers - t[0] - t[1];
                    assert_true(got <= largest(t, 3, head) + 1e-9);
                }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners_tile), cmocka_unit_test(test_arenas),
        cmocka_unit_test(test_one_order),   cmocka_unit_test(test_counts),
        cmocka_unit_test(test_presets),     cmocka_unit_test(test_names),
        cmocka_unit_test(test_fused_boxes), cmocka_unit_test(test_shared_kv),
        cmocka_unit_test(test_stages),      cmocka_unit_test(test_stages_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
