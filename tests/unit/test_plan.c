/* plan.h: placement, slots, environment.  forecast.h: what is said about them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/spec/spec.h"
#include "launcher/plan/forecast.h"
#include "launcher/plan/plan.h"

struct fixture {
    struct spec s;
    struct spec_node nodes[4];
};

static void cube(struct fixture *f, uint32_t n_nodes)
{
    static char hosts[4][3] = {"n0", "n1", "n2", "n3"};
    *f = (struct fixture){0};
    struct spec *s = &f->s;
    for (uint32_t i = 0; i < n_nodes; i++)
        f->nodes[i].host = hosts[i];
    s->cluster.nodes = f->nodes;
    s->cluster.n_nodes = n_nodes;
    s->model.arch = ARCH_LLAMA;
    s->model.layers = 5;
    s->model.hidden = 64;
    s->model.heads = s->model.kv_heads = 4;
    s->model.ffn = 128;
    s->model.vocab = 16;
    s->train.seq_len = 8;
    s->parallel.data = s->parallel.pipeline = s->parallel.tensor = 2;
}

static void test_placement(void **state)
{
    (void)state;
    struct fixture f;
    cube(&f, 4);
    struct err e = {0};
    AUTO(plan) struct plan *p = plan_new(&f.s, (uint32_t[]){3, 1, 6, 2}, NULL, &e);
    assert_non_null(p);
    assert_int_equal(p->world, 8);
    assert_int_equal(p->n_nodes, 4);
    assert_int_equal(p->n_used, 3);
    static const uint32_t node[] = {0, 0, 0, 1, 2, 2, 2, 2}, local[] = {0, 1, 2, 0, 0, 1, 2, 3};
    for (uint32_t i = 0; i < 8; i++) {
        const struct plan_rank *r = &p->ranks[i];
        assert_int_equal(r->rank, i);
        assert_int_equal(r->node, node[i]);
        assert_int_equal(r->local_rank, local[i]);
        assert_int_equal(r->at.pp, i / 4);
        assert_int_equal(r->at.tp, i % 2);
        assert_int_equal(r->layer0, i < 4 ? 0 : p->ranks[0].n_layers);
        assert_int_equal(p->ranks[0].n_layers + p->ranks[7].n_layers, 5);
    }
    static const uint32_t first[] = {0, 3, 4, 8}, n[] = {3, 1, 4, 0};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(p->nodes[i].first_rank, first[i]);
        assert_int_equal(p->nodes[i].n_ranks, n[i]);
        assert_string_equal(p->nodes[i].host, f.nodes[i].host);
    }
}

static void test_exact_fit_and_too_few(void **state)
{
    (void)state;
    struct fixture f;
    cube(&f, 2);
    struct err e = {0};
    AUTO(plan) struct plan *p = plan_new(&f.s, (uint32_t[]){4, 4}, NULL, &e);
    assert_non_null(p);
    assert_int_equal(p->n_used, 2);
    assert_null(plan_new(&f.s, (uint32_t[]){4, 3}, NULL, &e));
    assert_int_equal(e.kind, ERR_SPEC);
    assert_non_null(strstr(e.text, "needs 8 workers"));
    assert_non_null(strstr(e.text, "7 slots on 2 nodes"));
}

static void test_local_slots(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t got[3];
    cube(&f, 3);
    plan_slots_local(&f.s, 2, got); /* 8 workers on 2 cores: ceil(8 / 3) a node */
    assert_true(got[0] == 3 && got[1] == 3 && got[2] == 3);
    plan_slots_local(&f.s, 16, got);
    assert_true(got[0] == 16 && got[2] == 16);
    f.s.cluster.slots = 5;
    f.nodes[1].slots = 1;
    plan_slots_local(&f.s, 16, got);
    assert_true(got[0] == 5 && got[1] == 1 && got[2] == 5);
}

static const char *value(char *const *env, const char *name)
{
    const char *found = NULL;
    size_t n = strlen(name);
    for (; *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') {
            assert_null(found); /* once */
            found = *env + n + 1;
        }
    return found;
}

