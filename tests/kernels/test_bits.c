/* test_bits.c: the bits of every op but the linear ones, as recorded.
 *
 * They may not depend on the SIMD width, the compiler or the machine: the normal build runs
 * this with the widest vectors of the CPU, the sanitizer build with plain x86-64.  After a
 * deliberate change of an op, take over the value that the failure prints, and say in the
 * commit that old and new runs differ.
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/check.h"

enum { ROWS = 70, T = 35, HEADS = 4, KV = 2, D = 20, WIDTH = (HEADS + 2 * KV) * D };

static void expect(const char *name, uint64_t want, const struct vec *v)
{
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a over words */
    for (int64_t i = 0; i < v->n; i++) {
        uint32_t bits;
        memcpy(&bits, &v->f[i], sizeof(bits));
        h = (h ^ bits) * 0x100000001b3;
    }
    if (h != want)
        fail_msg("%s: 0x%016" PRIx64 ", recorded 0x%016" PRIx64, name, h, want);
}

static void norm_bits(struct kern *k, enum norm_kind kind, uint64_t fwd, uint64_t bwd)
{
    AUTO(vec) struct vec *x = vec_random(ROWS * WIDTH, 2);
    AUTO(vec) struct vec *dy = vec_random(ROWS * WIDTH, 1);
    AUTO(vec) struct vec *gain = vec_random(WIDTH, 1);
    AUTO(vec) struct vec *y = vec_poison(ROWS * WIDTH + 2 * ROWS);
    AUTO(vec) struct vec *dx = vec_poison(ROWS * WIDTH + 2 * WIDTH);
    struct norm_args a = {.kind = kind,
                          .rows = ROWS,
                          .cols = WIDTH,
                          .eps = 1e-5f,
                          .x = x->f,
                          .gain = gain->f,
                          .bias = kind == NORM_LAYER ? gain->f : NULL,
                          .y = y->f,
                          .mean = y->f + ROWS * WIDTH,
                          .rstd = y->f + ROWS * WIDTH + ROWS,
                          .dy = dy->f,
                          .dx = dx->f,
                          .dgain = dx->f + ROWS * WIDTH,
                          .dbias = dx->f + ROWS * WIDTH + WIDTH};
    memset(y->f, 0, (size_t)y->n * sizeof(float));
    memset(dx->f, 0, (size_t)dx->n * sizeof(float));
    AUTO_FREE void *scratch = prepare(k, KERN_NORM_BWD, &a);
    a.scratch = scratch;
    k->norm_fwd(k, &a, NULL);
    expect("norm_fwd", fwd, y);
    k->norm_bwd(k, &a, NULL);
    expect("norm_bwd", bwd, dx);
}

static void norms(void **state)
{
    norm_bits(*state, NORM_LAYER, 0xabfc585484b552a9, 0xd3c239695275e8bb);
    norm_bits(*state, NORM_RMS, 0xa566e6a0a59ea2d8, 0xcd3d5c31dc974126);
}

static void rope_and_attention(void **state)
{
    struct kern *k = *state;
    AUTO(vec) struct vec *qkv = vec_random(ROWS * WIDTH, 3);
    AUTO(vec) struct vec *out = vec_poison(ROWS * HEADS * (D + 1));
    AUTO(vec) struct vec *dout = vec_random(ROWS * HEADS * D, 1);
    AUTO(vec) struct vec *dqkv = vec_poison(ROWS * WIDTH);
    struct rope_args r = {.rows = ROWS,
                          .seq_len = T,
                          .heads = HEADS,
                          .kv_heads = KV,
                          .head_dim = D,
                          .theta = 1e4,
                          .qkv = qkv->f};
    AUTO_FREE void *none = prepare(k, KERN_ROPE, &r);
    k->rope(k, &r, NULL);
    expect("rope", 0xc74666e3a2470c67, qkv);
    struct attn_args a = {.batch = ROWS / T,
                          .seq_len = T,
                          .heads = HEADS,
                          .kv_heads = KV,
                          .head_dim = D,
                          .qkv = qkv->f,
                          .out = out->f,
                          .lse = out->f + ROWS * HEADS * D,
                          .dout = dout->f,
                          .dqkv = dqkv->f};
    AUTO_FREE void *scratch = prepare(k, KERN_ATTN_FWD, &a);
    a.scratch = scratch;
    k->attn_fwd(k, &a, NULL);
    expect("attn_fwd", 0x5b5a08d555e53dc6, out);
    AUTO_FREE void *scratch_bwd = prepare(k, KERN_ATTN_BWD, &a);
    a.scratch = scratch_bwd;
    k->attn_bwd(k, &a, NULL);
    expect("attn_bwd", 0x96b1088c706d044c, dqkv);
}

