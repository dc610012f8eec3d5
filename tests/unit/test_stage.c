/* test_stage.c: a stage against itself: finite differences, cut over pipeline stages (bit for
 * bit), cut over a tensor group (1e-5, with planted bugs that must show), slots apart. */
#include "tests/unit/stage_rig.h"

enum { ROWS = 32 };

struct tokens {
    int32_t ids[ROWS], targets[ROWS];
};

/* Any text, some targets ignored, among them rows of one tensor rank only. */
static struct tokens tokens_of(uint32_t seed)
{
    struct tokens t;
    for (uint32_t i = 0; i < ROWS; i++) {
        seed = seed * 1664525u + 1013904223u;
        t.ids[i] = (int32_t)((seed >> 8) % 257);
        t.targets[i] = (seed >> 20) % 5 && i < 25 ? (int32_t)((seed >> 10) % 259) : -1;
    }
    return t;
}

/* The table's initial weights make small gradients: larger ones let every part be seen. */
static void larger_weights(struct rig *r)
{
    float *w = stage_weights(r->stage);
    for (size_t i = 0; i < r->params->n_pieces; i++) {
        const struct piece *q = &r->params->pieces[i];
        const struct param *m = &r->params->params[q->param];
        int64_t n = m->shape[0] * m->shape[1];
        AUTO_FREE float *full = xmalloc((size_t)n * sizeof(*full));
        init_normal(5, m->name, 0.15, 0, n, full);
        for (int64_t j = 0; j < n && m->init == INIT_ONE; j++)
            full[j] += 1;
        rig_copy(r, q, w, full, TO_RANK);
    }
}

static double run(struct rig *r, const struct tokens *t, float *grads)
{
    must(!stage_forward(r->stage, 0, t->ids, t->targets, &rig_err));
    if (grads)
        must(!stage_backward(r->stage, 0, 1.0f, grads, &rig_err));
    return stage_loss(r->stage, 0);
}

/* Along the gradient of each store, and along a direction that knows nothing of it. */
static void gradient_is_a_difference(void **state)
{
    (void)state;
    for (int model = 0; model < TINY_MODELS; model++) {
        struct spec s = tiny_model(model);
        struct tokens t = tokens_of(1);
        struct rig r;
        rig_open(&r, &s, (struct coord){0}, 1, NULL, NULL, PLANT_NONE);
        larger_weights(&r);
        (void)run(&r, &t, r.grads);
        for (size_t i = 0; i < 2 * r.params->n_stores; i++) {
            const struct store *st = &r.params->stores[i / 2];
            const float *g = r.grads + st->offset;
            float *w = stage_weights(r.stage) + st->offset;
            AUTO_FREE float *was = xmalloc((size_t)st->n * sizeof(*was));
            AUTO_FREE float *dir = xmalloc((size_t)st->n * sizeof(*dir));
            double norm = norm_of(g, st->n), want = 0, loss[2];
            assert_true(norm > 0);
            memcpy(was, w, (size_t)st->n * sizeof(*was));
            for (int64_t j = 0; j < st->n; j++) {
                dir[j] = i % 2 ? g[j] / (float)norm : 0;
                if (i % 2 == 0)
                    init_normal(i, "direction", 1 / sqrt((double)st->n), j, 1, &dir[j]);
                want += (double)dir[j] * g[j];
            }
            const float h = 5e-3f;
            for (int side = 0; side < 2; side++) {
                for (int64_t j = 0; j < st->n; j++)
                    w[j] = was[j] + (side ? -h : h) * dir[j];
                loss[side] = run(&r, &t, NULL);
            }
            memcpy(w, was, (size_t)st->n * sizeof(*was));
            double got = (loss[0] - loss[1]) / (2 * (double)h);
            double off = fabs(got - want) / norm;
            if (off > 0.01)
                fail_msg("model %d, store kind %d layer %d: difference %.6f, gradient %.6f",
                         model, (int)st->kind, st->layer, got, want);
        }
        rig_close(&r);
    }
}

