/* job.h: the table, and the life of a job told in scenarios.  Random worlds are in
 * test_jobworld.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "launcher/super/job.h"

#define S 1000000000LL

enum { NODES = 2, RANKS = 4 }; /* ranks 0 1 on node 0, 2 3 on node 1 */

static const uint32_t placed[RANKS] = {0, 0, 1, 1};

struct rig {
    struct job *job;
    int64_t now;
    struct buf said; /* orders in short: "boot 0; launch g1; ..." */
};

static void on_order(void *ctx, const struct job_order *o)
{
    struct rig *r = ctx;
    struct buf *b = &r->said;
    switch (o->kind) {
    case JOB_DO_BOOT:
        buf_printf(b, "boot %u; ", o->node);
        break;
    case JOB_DO_LAUNCH:
        buf_printf(b, "launch g%u; ", o->generation);
        break;
    case JOB_DO_SIGNAL_STOP:
        buf_printf(b, "stop g%u; ", o->generation);
        break;
    case JOB_DO_KILL:
        buf_printf(b, "kill %u g%u; ", o->node, o->generation);
        break;
    case JOB_DO_DISMISS:
        buf_printf(b, "dismiss %u; ", o->node);
        break;
    case JOB_DO_FAILURE:
        buf_printf(b, "failure g%u %s", o->generation, job_cause_name(o->cause));
        if (o->node != UINT32_MAX)
            buf_printf(b, " node %u", o->node);
        if (o->rank != UINT32_MAX)
            buf_printf(b, " rank %u exit %d", o->rank, o->rank_exit);
        buf_printf(b, " (%s); ", o->rule);
        assert_int_equal(o->restarts, strncmp(o->rule, "restart ", 8) == 0);
        break;
    case JOB_DO_BACKOFF:
        buf_printf(b, "backoff %.1f; ", (double)(o->until_ns - r->now) / 1e9);
        break;
    case JOB_DO_FINISH:
        buf_printf(b, "finish %d %s; ", o->exit_code, job_outcome_name(o->outcome));
        break;
    }
}

/* Events; each must be accepted. */

static void send(struct rig *r, struct job_event ev)
{
    struct err e;
    if (job_event(r->job, &ev, r->now, &e) < 0)
        fail_msg("%s", e.text);
}

static void of_node(struct rig *r, enum job_event_kind kind, uint32_t node, uint32_t generation)
{
    send(r, (struct job_event){.kind = kind, .node = node, .generation = generation});
}

static void exited(struct rig *r, uint32_t rank, uint32_t generation, int code)
{
    send(r, (struct job_event){.kind = JOB_EV_RANK_EXITED,
                               .rank = rank,
                               .generation = generation,
                               .exit_code = code});
}

static void lost_peer(struct rig *r, uint32_t rank, uint32_t generation, uint32_t peer)
{
    send(r, (struct job_event){.kind = JOB_EV_RANK_EXITED,
                               .rank = rank,
                               .generation = generation,
                               .exit_code = WORKER_EXIT_PEER_LOST,
                               .blamed = peer + 1});
}

static void done(struct rig *r, uint32_t rank, uint32_t generation, bool stopped)
{
    send(r, (struct job_event){.kind = JOB_EV_RANK_EXITED,
                               .rank = rank,
                               .generation = generation,
                               .done = true,
                               .stopped = stopped});
}

static void of_rank(struct rig *r, enum job_event_kind kind, uint32_t rank, uint32_t generation)
{
    send(r, (struct job_event){.kind = kind, .rank = rank, .generation = generation});
}

static void just(struct rig *r, enum job_event_kind kind)
{
    send(r, (struct job_event){.kind = kind});
}

static void tick_at_deadline(struct rig *r)
{
    assert_true(job_deadline(r->job) < INT64_MAX);
    just(r, JOB_EV_TICK); /* too early: nothing */
    r->now = job_deadline(r->job);
    just(r, JOB_EV_TICK);
}

/* What was ordered since the last call, and where the job is. */
static void expect(struct rig *r, const char *orders, enum job_state s)
{
    assert_string_equal(buf_str(&r->said), orders);
    assert_string_equal(job_state_name(job_state(r->job)), job_state_name(s));
    buf_clear(&r->said);
}

static void begin(struct rig *r, uint32_t max, uint32_t first_generation)
{
    const struct job_params p = {
        .n_nodes = NODES,
        .n_ranks = RANKS,
        .node_of_rank = placed,
        .connect_ns = 10 * S,
        .launch_ns = 30 * S,
        .grace_ns = 20 * S,
        .restart = {.max = max, .window_ns = 3600 * S, .backoff_ns = 2 * S},
        .first_generation = first_generation,
    };
    *r = (struct rig){.now = 1000 * S, .said = BUF(1 << 16)};
    r->job = job_new(&p, on_order, r);
    just(r, JOB_EV_START);
    expect(r, "boot 0; boot 1; ", JOB_BOOTING);
    assert_int_equal(job_generation(r->job), 0);
}

