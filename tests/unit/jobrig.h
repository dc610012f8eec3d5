/* jobrig.h: a job of two nodes and four ranks, fed by hand, and what it ordered as one line. */
#ifndef DS_UNIT_JOBRIG_H
#define DS_UNIT_JOBRIG_H

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

static inline void on_order(void *ctx, const struct job_order *o)
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

static inline void send(struct rig *r, struct job_event ev)
{
    struct err e;
    if (job_event(r->job, &ev, r->now, &e) < 0)
        fail_msg("%s", e.text);
}

static inline void of_node(struct rig *r, enum job_event_kind kind, uint32_t node,
                           uint32_t generation)
{
    send(r, (struct job_event){.kind = kind, .node = node, .generation = generation});
}

static inline void exited(struct rig *r, uint32_t rank, uint32_t generation, int code)
{
    send(r, (struct job_event){.kind = JOB_EV_RANK_EXITED,
                               .rank = rank,
                               .generation = generation,
                               .exit_code = code});
}

static inline void lost_peer(struct rig *r, uint32_t rank, uint32_t generation, uint32_t peer)
{
    send(r, (struct job_event){.kind = JOB_EV_RANK_EXITED,
                               .rank = rank,
                               .generation = generation,
                               .exit_code = WORKER_EXIT_PEER_LOST,
                               .blamed = peer + 1});
}

static inline void done(struct rig *r, uint32_t rank, uint32_t generation, bool stopped)
{
    send(r, (struct job_event){.kind = JOB_EV_RANK_EXITED,
                               .rank = rank,
                               .generation = generation,
                               .done = true,
                               .stopped = stopped});
}

static inline void of_rank(struct rig *r, enum job_event_kind kind, uint32_t rank,
                           uint32_t generation)
{
    send(r, (struct job_event){.kind = kind, .rank = rank, .generation = generation});
}

static inline void just(struct rig *r, enum job_event_kind kind)
{
    send(r, (struct job_event){.kind = kind});
}

static inline void tick_at_deadline(struct rig *r)
{
    assert_true(job_deadline(r->job) < INT64_MAX);
    just(r, JOB_EV_TICK); /* too early: nothing */
    r->now = job_deadline(r->job);
    just(r, JOB_EV_TICK);
}

/* What was ordered since the last call, and where the job is. */
static inline void expect(struct rig *r, const char *orders, enum job_state s)
{
    assert_string_equal(buf_str(&r->said), orders);
    assert_string_equal(job_state_name(job_state(r->job)), job_state_name(s));
    buf_clear(&r->said);
}

static inline void begin(struct rig *r, uint32_t max, uint32_t first_generation)
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
    assert_int_equal(job_generation(r->job), first_generation - 1);
}

static inline void end(struct rig *r)
{
    job_free(r->job);
    buf_done(&r->said);
}

static inline void launch(struct rig *r, uint32_t max)
{
    begin(r, max, 1);
    of_node(r, JOB_EV_AGENT_READY, 0, 0);
    of_node(r, JOB_EV_AGENT_READY, 1, 0);
    expect(r, "launch g1; ", JOB_LAUNCHING);
}

static inline void run(struct rig *r, uint32_t max)
{
    launch(r, max);
    send(r, (struct job_event){.kind = JOB_EV_ALL_IN, .generation = 1});
    expect(r, "", JOB_RUNNING);
    assert_true(job_deadline(r->job) == INT64_MAX);
}

static inline void both_clear(struct rig *r, uint32_t generation)
{
    of_node(r, JOB_EV_NODE_CLEAR, 0, generation);
    of_node(r, JOB_EV_NODE_CLEAR, 1, generation);
}

static inline void dismiss_both(struct rig *r, const char *finish)
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

#endif