static void same_store_grads(const struct rig *whole, const struct rig *part)
{
    for (size_t i = 0; i < part->params->n_stores; i++) {
        const struct store *s = &part->params->stores[i];
        const struct store *w = params_store(whole->params, s->kind, s->layer);
        assert_non_null(w);
        assert_int_equal(s->n, w->n);
        if (memcmp(part->grads + s->offset, whole->grads + w->offset,
                   (size_t)s->n * sizeof(float)))
            fail_msg("gradient of store kind %d layer %d differs", (int)s->kind, s->layer);
    }
}

/* Two stages by hand: bits of loss and of every gradient. */
static void two_stages_are_one(void **state)
{
    (void)state;
    for (int model = 0; model < TINY_MODELS; model++) {
        struct spec s = tiny_model(model), s2 = s;
        struct tokens t = tokens_of(2);
        struct rig whole, first, last;
        s2.parallel.pipeline = 2;
        rig_open(&whole, &s, (struct coord){0}, 1, NULL, NULL, PLANT_NONE);
        rig_open(&first, &s2, (struct coord){.pp = 0}, 1, NULL, NULL, PLANT_NONE);
        rig_open(&last, &s2, (struct coord){.pp = 1}, 1, NULL, NULL, PLANT_NONE);
        larger_weights(&whole);
        larger_weights(&first);
        larger_weights(&last);
        double loss = run(&whole, &t, whole.grads);

        size_t bytes = (size_t)stage_act_elements(first.stage) * sizeof(float);
        assert_int_equal(bytes, ROWS * 32 * sizeof(float));
        must(!stage_forward(first.stage, 0, t.ids, NULL, &rig_err));
        memcpy(stage_act_in(last.stage, 0), stage_act_out(first.stage, 0), bytes);
        must(!stage_forward(last.stage, 0, NULL, t.targets, &rig_err));
        must(!stage_backward(last.stage, 0, 1.0f, last.grads, &rig_err));
        memcpy(stage_grad_out(first.stage), stage_grad_in(last.stage), bytes);
        must(!stage_backward(first.stage, 0, 1.0f, first.grads, &rig_err));

        assert_memory_equal(&loss, &(double){stage_loss(last.stage, 0)}, sizeof(loss));
        same_store_grads(&whole, &first);
        same_store_grads(&whole, &last);
        rig_close(&whole);
        rig_close(&first);
        rig_close(&last);
    }
}

/* A validation step between the forward and the backward of others leaves no trace. */
static void slots_are_apart(void **state)
{
    struct spec s = tiny_spec(ARCH_LLAMA);
    struct tokens t = tokens_of(3), other = tokens_of(4);
    struct rig one, two;
    (void)state;
    rig_open(&one, &s, (struct coord){0}, 1, NULL, NULL, PLANT_NONE);
    rig_open(&two, &s, (struct coord){0}, 2, NULL, NULL, PLANT_NONE);
    assert_int_equal(two.mem->n_slots, 2);
    double loss = run(&one, &t, one.grads);

    must(!stage_forward(two.stage, 1, t.ids, t.targets, &rig_err));
    assert_true(run(&two, &other, NULL) != loss);
    must(!stage_backward(two.stage, 1, 1.0f, two.grads, &rig_err));
    assert_true(stage_loss(two.stage, 1) == loss);
    same_store_grads(&one, &two);
    rig_close(&one);
    rig_close(&two);
}

/* A tensor group of threads. */
struct member {
    struct rig rig;
    struct mem_comm tensor, kv;
    struct tokens tokens;
    int rc;
    pthread_t thread;
};

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct stage *st = m->rig.stage;
    m->rc = stage_forward(st, 0, m->tokens.ids, m->tokens.targets, NULL) ||
            stage_backward(st, 0, 1.0f, m->rig.grads, NULL);
    return NULL;
}

