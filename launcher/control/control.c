/* control.c: the queue of events, the loop, and its end. */
#include "launcher/control/core.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "launcher/boot/paths.h"
#include "launcher/control/spawn.h"
#include "launcher/plan/plan.h"
#include "launcher/record/joblock.h"
#include "launcher/record/journal.h"

enum { TICK_MS = 250, TICKS_PER_PING = 2, FIRST_CLIENT_TICKS = 8, CLIENT_LINGER_MS = 2000 };

uint32_t control_node_of(const struct control *c, uint32_t rank)
{
    return c->plan->ranks[rank].node;
}

void control_forget_ranks(struct control *c)
{
    for (uint32_t r = 0; r < c->plan->world; r++) {
        free(c->rank[r].kind);
        free(c->rank[r].text);
        c->rank[r] = (struct rank_seen){0};
    }
}

/* Events. */

/* We came to stop the job. */
static void run_errand(struct control *c)
{
    if (c->errand_done || c->params->errand == CONTROL_RUN)
        return;
    c->errand_done = true;
    bool now = c->params->errand == CONTROL_STOP_NOW;
    control_post(c, &(struct job_event){.kind = now ? JOB_EV_STOP_NOW : JOB_EV_STOP});
}

static void on_state(struct control *c, enum job_state was, enum job_state is)
{
    bool watched = was == JOB_RUNNING || was == JOB_STOPPING;
    bool watch = is == JOB_RUNNING || is == JOB_STOPPING;
    if (watch != watched)
        health_generation(c->health, watch, clock_now_ns());
    log_info("%s -> %s, generation %u", job_state_name(was), job_state_name(is),
             job_generation(c->job));
    publish_status(c);
}

static void on_deadline(uv_timer_t *t)
{
    control_post(t->data, &(struct job_event){.kind = JOB_EV_TICK});
}

static void arm_deadline(struct control *c)
{
    int64_t at = job_deadline(c->job), now = clock_now_ns();
    (void)uv_timer_stop(&c->deadline);
    if (c->finished || at == INT64_MAX)
        return;
    uv_update_time(&c->loop);
    int64_t ms = at > now ? (at - now + NS_PER_MS - 1) / NS_PER_MS : 1;
    (void)uv_timer_start(&c->deadline, on_deadline, (uint64_t)ms, 0);
}

static void drain(struct control *c)
{
    struct err e;
    c->draining = true;
    for (uint32_t i = 0; i < c->n_queued; i++) { /* grows meanwhile */
        struct job_event ev = c->queue[i];
        if (!c->finished && job_event(c->job, &ev, clock_now_ns(), &e) < 0)
            log_error("%s", e.text);
        if (job_state(c->job) != c->state) {
            enum job_state was = c->state;
            c->state = job_state(c->job);
            on_state(c, was, c->state);
        }
        run_errand(c);
    }
    for (uint32_t i = 0; i < c->n_queued; i++)
        free((void *)(uintptr_t)c->queue[i].text);
    c->n_queued = 0;
    c->draining = false;
    arm_deadline(c);
}

void control_post(struct control *c, const struct job_event *ev)
{
    if (c->n_queued == c->queue_room) {
        c->queue_room = c->queue_room ? 2 * c->queue_room : 64;
        c->queue = xrealloc_array(c->queue, c->queue_room, sizeof(*c->queue));
    }
    c->queue[c->n_queued] = *ev;
    if (ev->text)
        c->queue[c->n_queued].text = xstrdup(ev->text);
    c->n_queued++;
    if (!c->draining)
        drain(c);
}

void control_begin(struct control *c)
{
    if (c->begun)
        return;
    c->begun = true;
    control_post(c, &(struct job_event){.kind = JOB_EV_START});
    if (c->adopt) /* its ranks met long ago */
        control_post(c, &(struct job_event){.kind = JOB_EV_ALL_IN, .generation = c->adopt});
    if (c->restart_again)
        control_post(c, &(struct job_event){.kind = JOB_EV_RESTART});
}

/* The first client is waited for a moment, so that it sees the job from its beginning. */
static void on_tick(uv_timer_t *t)
{
    struct control *c = t->data;
    c->ticks++;
    if (!c->begun && c->ticks >= FIRST_CLIENT_TICKS)
        control_begin(c);
    if (c->ticks % TICKS_PER_PING == 0)
        nodes_ping(c->nodes);
    clients_tick(c->clients);
    nodes_tick(c->nodes);
    health_tick(c->health, clock_now_ns());
}

static void on_sigterm(uv_signal_t *s, int signum)
{
    struct control *c = s->data;
    struct err e;
    (void)signum;
    if (journal_stop_asked(c->journal, false, &e) < 0)
        log_error("%s", e.text);
    control_begin(c);
    control_post(c, &(struct job_event){.kind = JOB_EV_STOP});
}

static void start_loop(struct control *c)
{
    (void)uv_loop_init(&c->loop);
    (void)uv_timer_init(&c->loop, &c->ticker);
    (void)uv_timer_init(&c->loop, &c->deadline);
    (void)uv_signal_init(&c->loop, &c->sigterm);
    c->ticker.data = c->deadline.data = c->sigterm.data = c;
}

static void run(struct control *c)
{
    (void)uv_timer_start(&c->ticker, on_tick, TICK_MS, TICK_MS);
    (void)uv_signal_start(&c->sigterm, on_sigterm, SIGTERM);
    while (!c->finished)
        (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    publish_ended(c);
}

/* Everything but the folder and the lock; the loop runs dry in between. */
static void take_down(struct control *c)
{
    clients_free(c->clients, CLIENT_LINGER_MS);
    nodes_free(c->nodes);
    uv_close((uv_handle_t *)&c->ticker, NULL);
    uv_close((uv_handle_t *)&c->deadline, NULL);
    uv_close((uv_handle_t *)&c->sigterm, NULL);
    (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&c->loop);
    paths_sweep(c->params->job);
}

int control_run(const struct control_params *p, struct err *e)
{
    struct control c = {.params = p, .metrics_fd = -1, .exit_code = -1};
    c.last = (struct metrics){.loss = NAN,
                              .validation_loss = NAN,
                              .grad_norm = NAN,
                              .lr = NAN,
                              .tokens_per_s = NAN,
                              .step_ms = NAN};
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    start_loop(&c);
    int rc = control_build(&c, e);
    spawn_say_ready(p->ready_fd, rc < 0 ? e : NULL);
    if (rc == 0)
        run(&c);
    take_down(&c);
    control_release(&c);
    joblock_clear(p->lock_fd);
    (void)close(p->lock_fd);
    return rc < 0 ? -1 : c.exit_code;
}
