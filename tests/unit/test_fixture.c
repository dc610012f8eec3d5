/* test_fixture.c: one step of tiny gpt2 and llama against PyTorch (tests/fixtures), and three
 * steps of AdamW behind it.  Negative control: with attention zeroed nothing fits. */
#include "tests/unit/stage_rig.h"

#include <fcntl.h>
#include <jansson.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct fixture {
    char *map;
    size_t bytes;
    json_t *head;
    const char *data;
};

static void fixture_open(struct fixture *f, const char *path)
{
    struct stat sb;
    uint64_t n;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("%s: run the test from the repository's root", path);
    assert_int_equal(fstat(fd, &sb), 0);
    f->bytes = (size_t)sb.st_size;
    f->map = mmap(NULL, f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(f->map != MAP_FAILED);
    memcpy(&n, f->map, 8);
    assert_true(n < f->bytes);
    f->head = json_loadb(f->map + 8, n, 0, NULL);
    assert_non_null(f->head);
    f->data = f->map + 8 + n;
}

static void fixture_close(struct fixture *f)
{
    json_decref(f->head);
    munmap(f->map, f->bytes);
}

static const void *fixture_get(const struct fixture *f, const char *prefix, const char *name,
                               size_t bytes)
{
    AUTO_FREE char *key = xasprintf("%s%s", prefix, name);
    json_int_t from = 0, to = 0;
    json_t *t = json_object_get(f->head, key);
    if (!t || json_unpack(t, "{s:[II]}", "data_offsets", &from, &to))
        fail_msg("the fixture has no %s", key);
    if ((size_t)(to - from) != bytes)
        fail_msg("%s: %zu bytes wanted, the fixture has %zu", key, bytes, (size_t)(to - from));
    return f->data + from;
}

static size_t param_bytes(const struct param *m)
{
    return (size_t)(m->shape[0] * m->shape[1]) * sizeof(float);
}

static void load_weights(struct rig *r, const struct fixture *f)
{
    for (size_t i = 0; i < r->params->n_pieces; i++) {
        const struct piece *q = &r->params->pieces[i];
        const struct param *m = &r->params->params[q->param];
        AUTO_FREE float *w = xmalloc(param_bytes(m));
        memcpy(w, fixture_get(f, "", m->name, param_bytes(m)), param_bytes(m));
        rig_copy(r, q, stage_weights(r->stage), w, TO_RANK);
    }
}

struct batch {
    const int32_t *ids, *targets;
    int tokens;
};

static struct batch load_batch(const struct rig *r, const struct fixture *f)
{
    size_t rows = (size_t)r->spec.train.micro_batch * r->spec.train.seq_len;
    struct batch b = {fixture_get(f, "", "ids", rows * 4),
                      fixture_get(f, "", "targets", rows * 4), 0};
    for (size_t i = 0; i < rows; i++)
        b.tokens += b.targets[i] >= 0;
    return b;
}

/* Mean loss; gradients of it in r->grads. */
static double step(struct rig *r, const struct batch *b)
{
    must(!stage_forward(r->stage, 0, b->ids, b->targets, &rig_err));
    must(!stage_backward(r->stage, 0, 1.0f / (float)b->tokens, r->grads, &rig_err));
    return stage_loss(r->stage, 0) / b->tokens;
}

/* Largest ||a - b|| / ||b|| over the tensors; gpt2's q|k|v bias by parts, the key's (whose
 * exact gradient is zero) against the norm of the whole. */
static double worst_grad(const struct rig *r, const struct fixture *f, const char **ret_name)
{
    float **g = model_grads_new(r->params);
    double worst = 0;

    model_grads_add(g, r);
    for (size_t i = 0; i < r->params->n_params; i++) {
        const struct param *m = &r->params->params[i];
        AUTO_FREE char *key = xasprintf("grad.%s", m->name);
        const float *want = fixture_get(f, "", key, param_bytes(m));
        int64_t n = m->shape[0] * m->shape[1], parts = strstr(m->name, "c_attn.bias") ? 3 : 1;
        for (int64_t p = 0; p < parts; p++) {
            const float *a = g[i] + p * (n / parts), *b = want + p * (n / parts);
            double base = p == 1 ? norm_of(want, n) : norm_of(b, n / parts);
            double d = distance(a, b, n / parts) / base;
            if (!(d <= worst)) {
                worst = d;
                *ret_name = m->name;
            }
        }
    }
    model_grads_free(g, r->params);
    return worst;
}

/* What optimizer and tie do on one rank: both entries of a tied table are added, then each
 * store steps.  Returns the norm before clipping. */
static double adamw(struct rig *r, int t)
{
    const struct params *p = r->params;
    char *arena = r->arena;
    float *m = (float *)(arena + mem_plan_offset(r->mem, MEM_EXP_AVG, -1, 0));
    float *v = (float *)(arena + mem_plan_offset(r->mem, MEM_EXP_AVG_SQ, -1, 0));
    const struct store *in = params_store(p, STORE_EMBED, -1),
                       *out = params_store(p, STORE_HEAD, -1);
    AUTO_FREE struct adamw_segment *seg = xcalloc(p->n_stores, sizeof(*seg));
    double sum = 0;

    for (int64_t i = 0; r->spec.model.tied && i < in->n; i++) {
        r->grads[in->offset + i] += r->grads[out->offset + i];
        r->grads[out->offset + i] = r->grads[in->offset + i];
    }
    for (size_t i = 0; i < p->n_stores; i++) {
        const struct store *s = &p->stores[i];
        if (!(r->spec.model.tied && s->kind == STORE_HEAD))
            sum += pow(norm_of(r->grads + s->offset, s->n), 2);
        seg[i] = (struct adamw_segment){.p = stage_weights(r->stage) + s->offset,
                                        .m = m + s->offset,
                                        .v = v + s->offset,
                                        .g = r->grads + s->offset,
                                        .n = s->n,
                                        .decay = s->decay};
    }
    float clip = (float)fmin(1.0, 1.0 / sqrt(sum));
    int32_t skip = 0;
    struct adamw_args a = {.dtype = DT_F32,
                           .segments = seg,
                           .n_segments = (int64_t)p->n_stores,
                           .lr = 1e-3,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .bias1 = 1 - pow(0.9, t),
                           .bias2 = 1 - pow(0.95, t),
                           .grad_scale = &clip,
                           .skip = &skip};
    size_t scratch = 0;
    must(!r->kern->prepare(r->kern, KERN_ADAMW, &a, &scratch, &rig_err));
    AUTO_FREE void *mem = xmalloc(scratch + 1);
    a.scratch = mem;
    r->kern->adamw(r->kern, &a, r->stream);
    return sqrt(sum);
}

static void check(enum spec_arch arch, const char *path)
{
    struct spec s = tiny_spec(arch);
    struct fixture f;
    struct rig r;
    const char *name = "none";

    fixture_open(&f, path);
    rig_open(&r, &s, (struct coord){0}, 1, NULL, NULL, PLANT_NONE);
    load_weights(&r, &f);
    struct batch b = load_batch(&r, &f);
    const double *losses = fixture_get(&f, "", "losses", 4 * sizeof(double));
    const double *norms = fixture_get(&f, "", "norms", 3 * sizeof(double));

    for (int t = 0; t < 4; t++) {
        double loss = step(&r, &b);
        if (fabs(loss / losses[t] - 1) > 1e-5)
            fail_msg("step %d: loss %.9f, PyTorch has %.9f", t + 1, loss, losses[t]);
        if (t == 0) {
            double worst = worst_grad(&r, &f, &name);
            print_message("# loss off by %.1e, gradient of %s by %.1e\n",
                          fabs(loss / losses[t] - 1), name, worst);
            if (!(worst <= 1e-5))
                fail_msg("gradient of %s is off by %.3e", name, worst);
        }
        if (t == 3)
            break;
        double norm = adamw(&r, t + 1);
        if (fabs(norm / norms[t] - 1) > 1e-5)
            fail_msg("step %d: gradient norm %.9f, PyTorch has %.9f", t + 1, norm, norms[t]);
    }
    rig_close(&r);
    fixture_close(&f);
}

static void gpt2_is_pytorch(void **state)
{
    (void)state;
    check(ARCH_GPT2, "tests/fixtures/tiny-gpt2.safetensors");
}

static void llama_is_pytorch(void **state)
{
    (void)state;
    check(ARCH_LLAMA, "tests/fixtures/tiny-llama.safetensors");
}

static void zeroed_attention_is_caught(void **state)
{
    struct spec s = tiny_spec(ARCH_LLAMA);
    struct fixture f;
    struct rig r;
    const char *name = "none";

    (void)state;
    fixture_open(&f, "tests/fixtures/tiny-llama.safetensors");
    rig_open(&r, &s, (struct coord){0}, 1, NULL, NULL, PLANT_NO_ATTENTION);
    load_weights(&r, &f);
    struct batch b = load_batch(&r, &f);
    const double *losses = fixture_get(&f, "", "losses", 4 * sizeof(double));
    assert_true(fabs(step(&r, &b) / losses[0] - 1) > 1e-3);
    assert_true(worst_grad(&r, &f, &name) > 0.1);
    rig_close(&r);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_pytorch),
        cmocka_unit_test(llama_is_pytorch),
        cmocka_unit_test(zeroed_attention_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
