/* job.h: the table, and how generations fail and follow each other.  Stops and adoption are in
 * test_jobends.c, random worlds in test_jobworld.c. */
#include "tests/unit/jobrig.h"

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

/* A victim that had said whom it lost, and was ended by our KILL before it could exit. */
static void a_killed_victim(void **state)
{
    (void)state;
    struct rig r;
    run(&r, 5);
    lost_peer(&r, 1, 1, 2);
    send(&r, (struct job_event){.kind = JOB_EV_RANK_EXITED,
                                .rank = 2,
                                .generation = 1,
                                .exit_code = -9,
                                .blamed = 3 + 1});
    exited(&r, 0, 1, -9);
    exited(&r, 3, 1, -9);
    both_clear(&r, 1);
    expect(&r,
           "kill 0 g1; kill 1 g1; failure g1 signal node 1 rank 3 exit -9 (restart 1 of 5 "
           "within 1h); launch g2; ",
           JOB_LAUNCHING);
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

/* The table. */

#define IN(state) (1u << (state))
#define AT_WORK (IN(JOB_LAUNCHING) | IN(JOB_RUNNING) | IN(JOB_STOPPING))

/* In which states an event cannot come.  START comes once; ALL_IN once a generation, out of
 * LAUNCHING; the agents of a generation at work are all known. */
static const unsigned impossible[JOB_EV_COUNT] = {
    [JOB_EV_START] =
        AT_WORK | IN(JOB_CLEARING) | IN(JOB_BACKOFF) | IN(JOB_DISMISSING) | IN(JOB_ENDED),
    [JOB_EV_ALL_IN] = IN(JOB_RUNNING) | IN(JOB_STOPPING),
    [JOB_EV_AGENT_READY] = AT_WORK,
    [JOB_EV_AGENT_ADOPTED] = AT_WORK,
    [JOB_EV_BOOT_FAILED] = AT_WORK,
};

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
            if (untold != ((impossible[k] & IN(s)) != 0))
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
        cmocka_unit_test(a_killed_victim),
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
        cmocka_unit_test(every_pair_is_told),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