static void test_environment(void **state)
{
    (void)state;
    struct fixture f;
    cube(&f, 2);
    char *set[] = {(char[]){"A=1"}, (char[]){"RANK=9"}, (char[]){"WANDB_KEY=spec"},
                   (char[]){"A=2"}, NULL};
    char *pass[] = {(char[]){"HOME"}, (char[]){"WANDB_*"}, NULL};
    char *user[] = {(char[]){"HOME=/root"},     (char[]){"HOMEX=no"},
                    (char[]){"WANDB_KEY=user"}, (char[]){"WANDB_MODE=off"},
                    (char[]){"WANDB=no"},       NULL};
    f.s.cluster.env = set;
    f.s.job.env = pass;
    AUTO(plan) struct plan *p = plan_new(&f.s, (uint32_t[]){6, 2}, user, NULL);
    assert_non_null(p);
    char **env = plan_env(p, 7);
    static const struct {
        const char *name, *value;
    } want[] = {{"RANK", "7"},
                {"WORLD_SIZE", "8"},
                {"LOCAL_RANK", "1"},
                {"LOCAL_WORLD_SIZE", "2"},
                {"NODE_RANK", "1"},
                {"GROUP_RANK", "1"},
                {"A", "2"},
                {"WANDB_KEY", "spec"},
                {"WANDB_MODE", "off"},
                {"HOME", "/root"}};
    size_t n = 0;
    for (; n < sizeof want / sizeof *want; n++) {
        assert_non_null(value(env, want[n].name));
        assert_string_equal(value(env, want[n].name), want[n].value);
    }
    assert_null(env[n]);
    plan_env_free(env);

    env = plan_env(p, 0);
    assert_string_equal(value(env, "LOCAL_WORLD_SIZE"), "6");
    assert_string_equal(value(env, "NODE_RANK"), "0");
    plan_env_free(env);
}

static void forecast_cube(struct fixture *f, uint32_t batch)
{
    static char name[] = "cube";
    cube(f, 2);
    f->s.name = name;
    f->s.train.batch = batch;
    f->s.train.micro_batch = 2;
    f->s.parallel.schedule = SCHEDULE_1F1B;
    f->s.parallel.sequence = true;
}

static void test_text(void **state)
{
    (void)state;
    struct fixture f;
    forecast_cube(&f, 12);
    AUTO(plan) struct plan *p = plan_new(&f.s, (uint32_t[]){4, 4}, NULL, NULL);
    AUTO(forecast) struct forecast *c = forecast_new(&f.s, p, NULL);
    assert_non_null(c);
    AUTO_BUF struct buf out = BUF(1 << 20), small = BUF(100);
    assert_int_equal(forecast_text(c, &out), 0);
    static const char *const want[] = {
        "data 2 x micro-batch 2 x accumulation 3; 96 tokens",
        "bubble 25.0 %",
        "   1  4-7            4  n1\n",
        "  data        0,2 1,3 4,6 5,7\n",
        "  stage 0  01..<02<1.<2\n",
        "  stage 1  .0<01<12<2..\n",
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(buf_str(&out), want[i]))
            fail_msg("no \"%s\" in\n%s", want[i], buf_str(&out));
    assert_null(strstr(buf_str(&out), "embedding"));
    assert_int_equal(forecast_text(c, &small), -1);
}

static json_int_t number(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static void test_json(void **state)
{
    (void)state;
    struct fixture f;
    forecast_cube(&f, 12);
    AUTO(plan) struct plan *p = plan_new(&f.s, (uint32_t[]){6, 4}, NULL, NULL);
    AUTO(forecast) struct forecast *c = forecast_new(&f.s, p, NULL);
    AUTO_BUF struct buf out = BUF(1 << 20);
    assert_int_equal(forecast_json(c, &out), 0);
    json_t *o = json_loads(buf_str(&out), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    assert_int_equal(number(o, "parameters"), c->n_params);
    assert_int_equal(number(json_object_get(o, "batch"), "accumulation"), 3);
    const json_t *ranks = json_object_get(o, "ranks");
    assert_int_equal(json_array_size(ranks), 8);
    for (size_t i = 0; i < 8; i++) {
        json_t *r = json_array_get(ranks, i), *v;
        json_int_t sum = 0;
        const char *name;
        json_object_foreach(json_object_get(r, "bytes"), name, v) sum += json_integer_value(v);
        assert_true(sum > 0);
        assert_int_equal(number(r, "arena_bytes"), sum);
        assert_int_equal(number(r, "node"), i / 6);
    }
    const json_t *data = json_object_get(json_object_get(o, "groups"), "data");
    assert_int_equal(json_array_size(data), 4);
    assert_int_equal(json_integer_value(json_array_get(json_array_get(data, 3), 1)), 7);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placement),   cmocka_unit_test(test_exact_fit_and_too_few),
        cmocka_unit_test(test_local_slots), cmocka_unit_test(test_environment),
        cmocka_unit_test(test_text),        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