static void end(struct rig *r)
{
    job_free(r->job);
    buf_done(&r->said);
}

static void launch(struct rig *r, uint32_t max)
{
    begin(r, max, 1);
    of_node(r, JOB_EV_AGENT_READY, 0, 0);
    of_node(r, JOB_EV_AGENT_READY, 1, 0);
    expect(r, "launch g1; ", JOB_LAUNCHING);
}

static void run(struct rig *r, uint32_t max)
{
    launch(r, max);
    send(r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = 1});
    expect(r, "", JOB_RUNNING);
    assert_true(job_deadline(r->job) == INT64_MAX);
}

static void both_clear(struct rig *r, uint32_t generation)
{
    of_node(r, JOB_EV_NODE_CLEAR, 0, generation);
    of_node(r, JOB_EV_NODE_CLEAR, 1, generation);
}

static void dismiss_both(struct rig *r, const char *finish)
{
    of_node(r, JOB_EV_DISMISSED, 1, 0);
    of_node(r, JOB_EV_AGENT_LOST, 1, 0); /* its channel ends */
    expect(r, "", JOB_DISMISSING);
    of_node(r, JOB_EV_DISMISSED, 0, 0);
    expect(r, finish, JOB_ENDED);
    just(r, JOB_EV_STOP_NOW);
    of_node(r, JOB_EV_AGENT_LOST, 0, 0);
    just(r, JOB_EV_TICK);
    expect(r, "", JOB_ENDED);
}

/* Scenarios. */

static void completes(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    for (uint32_t i = 0; i < 3; i++)
        done(&r, i, 1, false);
    of_node(&r, JOB_EV_AGENT_LOST, 0, 0); /* all its ranks are done: it is not needed */
    expect(&r, "", JOB_RUNNING);
    done(&r, 3, 1, false);
    expect(&r, "dismiss 1; ", JOB_DISMISSING);
    of_node(&r, JOB_EV_DISMISSED, 1, 0);
    expect(&r, "finish 0 completed; ", JOB_ENDED);
    end(&r);
}

static void culprit_and_victims(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    lost_peer(&r, 0, 1, 3); /* heard first, but only a victim */
    expect(&r, "kill 0 g1; kill 1 g1; ", JOB_CLEARING);
    exited(&r, 1, 1, -9);
    exited(&r, 3, 1, -11);
    exited(&r, 2, 1, 95);
    expect(&r, "", JOB_CLEARING);
    of_node(&r, JOB_EV_NODE_CLEAR, 1, 1);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 1);
    expect(&r,
           "failure g1 signal node 1 rank 3 exit -11 (restart 1 of 5 within 1h); launch g2; ",
           JOB_LAUNCHING);
    exited(&r, 0, 1, 1); /* stale */
    of_rank(&r, JOB_EV_RANK_HUNG, 0, 1);
    expect(&r, "", JOB_LAUNCHING);
    assert_int_equal(job_generation(r.job), 2);
    assert_int_equal(job_restarts(r.job), 1);
    assert_int_equal(job_restarts_left(r.job, r.now), 4);
    end(&r);
}

static void killed_outright(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    exited(&r, 2, 1, -9); /* before any order of ours: no victim */
    lost_peer(&r, 1, 1, 2);
    exited(&r, 0, 1, 1);
    both_clear(&r, 1);
    expect(&r,
           "kill 0 g1; kill 1 g1; failure g1 signal node 1 rank 2 exit -9 (restart 1 of 5 "
           "within 1h); launch g2; ",
           JOB_LAUNCHING);
    end(&r);
}

static void only_victims(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    lost_peer(&r, 1, 1, 0); /* 1 blames 0, 0 blames 3, whose -9 passes for ours */
    lost_peer(&r, 0, 1, 3);
    exited(&r, 2, 1, -9);
    exited(&r, 3, 1, -9);
    both_clear(&r, 1);
    expect(&r,
           "kill 0 g1; kill 1 g1; failure g1 signal node 1 rank 3 exit -9 (restart 1 of 5 "
           "within 1h); launch g2; ",
           JOB_LAUNCHING);
    lost_peer(&r, 1, 2, 0); /* they blame each other: the first is named */
    lost_peer(&r, 0, 2, 1);
    both_clear(&r, 2);
    expect(&r,
           "kill 0 g2; kill 1 g2; failure g2 exit node 0 rank 1 exit 94 (restart 2 of 5 within "
           "1h); backoff 2.0; ",
           JOB_BACKOFF);
    end(&r);
}

static void exits_without_done(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 0);
    exited(&r, 3, 1, 0);
    both_clear(&r, 1);
    expect(&r,
           "kill 0 g1; kill 1 g1; failure g1 exit node 1 rank 3 exit 0 (restart.max is 0); "
           "dismiss 0; dismiss 1; ",
           JOB_DISMISSING);
    dismiss_both(&r, "finish 1 failed; ");
    end(&r);
}