static void act_bits(struct kern *k, enum act_kind kind, uint64_t fwd, uint64_t bwd)
{
    AUTO(vec) struct vec *x = vec_random(2 * ROWS * WIDTH, 6);
    AUTO(vec) struct vec *dy = vec_random(ROWS * WIDTH, 1);
    AUTO(vec) struct vec *y = vec_poison(ROWS * WIDTH);
    struct act_args a = {.kind = kind,
                         .rows = ROWS,
                         .cols = WIDTH,
                         .x = x->f,
                         .y = y->f,
                         .dy = dy->f,
                         .dx = x->f};
    k->act_fwd(k, &a, NULL);
    expect("act_fwd", fwd, y);
    k->act_bwd(k, &a, NULL);
    expect("act_bwd", bwd, x);
}

static void activations(void **state)
{
    act_bits(*state, ACT_GELU, 0xbb2336011c1f65a4, 0x1c9282d051d6688d);
    act_bits(*state, ACT_SWIGLU, 0x42bbe6a7624a6278, 0x2335cbb8570b4e98);
}

static void cross_entropy(void **state)
{
    struct kern *k = *state;
    AUTO_FREE int32_t *targets = random_ids(ROWS, WIDTH, 9);
    AUTO(vec) struct vec *logits = vec_random(ROWS * WIDTH, 4);
    AUTO(vec) struct vec *stats = vec_poison(3 * ROWS + 2);
    double loss;
    struct xent_args a = {.rows = ROWS,
                          .vocab = WIDTH,
                          .vocab_valid = WIDTH - 3,
                          .logits = logits->f,
                          .targets = targets,
                          .row_max = stats->f,
                          .row_sum = stats->f + ROWS,
                          .row_target = stats->f + 2 * ROWS,
                          .scale = 0.01f,
                          .loss = &loss};
    k->xent_max(k, &a, NULL);
    k->xent_sum(k, &a, NULL);
    k->xent_grad(k, &a, NULL);
    memcpy(stats->f + 3 * ROWS, &loss, sizeof(loss));
    expect("xent statistics", 0x24151deae2e544e1, stats);
    expect("xent dlogits", 0x71ef80fd7bdc2cb9, logits);
}

static void optimizer(void **state)
{
    struct kern *k = *state;
    enum { N = 5001 };
    AUTO(vec) struct vec *p = vec_random(3 * N, 1);
    AUTO(vec) struct vec *g = vec_random(N, 1);
    AUTO(vec) struct vec *sum = vec_poison(2);
    float scale = 0.3f;
    int32_t skip = 0;
    for (int64_t i = 2 * N; i < 3 * N; i++)
        p->f[i] = fabsf(p->f[i]);
    struct adamw_segment seg = {
        .p = p->f, .m = p->f + N, .v = p->f + 2 * N, .g = g->f, .n = N, .decay = true};
    struct adamw_args a = {.segments = &seg,
                           .n_segments = 1,
                           .lr = 1e-2,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .bias1 = 0.19,
                           .bias2 = 0.0975,
                           .grad_scale = &scale,
                           .skip = &skip};
    k->adamw(k, &a, NULL);
    expect("adamw", 0x155d17b4415f325a, p);
    double s;
    struct sumsq_args q = {.n = N, .x = g->f, .sum = &s};
    k->sumsq(k, &q, NULL);
    memcpy(sum->f, &s, sizeof(s));
    expect("sumsq", 0xa7bb9c4a5fc4ba8f, sum);
}

static int setup(void **state)
{
    *state = open_kern();
    return 0;
}

static int teardown(void **state)
{
    kern_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),       cmocka_unit_test(rope_and_attention),
        cmocka_unit_test(activations), cmocka_unit_test(cross_entropy),
        cmocka_unit_test(optimizer),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
