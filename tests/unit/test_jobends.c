/* job.h: how a job ends, by itself or because it is told to, and how a controller that is
 * started again takes it over. */
#include "tests/unit/jobrig.h"

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
    of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 6);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
    of_node(&r, JOB_EV_NODE_CLEAR, 1, 6);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 7);
    expect(
        &r,
        "kill 1 g6; kill 0 g7; failure g7 node-lost node 1 (restart 1 of 5 within 1h); launch "
        "g8; ",
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
    begin(&r, 5, 8); /* no agent is there any more: what was to be stopped is */
    of_node(&r, JOB_EV_BOOT_FAILED, 0, 0);
    just(&r, JOB_EV_STOP);
    of_node(&r, JOB_EV_BOOT_FAILED, 1, 0);
    expect(&r, "finish 0 stopped; ", JOB_ENDED);
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

static void all_stopped(struct rig *r, uint32_t generation)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        done(r, rank, generation, true);
}

static void restart_by_order(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 0); /* a budget of nothing is enough */
    for (uint32_t g = 1; g < 4; g++) {
        assert_false(job_restarting(r.job));
        just(&r, JOB_EV_RESTART);
        just(&r, JOB_EV_RESTART); /* once is enough */
        assert_true(job_restarting(r.job));
        AUTO_FREE char *stop = xasprintf("stop g%u; ", g);
        AUTO_FREE char *kill = xasprintf("kill 0 g%u; kill 1 g%u; ", g, g);
        AUTO_FREE char *launched = xasprintf("launch g%u; ", g + 1);
        expect(&r, stop, JOB_STOPPING);
        all_stopped(&r, g);
        expect(&r, kill, JOB_CLEARING);
        both_clear(&r, g);
        expect(&r, launched, JOB_LAUNCHING);
        just(&r, JOB_EV_RESTART); /* it is new already */
        send(&r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = g + 1});
        expect(&r, "", JOB_RUNNING);
    }
    assert_int_equal(job_restarts(r.job), 0);
    end(&r);
}

static void restart_after_the_last_step(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    just(&r, JOB_EV_RESTART);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        done(&r, rank, 1, false);
    expect(&r, "stop g1; dismiss 0; dismiss 1; ", JOB_DISMISSING);
    dismiss_both(&r, "finish 0 completed; ");
    end(&r);
}

static void restart_fails_like_any_other(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    just(&r, JOB_EV_RESTART);
    exited(&r, 1, 1, 1);
    both_clear(&r, 1);
    expect(&r,
           "stop g1; kill 0 g1; kill 1 g1; failure g1 exit node 0 rank 1 exit 1 (restart 1 of "
           "5 within 1h); launch g2; ",
           JOB_LAUNCHING);
    end(&r);
    run(&r, 5); /* the grace */
    just(&r, JOB_EV_RESTART);
    done(&r, 0, 1, true);
    tick_at_deadline(&r);
    both_clear(&r, 1);
    expect(&r,
           "stop g1; kill 0 g1; kill 1 g1; failure g1 hang node 0 rank 1 exit 0 (restart 1 of "
           "5 within 1h); launch g2; ",
           JOB_LAUNCHING);
    end(&r);
    run(&r, 5); /* a node that is lost while the next generation is made room for */
    just(&r, JOB_EV_RESTART);
    all_stopped(&r, 1);
    of_node(&r, JOB_EV_AGENT_LOST, 1, 0);
    of_node(&r, JOB_EV_NODE_CLEAR, 0, 1);
    expect(&r,
           "stop g1; kill 0 g1; kill 1 g1; failure g1 node-lost node 1 (restart 1 of 5 within "
           "1h); boot 1; ",
           JOB_BOOTING);
    end(&r);
}

static void stop_wins_over_restart(void **state)
{
    (void)state;
    struct rig r;
    for (int late = 0; late < 2; late++) {
        run(&r, 5);
        just(&r, JOB_EV_RESTART);
        if (!late)
            just(&r, JOB_EV_STOP);
        all_stopped(&r, 1);
        if (late) {
            just(&r, JOB_EV_STOP);
            both_clear(&r, 1);
        }
        expect(&r,
               late ? "stop g1; kill 0 g1; kill 1 g1; dismiss 0; dismiss 1; "
                    : "stop g1; dismiss 0; dismiss 1; ",
               JOB_DISMISSING);
        dismiss_both(&r, "finish 0 stopped; ");
        end(&r);
    }
    run(&r, 5);
    just(&r, JOB_EV_RESTART);
    just(&r, JOB_EV_STOP);
    tick_at_deadline(&r); /* and then the grace is the stop's */
    both_clear(&r, 1);
    assert_non_null(strstr(buf_str(&r.said), "job.grace 20s ran out"));
    end(&r);
    run(&r, 5); /* a stop that was first */
    just(&r, JOB_EV_STOP);
    just(&r, JOB_EV_RESTART);
    assert_false(job_restarting(r.job));
    end(&r);
}

static void restart_ends_the_backoff(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    exited(&r, 0, 1, 1);
    both_clear(&r, 1);
    exited(&r, 0, 2, 1);
    both_clear(&r, 2);
    assert_int_equal(job_state(r.job), JOB_BACKOFF);
    buf_clear(&r.said);
    just(&r, JOB_EV_RESTART);
    expect(&r, "launch g3; ", JOB_LAUNCHING);
    end(&r);
}

/* The controller that was asked is dead. */
static void restart_waits_for_adoption(void **state)
{
    (void)state;
    struct rig r;
    for (int ended = 0; ended < 2; ended++) {
        begin(&r, 0, 8);
        just(&r, JOB_EV_RESTART);
        send(&r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = 7});
        of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
        if (ended)
            all_stopped(&r, 7);
        expect(&r, "", JOB_BOOTING);
        of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 7);
        if (!ended) {
            expect(&r, "stop g7; ", JOB_STOPPING);
            all_stopped(&r, 7);
        }
        both_clear(&r, 7);
        expect(&r, "kill 0 g7; kill 1 g7; launch g8; ", JOB_LAUNCHING);
        end(&r);
    }
    begin(&r, 0, 8); /* its barrier is told last */
    just(&r, JOB_EV_RESTART);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 0, 7);
    of_node(&r, JOB_EV_AGENT_ADOPTED, 1, 7);
    expect(&r, "", JOB_LAUNCHING);
    send(&r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = 7});
    expect(&r, "stop g7; ", JOB_STOPPING);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(restart_by_order),
        cmocka_unit_test(restart_after_the_last_step),
        cmocka_unit_test(restart_fails_like_any_other),
        cmocka_unit_test(stop_wins_over_restart),
        cmocka_unit_test(restart_ends_the_backoff),
        cmocka_unit_test(restart_waits_for_adoption),
    };
    return cmocka_run_group_tests_name("jobends", tests, NULL, NULL);
}