static void budget(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 2);
    exited(&r, 0, 1, 1);
    both_clear(&r, 1);
    exited(&r, 0, 2, 1);
    both_clear(&r, 2);
    assert_int_equal(job_state(r.job), JOB_BACKOFF);
    buf_clear(&r.said);
    tick_at_deadline(&r);
    expect(&r, "launch g3; ", JOB_LAUNCHING);
    exited(&r, 0, 3, 1);
    both_clear(&r, 3);
    expect(&r,
           "kill 0 g3; kill 1 g3; failure g3 exit node 0 rank 0 exit 1 (restart.max 2 within "
           "1h used up); dismiss 0; dismiss 1; ",
           JOB_DISMISSING);
    dismiss_both(&r, "finish 1 failed; ");
    end(&r);
}

static void earlier_restarts_count(void **state)
{
    (void)state;
    static const int64_t before[] = {-5000 * S, 900 * S, 990 * S};
    const struct job_params p = {.n_nodes = NODES,
                                 .n_ranks = RANKS,
                                 .node_of_rank = placed,
                                 .restart = {.max = 3, .window_ns = 3600 * S, .backoff_ns = S},
                                 .first_generation = 8,
                                 .restarted_ns = before,
                                 .n_restarted = 3};
    struct rig r = {.now = 1000 * S, .said = BUF(1 << 16)};
    r.job = job_new(&p, on_order, &r);
    assert_int_equal(job_restarts(r.job), 3);
    assert_int_equal(job_restarts_left(r.job, r.now), 1);
    end(&r);
}

static void agent_killed(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    lost_peer(&r, 0, 1, 2);
    of_node(&r, JOB_EV_AGENT_LOST, 1, 0);
    expect(&r, "kill 0 g1; kill 1 g1; ", JOB_CLEARING);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 1);
    expect(&r, "failure g1 node-lost node 1 (restart 1 of 5 within 1h); boot 1; ", JOB_BOOTING);
    of_node(&r, JOB_EV_AGENT_READY, 1, 0);
    expect(&r, "launch g2; ", JOB_LAUNCHING);
    end(&r);
}

static void agent_comes_back_with_workers(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    of_node(&r, JOB_EV_AGENT_LOST, 1, 0); /* only its channel broke */
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 1);
    buf_clear(&r.said);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 1);
    exited(&r, 2, 1, 94);
    expect(&r, "kill 1 g1; ", JOB_BOOTING); /* never adopted: the generation is over */
    of_node(&r, JOB_EV_NODE_CLEAR, 1, 1);
    expect(&r, "launch g2; ", JOB_LAUNCHING);
    end(&r);
}

static void node_never_comes_back(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 3);
    of_node(&r, JOB_EV_AGENT_LOST, 1, 0);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 1);
    buf_clear(&r.said);
    of_node(&r, JOB_EV_BOOT_FAILED, 1, 0);
    expect(&r, "failure g1 boot node 1 (restart 2 of 3 within 1h); backoff 2.0; ", JOB_BACKOFF);
    tick_at_deadline(&r);
    expect(&r, "boot 1; ", JOB_BOOTING);
    tick_at_deadline(&r); /* boot says nothing at all */
    expect(&r, "failure g1 boot node 1 (restart 3 of 3 within 1h); backoff 4.0; ", JOB_BACKOFF);
    tick_at_deadline(&r);
    of_node(&r, JOB_EV_BOOT_FAILED, 1, 0);
    expect(&r, "boot 1; failure g1 boot node 1 (restart.max 3 within 1h used up); dismiss 0; ",
           JOB_DISMISSING);
    of_node(&r, JOB_EV_DISMISSED, 0, 0);
    expect(&r, "finish 3 cluster; ", JOB_ENDED);
    end(&r);
}

static void first_boot_fails(void **state)
{
    (void)state;
    struct rig r;
    begin(&r, 5, 1);
    of_node(&r, JOB_EV_BOOT_FAILED, 0, 0);
    expect(&r, "", JOB_BOOTING); /* the others may have something to say, too */
    of_node(&r, JOB_EV_AGENT_READY, 1, 0);
    expect(&r,
           "failure g0 boot node 0 (every node is needed, and this one never came up); dismiss "
           "1; ",
           JOB_DISMISSING);
    of_node(&r, JOB_EV_DISMISSED, 1, 0);
    expect(&r, "finish 3 cluster; ", JOB_ENDED);
    end(&r);
}

static void agent_killed_in_first_boot(void **state)
{
    (void)state;
    struct rig r;
    begin(&r, 5, 1);
    of_node(&r, JOB_EV_AGENT_READY, 0, 0);
    of_node(&r, JOB_EV_AGENT_LOST, 0, 0);
    of_node(&r, JOB_EV_AGENT_READY, 1, 0);
    expect(&r, "failure g0 node-lost node 0 (restart 1 of 5 within 1h); boot 0; ", JOB_BOOTING);
    end(&r);
}

