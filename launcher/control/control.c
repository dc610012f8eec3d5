/* control.c: builds the controller, runs its loop, takes it down. */
#include "launcher/control/core.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/spec/spec.h"
#include "launcher/boot/boot.h"
#include "launcher/boot/paths.h"
#include "launcher/control/spawn.h"
#include "launcher/plan/plan.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/joblock.h"
#include "launcher/record/journal.h"
#include "launcher/record/rdzvlog.h"

enum { TICK_MS = 250, TICKS_PER_PING = 2, FIRST_CLIENT_TICKS = 8, CLIENT_LINGER_MS = 2000 };

extern char **environ;

static const char secret_file[] = "secret", rdzv_file[] = "rdzv"; /* in the run-time folder */

int64_t control_wall_ms(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

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

/* We came to stop the job: as soon as there is something to stop. */
static void run_errand(struct control *c)
{
    if (c->errand_done || c->params->errand == CONTROL_RUN)
        return;
    if (c->params->errand == CONTROL_STOP && job_state(c->job) == JOB_BOOTING)
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
    if (is == JOB_LAUNCHING && job_generation(c->job) == c->adopt) /* met long ago */
        control_post(c, &(struct job_event){.kind = JOB_EV_ALL_IN, .generation = c->adopt});
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

/* Building. */

static int load_spec(struct control *c, struct err *e)
{
    AUTO_BUF struct buf report = BUF(CONTROL_SPEC_MAX);
    c->spec_text = BUF(CONTROL_SPEC_MAX);
    if (io_read_file(c->dir->spec, &c->spec_text, e) < 0)
        return -1;
    c->spec =
        spec_parse(c->dir->spec, buf_str(&c->spec_text), c->spec_text.len, NULL, 0, &report, e);
    if (!c->spec)
        return err_wrap(e, "%s", buf_str(&report));
    c->checkpoint_dir = spec_host_path(c->spec, c->spec->checkpoint.dir);
    return 0;
}

static int make_plan(struct control *c, struct err *e)
{
    AUTO_FREE uint32_t *slots = xcalloc(c->spec->cluster.n_nodes, sizeof(*slots));
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    plan_slots_local(c->spec, cores > 0 ? (uint32_t)cores : 1, slots);
    c->plan = plan_new(c->spec, slots, environ, e);
    if (!c->plan)
        return -1;
    c->n_nodes = c->plan->n_used;
    c->node = xcalloc(c->n_nodes, sizeof(*c->node));
    c->rank = xcalloc(c->plan->world, sizeof(*c->rank));
    return 0;
}

/* DSLAUNCH_WORKER (tests), else dsworker beside this program. */
static int find_program(struct control *c, struct err *e)
{
    const char *given = getenv("DSLAUNCH_WORKER");
    char self[4096];
    if (given && *given == '/') {
        c->program = xstrdup(given);
    } else if (given && *given) {
        return err_set(e, ERR_USAGE, "DSLAUNCH_WORKER must be an absolute path, not '%s'",
                       given);
    } else {
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        if (n < 0)
            return err_sys(e, "/proc/self/exe");
        self[n] = 0;
        *strrchr(self, '/') = 0;
        c->program = xasprintf("%s/dsworker", self);
    }
    if (access(c->program, X_OK) < 0)
        return err_sys(e, "the worker program %s", c->program);
    return 0;
}

/* In another run-time folder than the dead controller's its agents would not be found, and a
 * second set of workers started beside them. */
static int find_run_dir(struct control *c, const struct journal_state *was, struct err *e)
{
    const char *old = c->params->take_over ? was->run_dir : NULL;
    c->run_dir = paths_run_dir(c->dir->name, e);
    c->control_path = paths_control_socket(c->dir->name, e);
    if (!c->run_dir || !c->control_path)
        return -1;
    if (old && strcmp(old, c->run_dir) != 0 && access(old, F_OK) == 0) {
        paths_sweep(c->dir->name); /* the empty one we just made */
        return err_set(e, ERR_USAGE,
                       "the job runs in %s, but XDG_RUNTIME_DIR leads to %s: set it as it was "
                       "when the job was started",
                       old, c->run_dir);
    }
    c->secret_path = xasprintf("%s/%s", c->run_dir, secret_file);
    c->rdzv_path = xasprintf("%s/%s", c->run_dir, rdzv_file);
    if (c->params->take_over && secret_read(c->secret_path, c->secret, NULL) == 0)
        return 0;
    return secret_make(c->secret_path, c->secret, e);
}

/* Wall-clock times of granted restarts, on this host's monotonic clock. */
static int64_t *on_our_clock(const struct journal_state *was)
{
    int64_t *at = xcalloc(was->n_restarts, sizeof(*at));
    int64_t now = clock_now_ns(), wall = control_wall_ms();
    for (uint32_t i = 0; i < was->n_restarts; i++) {
        int64_t age_ms = wall > was->restart_ms[i] ? wall - was->restart_ms[i] : 0;
        at[i] = now - age_ms * NS_PER_MS;
    }
    return at;
}

/* A run that is taken over goes on with the journal's; a new one begins above all that its
 * checkpoint folder knows. */
static uint32_t first_generation(const struct control *c, const struct journal_state *was)
{
    uint32_t saved = c->params->take_over ? 0 : jobdir_newest_generation(c->checkpoint_dir);
    return (saved > was->generation ? saved : was->generation) + 1;
}

static void make_deciders(struct control *c, const struct journal_state *was)
{
    const struct spec *s = c->spec;
    uint32_t world = c->plan->world;
    AUTO_FREE uint32_t *node_of = xcalloc(world, sizeof(*node_of));
    AUTO_FREE int64_t *restarted = on_our_clock(was);
    for (uint32_t r = 0; r < world; r++)
        node_of[r] = control_node_of(c, r);
    const struct job_params jp = {
        .n_nodes = c->n_nodes,
        .n_ranks = world,
        .node_of_rank = node_of,
        .connect_ns = s->cluster.timeouts.connect_ns,
        .launch_ns = s->restart.hang_timeout_ns,
        .grace_ns = s->job.grace_ns,
        .restart = {.max = s->restart.max,
                    .window_ns = s->restart.window_ns,
                    .backoff_ns = s->restart.backoff_ns},
        .first_generation = first_generation(c, was),
        .restarted_ns = restarted,
        .n_restarted = c->params->take_over ? was->n_restarts : 0,
    };
    const struct health_limits limits = {.suspect_ns = s->cluster.timeouts.suspect_ns,
                                         .lost_ns = s->cluster.timeouts.lost_ns,
                                         .hang_timeout_ns = s->restart.hang_timeout_ns};
    c->job = job_new(&jp, carry_order, c);
    c->state = job_state(c->job);
    c->health = health_new(c->n_nodes, world, &limits, hear_verdict, c);
    c->rdzv = rdzv_new(world, ranklines_rdzv, c);
}

static int open_records(struct control *c, struct err *e)
{
    char host[256], boot_id[64];
    joblock_host(host, sizeof(host), boot_id, sizeof(boot_id));
    const struct journal_start start = {.host = host,
                                        .boot_id = boot_id,
                                        .pid = (int)getpid(),
                                        .secret = c->secret_path,
                                        .run_dir = c->run_dir,
                                        .checkpoint_dir = c->checkpoint_dir,
                                        .n_nodes = c->n_nodes,
                                        .world = c->plan->world,
                                        .steps = c->spec->train.steps};
    c->metrics_fd = open(c->dir->metrics, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (c->metrics_fd < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", c->dir->metrics);
    c->journal = journal_open(c->dir->journal, e);
    if (!c->journal)
        return -1;
    return (c->params->take_over ? journal_took_over : journal_started)(c->journal, &start, e);
}

static int open_channels(struct control *c, struct err *e)
{
    const struct nodes_params np = {.loop = &c->loop,
                                    .boot = &boot_local,
                                    .job = c->dir->name,
                                    .n_nodes = c->n_nodes,
                                    .connect_ns = c->spec->cluster.timeouts.connect_ns,
                                    .orphan_ns = c->spec->cluster.timeouts.orphan_ns,
                                    .ctx = c,
                                    .on_hello = hear_hello,
                                    .on_frame = hear_frame,
                                    .on_failed = hear_failed,
                                    .on_lost = hear_lost};
    c->nodes = nodes_new(&np, e);
    if (!c->nodes)
        return -1;
    c->clients = clients_new(&c->loop, c->control_path, answer_ask, c, e);
    if (!c->clients)
        return -1;
    return joblock_say(c->params->lock_fd, c->control_path, e);
}

static int build(struct control *c, struct err *e)
{
    struct journal_state was;
    c->dir = jobdir_new(c->params->job, e);
    if (!c->dir || load_spec(c, e) < 0 || make_plan(c, e) < 0 || find_program(c, e) < 0 ||
        journal_read(c->dir->journal, &was, e) < 0)
        return -1;
    int rc = find_run_dir(c, &was, e);
    make_deciders(c, &was);
    c->checkpoint_step = was.checkpoint_step;
    c->checkpoint_path = was.checkpoint_path ? xstrdup(was.checkpoint_path) : NULL;
    c->started_ms = control_wall_ms();
    if (rc == 0 && c->params->take_over)
        rc = adopt_prepare(c, &was, e);
    journal_state_done(&was);
    if (rc < 0 || open_records(c, e) < 0 || open_channels(c, e) < 0)
        return -1;
    return 0;
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

void control_sweep(const char *job)
{
    AUTO_FREE char *dir = paths_run_dir(job, NULL);
    if (!dir)
        return;
    AUTO_FREE char *secret = xasprintf("%s/%s", dir, secret_file);
    AUTO_FREE char *rdzv = xasprintf("%s/%s", dir, rdzv_file);
    (void)unlink(secret);
    (void)unlink(rdzv);
    paths_sweep(job);
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
    /* A take-over that could not begin leaves the agents what they still need. */
    if (c->finished || !c->params->take_over)
        control_sweep(c->params->job);
}

static void release(struct control *c)
{
    journal_free(c->journal);
    rdzvlog_free(c->rdzvlog);
    rdzv_free(c->rdzv);
    health_free(c->health);
    job_free(c->job);
    if (c->metrics_fd >= 0)
        (void)close(c->metrics_fd);
    if (c->plan)
        control_forget_ranks(c);
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        free(c->node[i].host);
        free(c->node[i].why);
    }
    for (size_t i = 0; i < CONTROL_TEXTS; i++)
        free(c->texts[i]);
    free(c->node);
    free(c->rank);
    free(c->queue);
    free(c->failure);
    free(c->program);
    free(c->checkpoint_dir);
    free(c->checkpoint_path);
    free(c->run_dir);
    free(c->secret_path);
    free(c->rdzv_path);
    free(c->control_path);
    plan_free(c->plan);
    spec_free(c->spec);
    buf_done(&c->spec_text);
    jobdir_free(c->dir);
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
    int rc = build(&c, e);
    spawn_say_ready(p->ready_fd, rc < 0 ? e : NULL);
    if (rc == 0)
        run(&c);
    take_down(&c);
    release(&c);
    joblock_clear(p->lock_fd);
    (void)close(p->lock_fd);
    return rc < 0 ? -1 : c.exit_code;
}
