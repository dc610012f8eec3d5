/* job.h under noise: events that no world would send, at random.  Whatever comes, what was
 * promised of orders holds, and what is refused has changed nothing.
 *
 * DSLAUNCH_SEED=N sends others; the seed is printed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "common/base/err.h"
#include "launcher/super/job.h"

#define S 1000000000LL

static uint64_t rnd(uint64_t *x, uint64_t n)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

static bool chance(uint64_t *x, unsigned percent)
{
    return rnd(x, 100) < percent;
}

struct wild {
    bool finished;
    uint32_t newest, n_orders, n_launches, n_granted, n_asked;
};

static void on_wild_order(void *ctx, const struct job_order *o)
{
    struct wild *x = ctx;
    assert_false(x->finished);
    x->n_orders++;
    x->finished = o->kind == JOB_DO_FINISH;
    x->n_granted += o->kind == JOB_DO_FAILURE && o->restarts;
    if (o->kind == JOB_DO_LAUNCH) {
        assert_true(o->generation > x->newest);
        x->newest = o->generation;
        x->n_launches++;
        assert_true(x->n_launches <= x->n_granted + x->n_asked + 1);
    }
}

static void random_events(void **state)
{
    (void)state;
    static const uint32_t node_of_rank[] = {0, 0, 1, 2};
    static const int codes[] = {0, 1, 1, 1, 94, 94, 94, -9, -9, -11, -11, 96, 75, 2};
    const char *seed = getenv("DSLAUNCH_SEED");
    uint64_t random = seed ? strtoull(seed, NULL, 0) : 1;
    print_message("# DSLAUNCH_SEED=%llu\n", (unsigned long long)random);
    uint64_t refused = 0;
    uint32_t most = 0;
    for (uint64_t n = 0; n < 1000000;) {
        struct job_params p = {.n_nodes = 3,
                               .n_ranks = 4,
                               .node_of_rank = node_of_rank,
                               .connect_ns = S,
                               .launch_ns = S,
                               .grace_ns = S,
                               .restart = {.max = 5, .window_ns = 1000000 * S, .backoff_ns = S},
                               .first_generation = 1 + (uint32_t)rnd(&random, 3)};
        struct wild x = {0};
        struct job *j = job_new(&p, on_wild_order, &x);
        int64_t now = 0;
        uint64_t until = n + 20 + rnd(&random, 300);
        struct job_event ev = {.kind = JOB_EV_START};
        for (; n < until; n++) {
            struct err e;
            enum job_state was = job_state(j);
            uint32_t n_orders = x.n_orders;
            x.n_asked +=
                ev.kind == JOB_EV_RESTART && (was == JOB_RUNNING || was == JOB_BOOTING);
            if (job_event(j, &ev, now, &e) < 0) {
                refused++;
                assert_int_equal(e.kind, ERR_PROTOCOL);
                assert_int_equal(job_state(j), was);
                assert_int_equal(x.n_orders, n_orders);
            }
            assert_true(job_restarts(j) <= p.restart.max);
            assert_true((job_state(j) == JOB_ENDED) == x.finished);
            ev = (struct job_event){
                .kind = (enum job_event_kind)rnd(&random, chance(&random, 98) ? JOB_EV_STOP
                                                                              : JOB_EV_COUNT),
                .node = (uint32_t)rnd(&random, 4),
                .rank = (uint32_t)rnd(&random, 5),
                .generation = job_generation(j) +
                              (chance(&random, 90) ? 0 : (uint32_t)rnd(&random, 3) - 1),
                .exit_code = codes[rnd(&random, sizeof codes / sizeof codes[0])],
                .done = chance(&random, 50),
                .stopped = chance(&random, 20),
                .blamed = (uint32_t)rnd(&random, 7)};
            if (chance(&random, 10))
                ev.kind = JOB_EV_TICK;
            if (chance(&random, 2))
                ev.kind = JOB_EV_RESTART;
            now += (int64_t)rnd(&random, 3) * S;
        }
        most = x.n_launches > most ? x.n_launches : most;
        job_free(j);
    }
    assert_true(refused > 1000);
    assert_true(most > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_events)};
    return cmocka_run_group_tests_name("jobnoise", tests, NULL, NULL);
}