static void node_is_not_reaped_in_time(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    of_rank(&r, JOB_EV_RANK_HUNG, 2, 1);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 1);
    expect(&r, "kill 0 g1; kill 1 g1; ", JOB_CLEARING);
    tick_at_deadline(&r);
    expect(&r, "failure g1 hang node 1 rank 2 exit 0 (restart 1 of 5 within 1h); boot 1; ",
           JOB_BOOTING);
    just(&r, JOB_EV_STOP_NOW);
    expect(&r, "dismiss 0; ", JOB_DISMISSING);
    of_node(&r, JOB_EV_DISMISSED, 0, 0);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 1); /* there it is */
    expect(&r, "dismiss 1; ", JOB_DISMISSING);
    of_node(&r, JOB_EV_DISMISSED, 1, 0);
    expect(&r, "finish 130 killed; ", JOB_ENDED);
    end(&r);
}

static void late_clear_in_backoff(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    exited(&r, 0, 1, 1);
    both_clear(&r, 1);
    of_rank(&r, JOB_EV_RANK_STUCK, 0, 2);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 2);
    buf_clear(&r.said);
    tick_at_deadline(&r);
    expect(&r,
           "failure g2 protocol node 0 rank 0 exit 0 (restart 2 of 5 within 1h); backoff 2.0; ",
           JOB_BACKOFF);
    of_node(&r, JOB_EV_NODE_CLEAR, 1, 2);
    tick_at_deadline(&r);
    expect(&r, "launch g3; ", JOB_LAUNCHING);
    end(&r);
}

static void never_all_in(void **state)
{
    (void)state;
    struct rig r;
    launch(&r, 5);
    tick_at_deadline(&r);
    both_clear(&r, 1);
    expect(&r,
           "kill 0 g1; kill 1 g1; failure g1 start-timeout (restart 1 of 5 within 1h); launch "
           "g2; ",
           JOB_LAUNCHING);
    end(&r);
}

static void ends_without_restart(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *failure, *finish;
    } cases[] = {
        {WORKER_EXIT_SPEC, "exit 2: the spec cannot work, no restart", "finish 2 failed; "},
        {WORKER_EXIT_NO_RESTART, "exit 93: the rank wants no restart", "finish 1 failed; "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig r;
        AUTO_BUF struct buf want = BUF(1024);
        run(&r, 5);
        exited(&r, 1, 1, cases[i].code);
        both_clear(&r, 1);
        buf_printf(
            &want,
            "kill 0 g1; kill 1 g1; failure g1 exit node 0 rank 1 exit %d (%s); dismiss 0; "
            "dismiss 1; ",
            cases[i].code, cases[i].failure);
        expect(&r, want.data, JOB_DISMISSING);
        dismiss_both(&r, cases[i].finish);
        end(&r);
    }
}

static void preempted(void **state)
{
    (void)state;
    static const char failure[] =
        "kill 0 g1; kill 1 g1; failure g1 exit node 1 rank 2 exit 75 "
        "(exit 75: preempted, wants a requeue); dismiss 0; dismiss 1; ";
    struct rig r;
    run(&r, 5);
    exited(&r, 2, 1, WORKER_EXIT_PREEMPTED);
    expect(&r, "stop g1; ", JOB_STOPPING); /* the others may still save */
    done(&r, 0, 1, true);
    exited(&r, 3, 1, WORKER_EXIT_PREEMPTED);
    done(&r, 1, 1, true);
    both_clear(&r, 1);
    expect(&r, failure, JOB_DISMISSING);
    dismiss_both(&r, "finish 75 stopped; ");
    end(&r);
    run(&r, 5);
    exited(&r, 2, 1, WORKER_EXIT_PREEMPTED);
    lost_peer(&r, 0, 1, 2);
    buf_consume(&r.said, strlen("stop g1; "));
    both_clear(&r, 1);
    expect(&r, failure, JOB_DISMISSING);
    end(&r);
    launch(&r, 5);
    exited(&r, 2, 1, WORKER_EXIT_PREEMPTED); /* nothing to save yet */
    both_clear(&r, 1);
    expect(&r, failure, JOB_DISMISSING);
    end(&r);
}

static void stop_while_running(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    just(&r, JOB_EV_STOP);
    expect(&r, "stop g1; ", JOB_STOPPING);
    just(&r, JOB_EV_STOP);
    expect(&r, "", JOB_STOPPING);
    for (uint32_t i = 0; i < RANKS; i++)
        done(&r, i, 1, i != 3);
    expect(&r, "dismiss 0; dismiss 1; ", JOB_DISMISSING);
    just(&r, JOB_EV_STOP_NOW); /* the outcome stands */
    expect(&r, "", JOB_DISMISSING);
    dismiss_both(&r, "finish 0 stopped; ");
    end(&r);
}

static void stop_after_the_last_step(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    just(&r, JOB_EV_STOP);
    for (uint32_t i = 0; i < RANKS; i++)
        done(&r, i, 1, false);
    buf_clear(&r.said);
    dismiss_both(&r, "finish 0 completed; ");
    end(&r);
}