/* Largest distance of a logical gradient from `want`, relative; *ret_loss of the group. */
static double split(const struct spec *s, const struct tokens *t, enum plant plant,
                    float *const *want, double *ret_loss)
{
    uint32_t n = s->parallel.tensor, shared = n > s->model.kv_heads ? n / s->model.kv_heads : 1;
    struct board tensor = {.size = n}, kv[8] = {{.size = shared}};
    AUTO_FREE struct member *m = xcalloc(n, sizeof(*m));
    double worst = 0;

    pthread_barrier_init(&tensor.barrier, NULL, n);
    for (uint32_t i = 0; i < n / shared; i++) {
        kv[i].size = shared;
        pthread_barrier_init(&kv[i].barrier, NULL, shared);
    }
    for (uint32_t i = 0; i < n; i++) {
        m[i].tokens = *t;
        m[i].tensor = (struct mem_comm){
            {.ops = &mem_comm_ops, .kind = GROUP_TENSOR, .size = n, .rank = i}, &tensor};
        if (shared > 1)
            m[i].kv = (struct mem_comm){
                {.ops = &mem_comm_ops, .kind = GROUP_KV, .size = shared, .rank = i % shared},
                &kv[i / shared]};
        rig_open(&m[i].rig, s, (struct coord){.tp = i}, 1, &m[i].tensor.c,
                 shared > 1 ? &m[i].kv.c : NULL, plant);
        larger_weights(&m[i].rig);
    }
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&m[i].thread, NULL, member_main, &m[i]), 0);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(m[i].thread, NULL);

    const struct params *p = m[0].rig.params;
    float **g = model_grads_new(p);
    for (uint32_t i = 0; i < n; i++) {
        model_grads_add(g, &m[i].rig);
        assert_int_equal(m[i].rc, 0);
        assert_true(stage_loss(m[i].rig.stage, 0) == stage_loss(m[0].rig.stage, 0));
    }
    for (size_t i = 0; i < p->n_params; i++) {
        int64_t k = p->params[i].shape[0] * p->params[i].shape[1];
        double d = distance(g[i], want[i], k) / norm_of(want[i], k);
        worst = d > worst ? d : worst;
    }
    model_grads_free(g, p);
    *ret_loss = stage_loss(m[0].rig.stage, 0);
    for (uint32_t i = 0; i < n; i++)
        rig_close(&m[i].rig);
    for (uint32_t i = 0; i < n / shared; i++)
        pthread_barrier_destroy(&kv[i].barrier);
    pthread_barrier_destroy(&tensor.barrier);
    return worst;
}

struct whole {
    struct rig rig;
    float **grads;
    double loss;
};

static void whole_open(struct whole *w, const struct spec *s, const struct tokens *t)
{
    rig_open(&w->rig, s, (struct coord){0}, 1, NULL, NULL, PLANT_NONE);
    larger_weights(&w->rig);
    w->loss = run(&w->rig, t, w->rig.grads);
    w->grads = model_grads_new(w->rig.params);
    model_grads_add(w->grads, &w->rig);
}

static void whole_close(struct whole *w)
{
    model_grads_free(w->grads, w->rig.params);
    rig_close(&w->rig);
}

static void tensor_group_is_one(void **state)
{
    (void)state;
    for (int model = 0; model < TINY_MODELS; model++) {
        struct spec s = tiny_model(model);
        struct tokens t = tokens_of(6);
        struct whole w;
        whole_open(&w, &s, &t);
        for (uint32_t tensor = 2; tensor <= 4; tensor *= 2) {
            for (int sequence = 0; sequence < 2; sequence++) {
                double loss = 0;
                s.parallel.tensor = tensor;
                s.parallel.sequence = sequence;
                double worst = split(&s, &t, PLANT_NONE, w.grads, &loss);
                print_message(
                    "# model %d tensor %u sequence %d: loss off by %.1e, gradient %.1e\n",
                    model, tensor, sequence, fabs(loss / w.loss - 1), worst);
                assert_true(fabs(loss / w.loss - 1) <= 1e-5);
                assert_true(worst <= 1e-5);
            }
        }
        whole_close(&w);
    }
}

