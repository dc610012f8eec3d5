/* flops.h against published figures and against the parameter table. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/shape/flops.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"

static void llama3_8b(struct spec *s)
{
    *s = (struct spec){0};
    s->model.arch = ARCH_LLAMA;
    s->model.layers = 32;
    s->model.hidden = 4096;
    s->model.heads = 32;
    s->model.kv_heads = 8;
    s->model.ffn = 14336;
    s->model.vocab = 128256;
    s->parallel.data = s->parallel.tensor = s->parallel.pipeline = 1;
    s->train.seq_len = 8192;
}

static void gpt2_124m(struct spec *s)
{
    llama3_8b(s);
    s->model.arch = ARCH_GPT2;
    s->model.layers = 12;
    s->model.hidden = 768;
    s->model.heads = s->model.kv_heads = 12;
    s->model.ffn = 3072;
    s->model.vocab = 50257;
    s->model.max_positions = 1024;
    s->model.tied = true;
    s->train.seq_len = 1024;
}

static void test_llama3(void **state)
{
    (void)state;
    struct spec s;
    llama3_8b(&s);
    assert_true(fabs(flops_per_token(&s) - 51.47e9) < 0.005e9);
}

/* Weights in matrix products, from the table: matrices, less tables that are looked up. */
static double matmul_weights(const struct spec *s)
{
    AUTO(params) struct params *p = params_new(s, (struct coord){0});
    double n = 0;
    for (size_t i = 0; i < p->n_params; i++) {
        const struct param *m = &p->params[i];
        bool table =
            strstr(m->name, "wte") || strstr(m->name, "wpe") || strstr(m->name, "embed");
        if (m->ndim == 2 && (!table || m->tied))
            n += (double)(m->shape[0] * m->shape[1]);
    }
    return n;
}

static void check(const struct spec *s)
{
    double attention = 6.0 * s->model.layers * s->model.hidden * s->train.seq_len;
    double want = 6 * matmul_weights(s) + attention;
    assert_true(fabs(flops_per_token(s) / want - 1) < 1e-12);
    assert_true(fabs((s->model.layers * flops_layer_per_token(s) + flops_head_per_token(s)) /
                         flops_per_token(s) -
                     1) < 1e-12);
}

static void test_against_table(void **state)
{
    (void)state;
    struct spec s;
    llama3_8b(&s);
    check(&s);
    s.model.tied = true;
    check(&s);
    gpt2_124m(&s);
    check(&s);
    s.model.tied = false;
    check(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_against_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