static void stop_fails(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    just(&r, JOB_EV_STOP);
    exited(&r, 1, 1, WORKER_EXIT_STORAGE);
    both_clear(&r, 1);
    expect(&r,
           "stop g1; kill 0 g1; kill 1 g1; failure g1 exit node 0 rank 1 exit 96 (it failed "
           "while stopping, no restart); dismiss 0; dismiss 1; ",
           JOB_DISMISSING);
    dismiss_both(&r, "finish 1 failed; ");
    end(&r);
    run(&r, 5);
    just(&r, JOB_EV_STOP);
    of_node(&r, JOB_EV_AGENT_LOST, 0, 0);
    of_node(&r, JOB_EV_NODE_CLEAR, 1, 1);
    expect(&r,
           "stop g1; kill 1 g1; failure g1 node-lost node 0 (it failed while stopping, no "
           "restart); dismiss 1; ",
           JOB_DISMISSING);
    end(&r);
}

static void grace_runs_out(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    just(&r, JOB_EV_STOP);
    done(&r, 0, 1, true);
    tick_at_deadline(&r);
    both_clear(&r, 1);
    expect(&r,
           "stop g1; kill 0 g1; kill 1 g1; failure g1 hang node 0 rank 1 exit 0 (job.grace 20s "
           "ran out before all ranks had saved); dismiss 0; dismiss 1; ",
           JOB_DISMISSING);
    dismiss_both(&r, "finish 1 failed; ");
    end(&r);
}

static void stop_elsewhere(void **state)
{
    (void)state;
    struct rig r;
    begin(&r, 5, 1); /* booting: one is there, one on its way */
    of_node(&r, JOB_EV_AGENT_READY, 1, 0);
    just(&r, JOB_EV_STOP);
    expect(&r, "dismiss 1; ", JOB_DISMISSING);
    of_node(&r, JOB_EV_DISMISSED, 1, 0);
    of_node(&r, JOB_EV_AGENT_READY, 0, 0);
    expect(&r, "dismiss 0; ", JOB_DISMISSING);
    of_node(&r, JOB_EV_DISMISSED, 0, 0);
    expect(&r, "finish 0 stopped; ", JOB_ENDED);
    end(&r);

    launch(&r, 5); /* launching: no step has begun */
    just(&r, JOB_EV_STOP);
    both_clear(&r, 1);
    expect(&r, "kill 0 g1; kill 1 g1; dismiss 0; dismiss 1; ", JOB_DISMISSING);
    dismiss_both(&r, "finish 0 stopped; ");
    end(&r);

    run(&r, 5); /* clearing */
    exited(&r, 0, 1, 1);
    just(&r, JOB_EV_STOP);
    both_clear(&r, 1);
    expect(
        &r,
        "kill 0 g1; kill 1 g1; failure g1 exit node 0 rank 0 exit 1 (a stop was asked for, no "
        "restart); dismiss 0; dismiss 1; ",
        JOB_DISMISSING);
    dismiss_both(&r, "finish 0 stopped; ");
    end(&r);

    run(&r, 5); /* back-off */
    exited(&r, 0, 1, 1);
    both_clear(&r, 1);
    exited(&r, 0, 2, 1);
    both_clear(&r, 2);
    assert_int_equal(job_state(r.job), JOB_BACKOFF);
    buf_clear(&r.said);
    just(&r, JOB_EV_STOP);
    expect(&r, "dismiss 0; dismiss 1; ", JOB_DISMISSING);
    dismiss_both(&r, "finish 0 stopped; ");
    end(&r);
}

static void stop_now_everywhere(void **state)
{
    (void)state;
    for (int s = JOB_BOOTING; s <= JOB_BACKOFF; s++) {
        struct rig r;
        if (s == JOB_BOOTING) {
            begin(&r, 5, 1);
            of_node(&r, JOB_EV_AGENT_READY, 0, 0);
            of_node(&r, JOB_EV_AGENT_LOST, 0, 0);
        } else if (s == JOB_LAUNCHING) {
            launch(&r, 5);
        } else {
            run(&r, 5);
        }
        if (s == JOB_STOPPING)
            just(&r, JOB_EV_STOP);
        if (s >= JOB_CLEARING)
            exited(&r, 0, 1, 1);
        if (s == JOB_BACKOFF) {
            both_clear(&r, 1);
            exited(&r, 0, 2, 1);
            both_clear(&r, 2);
        }
        assert_int_equal(job_state(r.job), s);
        buf_clear(&r.said);
        just(&r, JOB_EV_STOP_NOW);
        if (s == JOB_BOOTING) {
            of_node(&r, JOB_EV_BOOT_FAILED, 1, 0);
            expect(&r,
                   "failure g0 node-lost node 0 (stopped at once, no restart); finish 130 "
                   "killed; ",
                   JOB_ENDED);
        } else {
            expect(&r,
                   s == JOB_CLEARING
                       ? "failure g1 exit node 0 rank 0 exit 1 (stopped at once, no "
                         "restart); dismiss 0; dismiss 1; "
                       : "dismiss 0; dismiss 1; ",
                   JOB_DISMISSING);
            dismiss_both(&r, "finish 130 killed; ");
        }
        end(&r);
    }
}