static void planted_bugs_show(void **state)
{
    static const enum plant plants[] = {PLANT_SP_NORM_GRAD, PLANT_PAD_VOCAB,
                                        PLANT_NO_ATTENTION};
    struct spec s = tiny_spec(ARCH_LLAMA);
    struct tokens t = tokens_of(6);
    struct whole w;
    (void)state;
    whole_open(&w, &s, &t);
    s.parallel.tensor = 2;
    s.parallel.sequence = true;
    for (size_t i = 0; i < sizeof(plants) / sizeof(*plants); i++) {
        double loss = 0, worst = split(&s, &t, plants[i], w.grads, &loss);
        print_message("# plant %d: loss off by %.1e, gradient %.1e\n", (int)plants[i],
                      fabs(loss / w.loss - 1), worst);
        assert_true(worst > 1e-3);
    }
    whole_close(&w);
}

/* A plan whose scratch is too small for an op is refused before the first step. */
static void scratch_is_checked(void **state)
{
    struct spec s = tiny_spec(ARCH_GPT2);
    struct rig r;
    struct err e = {0};
    (void)state;
    rig_open(&r, &s, (struct coord){0}, 1, NULL, NULL, PLANT_NONE);
    for (size_t i = 0; i < r.mem->n_bufs; i++) {
        if (r.mem->bufs[i].id == MEM_KERN_SCRATCH)
            r.mem->bufs[i].bytes = 0;
    }
    const struct stage_params p = {.spec = &r.spec,
                                   .params = r.params,
                                   .mem = r.mem,
                                   .kern = r.kern,
                                   .dev = r.dev,
                                   .stream = r.stream,
                                   .arena = r.arena};
    assert_null(stage_new(&p, &e));
    assert_int_equal(e.kind, ERR_MEMORY);
    rig_close(&r);
}

/* Nothing of the arena is touched before the first step, so large models can be asked too. */
static void scratch_covers_large_shapes(void **state)
{
    static const struct {
        enum spec_arch arch;
        uint32_t hidden, heads, kv_heads, ffn, vocab, micro_batch, seq_len, tensor;
    } shapes[] = {
        {ARCH_GPT2, 768, 12, 12, 3072, 50257, 1, 64, 1},
        {ARCH_GPT2, 1600, 25, 25, 6400, 50257, 16, 1024, 1},
        {ARCH_LLAMA, 4096, 32, 8, 14336, 128256, 1, 8192, 1},
        {ARCH_LLAMA, 16384, 128, 8, 53248, 128256, 1, 8192, 8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        struct spec s = tiny_spec(shapes[i].arch);
        struct mem_comm tensor = {.c = {.size = shapes[i].tensor}};
        s.model.hidden = shapes[i].hidden;
        s.model.heads = shapes[i].heads;
        s.model.kv_heads = shapes[i].kv_heads;
        s.model.ffn = shapes[i].ffn;
        s.model.vocab = shapes[i].vocab;
        s.model.max_positions = shapes[i].seq_len;
        s.train.micro_batch = shapes[i].micro_batch;
        s.train.seq_len = shapes[i].seq_len;
        s.parallel.tensor = shapes[i].tensor;
        s.parallel.sequence = shapes[i].tensor > 1;
        AUTO(params) struct params *p = params_new(&s, (struct coord){0});
        AUTO(sched) struct sched *sched = sched_new(SCHEDULE_1F1B, 1, 1);
        AUTO(mem_plan) struct mem_plan *m = mem_plan_new(&s, p, sched);
        struct kern *k = kern_cpu_open(1, &rig_err);
        const struct stage_params sp = {
            .spec = &s, .params = p, .mem = m, .kern = k, .tensor = &tensor.c};
        struct stage *st = stage_new(&sp, &rig_err);
        if (!st)
            fail_msg("shape %zu: %s", i, rig_err.text);
        stage_free(st);
        kern_close(k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_is_a_difference),
        cmocka_unit_test(two_stages_are_one),
        cmocka_unit_test(slots_are_apart),
        cmocka_unit_test(tensor_group_is_one),
        cmocka_unit_test(planted_bugs_show),
        cmocka_unit_test(scratch_is_checked),
        cmocka_unit_test(scratch_covers_large_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