static void dismissal_has_a_deadline(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    just(&r, JOB_EV_STOP_NOW);
    of_node(&r, JOB_EV_DISMISSED, 0, 0);
    buf_clear(&r.said);
    tick_at_deadline(&r);
    expect(&r, "finish 130 killed; ", JOB_ENDED);
    of_node(&r, JOB_EV_DISMISSED, 1, 0);
    expect(&r, "", JOB_ENDED);
    end(&r);
}

/* A controller started again. */

static void adopts_running(void **state)
{
    (void)state;
    struct rig r;
    for (int early = 0; early < 2; early++) {
        begin(&r, 5, 8);
        if (early)
            send(&r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = 7});
        of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 7);
        assert_int_equal(job_generation(r.job), 7);
        of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
        expect(&r, "", early ? JOB_RUNNING : JOB_LAUNCHING);
        if (!early)
            send(&r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = 7});
        expect(&r, "", JOB_RUNNING);
        assert_true(job_deadline(r.job) == INT64_MAX);
        assert_int_equal(job_restarts(r.job), 0);
        exited(&r, 0, 7, 1);
        both_clear(&r, 7);
        expect(
            &r,
            "kill 0 g7; kill 1 g7; failure g7 exit node 0 rank 0 exit 1 (restart 1 of 5 within "
            "1h); launch g8; ",
            JOB_LAUNCHING);
        end(&r);
    }
}

static void adopts_what_ended_meanwhile(void **state)
{
    (void)state;
    struct rig r;
    begin(&r, 5, 8); /* one rank failed */
    send(&r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = 7});
    of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 7);
    exited(&r, 3, 7, -11);
    expect(&r, "", JOB_BOOTING);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
    both_clear(&r, 7);
    expect(
        &r,
        "kill 0 g7; kill 1 g7; failure g7 signal node 1 rank 3 exit -11 (restart 1 of 5 within "
        "1h); launch g8; ",
        JOB_LAUNCHING);
    end(&r);
    begin(&r, 5, 8); /* all were done */
    send(&r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = 7});
    of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 7);
    done(&r, 2, 7, false);
    done(&r, 3, 7, false);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
    expect(&r, "", JOB_RUNNING);
    done(&r, 0, 7, false);
    done(&r, 1, 7, false);
    expect(&r, "dismiss 0; dismiss 1; ", JOB_DISMISSING);
    end(&r);
}

static void adopts_half(void **state)
{
    (void)state;
    struct rig r;
    begin(&r, 5, 8);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
    of_node(&r, JOB_EV_AGENT_READY, 1, 0); /* its workers died with its agent */
    expect(&r, "kill 0 g7; ", JOB_CLEARING);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 7);
    expect(&r, "failure g7 node-lost node 1 (restart 1 of 5 within 1h); launch g8; ",
           JOB_LAUNCHING);
    end(&r);
    begin(&r, 5, 8); /* two generations: both are killed */
    of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 6);
    expect(&r, "kill 0 g7; kill 1 g6; ", JOB_CLEARING);
    of_node(&r, JOB_EV_NODE_CLEAR, 1, 6);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 7);
    expect(&r, "failure g7 node-lost node 1 (restart 1 of 5 within 1h); launch g8; ",
           JOB_LAUNCHING);
    end(&r);
    begin(&r, 5, 8); /* a node is gone: it may come back */
    of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
    of_node(&r, JOB_EV_BOOT_FAILED, 1, 0);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 7);
    expect(&r, "kill 0 g7; failure g7 boot node 1 (restart 1 of 5 within 1h); boot 1; ",
           JOB_BOOTING);
    end(&r);
    begin(&r, 5, 8); /* nothing lives: no failure, the next generation */
    of_node(&r, JOB_EV_AGENT_READY, 0, 0);
    of_node(&r, JOB_EV_AGENT_READY, 1, 0);
    expect(&r, "launch g8; ", JOB_LAUNCHING);
    end(&r);
    begin(&r, 5, 8); /* a generation that the journal does not know: killed, and passed */
    of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 9);
    of_node(&r, JOB_EV_AGENT_READY, 1, 0);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 9);
    expect(&r, "kill 0 g9; launch g10; ", JOB_LAUNCHING);
    end(&r);
}

static void stop_waits_for_adoption(void **state)
{
    (void)state;
    struct rig r;
    for (int all_in = 0; all_in < 2; all_in++) {
        begin(&r, 5, 8);
        of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
        just(&r, JOB_EV_STOP);
        if (all_in)
            send(&r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = 7});
        expect(&r, "", JOB_BOOTING);
        of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 7);
        expect(&r, all_in ? "stop g7; " : "kill 0 g7; kill 1 g7; ",
               all_in ? JOB_STOPPING : JOB_CLEARING);
        end(&r);
    }
    begin(&r, 5, 8);
    of_node(&r, JOB_EV_AGENT_READY, 0, 0);
    just(&r, JOB_EV_STOP);
    of_node(&r, JOB_EV_AGENT_READY, 1, 0);
    expect(&r, "dismiss 0; dismiss 1; ", JOB_DISMISSING);
    end(&r);
}

static void nodes_without_ranks(void **state)
{
    (void)state;
    const uint32_t node_of_rank[] = {1};
    const struct job_params p = {.n_nodes = 3,
                                 .n_ranks = 1,
                                 .node_of_rank = node_of_rank,
                                 .connect_ns = S,
                                 .launch_ns = S,
                                 .grace_ns = S,
                                 .restart = {.max = 1, .window_ns = S},
                                 .first_generation = 3};
    struct rig r = {.said = BUF(1 << 16)};
    r.job = job_new(&p, on_order, &r);
    just(&r, JOB_EV_START);
    of_node(&r, JOB_EV_AGENT_READY, 0, 0);
    of_node(&r, JOB_EV_AGENT_READY, 2, 0);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 2);
    expect(&r, "boot 0; boot 1; boot 2; ", JOB_LAUNCHING);
    of_node(&r, JOB_EV_AGENT_LOST, 2, 0); /* not needed ... */
    expect(&r, "", JOB_LAUNCHING);
    exited(&r, 0, 2, 1);
    of_node(&r, JOB_EV_NODE_CLEAR, 1, 2); /* ... until the next generation */
    expect(
        &r,
        "kill 1 g2; failure g2 exit node 1 rank 0 exit 1 (restart 1 of 1 within 1s); boot 2; ",
        JOB_BOOTING);
    of_node(&r, JOB_EV_AGENT_READY, 2, 0);
    expect(&r, "launch g3; ", JOB_LAUNCHING);
    end(&r);
}

/* The table. */

static const struct {
    enum job_state state;
    enum job_event_kind event;
} impossible[] = {
    /* START comes once; ALL_IN once a generation, out of LAUNCHING; agents of a generation at
     * work are all known, and asked to kill only after it. */
    {JOB_LAUNCHING, JOB_EV_START},
    {JOB_RUNNING, JOB_EV_START},
    {JOB_STOPPING, JOB_EV_START},
    {JOB_CLEARING, JOB_EV_START},
    {JOB_BACKOFF, JOB_EV_START},
    {JOB_DISMISSING, JOB_EV_START},
    {JOB_ENDED, JOB_EV_START},
    {JOB_RUNNING, JOB_EV_ALL_IN},
    {JOB_STOPPING, JOB_EV_ALL_IN},
    {JOB_LAUNCHING, JOB_EV_AGENT_READY},
    {JOB_RUNNING, JOB_EV_AGENT_READY},
    {JOB_STOPPING, JOB_EV_AGENT_READY},
    {JOB_LAUNCHING, JOB_EV_AGENT_ADOPTED},
    {JOB_RUNNING, JOB_EV_AGENT_ADOPTED},
    {JOB_STOPPING, JOB_EV_AGENT_ADOPTED},
    {JOB_LAUNCHING, JOB_EV_BOOT_FAILED},
    {JOB_RUNNING, JOB_EV_BOOT_FAILED},
    {JOB_STOPPING, JOB_EV_BOOT_FAILED},
    {JOB_LAUNCHING, JOB_EV_NODE_CLEAR},
    {JOB_RUNNING, JOB_EV_NODE_CLEAR},
    {JOB_STOPPING, JOB_EV_NODE_CLEAR},
};

static bool is_impossible(enum job_state s, enum job_event_kind k)
{
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++)
        if (impossible[i].state == s && impossible[i].event == k)
            return true;
    return false;
}

/* A job in that state, of generation 1 (2 in BACKOFF), with node 1 as an event would have it.
 */
static void bring(struct rig *r, enum job_state s)
{
    if (s == JOB_BOOTING || s == JOB_DISMISSING || s == JOB_ENDED) {
        begin(r, 5, 1);
        if (s == JOB_BOOTING)
            return;
        of_node(r, JOB_EV_AGENT_READY, 0, 0);
        just(r, JOB_EV_STOP_NOW);
        if (s == JOB_ENDED)
            tick_at_deadline(r);
    } else if (s == JOB_LAUNCHING) {
        launch(r, 5);
    } else {
        run(r, 5);
        if (s == JOB_STOPPING)
            just(r, JOB_EV_STOP);
        if (s >= JOB_CLEARING)
            exited(r, 0, 1, 1);
        if (s == JOB_BACKOFF) {
            both_clear(r, 1);
            exited(r, 0, 2, 1);
            both_clear(r, 2);
        }
    }
    assert_int_equal(job_state(r->job), s);
}

static void every_pair_is_told(void **state)
{
    (void)state;
    for (int s = 0; s < JOB_STATE_COUNT; s++) {
        for (int k = 0; k < JOB_EV_COUNT; k++) {
            struct rig r;
            struct err e = {0};
            bring(&r, (enum job_state)s);
            struct job_event ev = {.kind = (enum job_event_kind)k,
                                   .node = 1,
                                   .rank = 2,
                                   .exit_code = 1,
                                   .generation = job_generation(r.job)};
            int64_t deadline = job_deadline(r.job);
            uint32_t generation = job_generation(r.job);
            buf_clear(&r.said);
            int rc = job_event(r.job, &ev, r.now, &e);
            bool untold = rc < 0 && strstr(e.text, "cannot come while");
            if (untold != is_impossible((enum job_state)s, ev.kind))
                fail_msg("%s while %s: %s", job_event_name(ev.kind),
                         job_state_name((enum job_state)s), rc < 0 ? e.text : "accepted");
            if (rc < 0) {
                assert_int_equal(e.kind, ERR_PROTOCOL);
                assert_int_equal(job_state(r.job), s);
                assert_true(job_deadline(r.job) == deadline);
                assert_int_equal(job_generation(r.job), generation);
                assert_string_equal(buf_str(&r.said), "");
            }
            if (untold) {
                assert_non_null(strstr(e.text, job_event_name(ev.kind)));
                assert_non_null(strstr(e.text, job_state_name((enum job_state)s)));
            }
            end(&r);
        }
    }
}

static void refuse(struct rig *r, struct job_event ev)
{
    struct err e = {0};
    assert_int_equal(job_event(r->job, &ev, r->now, &e), -1);
    assert_int_equal(e.kind, ERR_PROTOCOL);
    assert_string_equal(buf_str(&r->said), "");
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    const struct job_params p = {
        .n_nodes = 1, .n_ranks = 1, .node_of_rank = placed, .first_generation = 1};
    struct rig r = {.said = BUF(1 << 16)};
    r.job = job_new(&p, on_order, &r);
    refuse(&r, (struct job_event){.kind = JOB_EV_TICK}); /* before START */
    end(&r);
    run(&r, 5);
    refuse(&r, (struct job_event){.kind = JOB_EV_AGENT_LOST, .node = NODES});
    refuse(&r, (struct job_event){.kind = JOB_EV_RANK_EXITED, .rank = RANKS, .generation = 1});
    refuse(&r, (struct job_event){.kind = JOB_EV_RANK_EXITED, .generation = 2});
    refuse(&r, (struct job_event){.kind = JOB_EV_RANK_HUNG, .generation = 9});
    done(&r, 0, 1, false);
    refuse(&r, (struct job_event){.kind = JOB_EV_RANK_EXITED, .generation = 1, .exit_code = 1});
    end(&r);
    begin(&r, 5, 1);
    refuse(&r, (struct job_event){.kind = JOB_EV_START});
    refuse(&r, (struct job_event){.kind = JOB_EV_AGENT_ADOPTED});
    of_node(&r, JOB_EV_AGENT_READY, 0, 0);
    refuse(&r, (struct job_event){.kind = JOB_EV_AGENT_READY});
    refuse(&r, (struct job_event){.kind = JOB_EV_NODE_CLEAR});
    end(&r);
}

static void names(void **state)
{
    (void)state;
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(job_state_name((enum job_state)i),
                                    job_state_name((enum job_state)k));
    for (int i = 0; i < JOB_EV_COUNT; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(job_event_name((enum job_event_kind)i),
                                    job_event_name((enum job_event_kind)k));
    assert_string_equal(job_cause_name(CAUSE_BOOT), "boot");
    assert_string_equal(job_outcome_name(JOB_CLUSTER), "cluster");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completes),
        cmocka_unit_test(culprit_and_victims),
        cmocka_unit_test(killed_outright),
        cmocka_unit_test(only_victims),
        cmocka_unit_test(exits_without_done),
        cmocka_unit_test(budget),
        cmocka_unit_test(earlier_restarts_count),
        cmocka_unit_test(agent_killed),
        cmocka_unit_test(agent_comes_back_with_workers),
        cmocka_unit_test(node_never_comes_back),
        cmocka_unit_test(first_boot_fails),
        cmocka_unit_test(agent_killed_in_first_boot),
        cmocka_unit_test(node_is_not_reaped_in_time),
        cmocka_unit_test(late_clear_in_backoff),
        cmocka_unit_test(never_all_in),
        cmocka_unit_test(ends_without_restart),
        cmocka_unit_test(preempted),
        cmocka_unit_test(stop_while_running),
        cmocka_unit_test(stop_after_the_last_step),
        cmocka_unit_test(stop_fails),
        cmocka_unit_test(grace_runs_out),
        cmocka_unit_test(stop_elsewhere),
        cmocka_unit_test(stop_now_everywhere),
        cmocka_unit_test(dismissal_has_a_deadline),
        cmocka_unit_test(adopts_running),
        cmocka_unit_test(adopts_what_ended_meanwhile),
        cmocka_unit_test(adopts_half),
        cmocka_unit_test(stop_waits_for_adoption),
        cmocka_unit_test(nodes_without_ranks),
        cmocka_unit_test(every_pair_is_told),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
