/* build.c: what a controller is made of, from the job's folder; and its release. */
#include "launcher/control/core.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/spec/spec.h"
#include "launcher/boot/boot.h"
#include "launcher/boot/paths.h"
#include "launcher/plan/plan.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/joblock.h"
#include "launcher/record/journal.h"
#include "launcher/record/rdzvlog.h"

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

static int find_program(struct control *c, struct err *e)
{
    c->program = paths_program("DSLAUNCH_WORKER", "dsworker", e);
    if (!c->program)
        return -1;
    if (access(c->program, X_OK) < 0)
        return err_sys(e, "the worker program %s", c->program);
    return 0;
}

/* In another run-time folder than the dead controller's its agents would not be found, and a
 * second set of workers started beside them. */
static int find_run_dir(struct control *c, const struct journal_state *was, struct err *e)
{
    const char *old = c->params->take_over ? was->run_dir : NULL;
    const char *job = c->dir->name;
    c->run_dir = paths_run_dir(job, e);
    c->control_path = paths_control_socket(job, e);
    c->secret_path = paths_secret(job, e);
    c->rdzv_path = paths_rdzv(job, e);
    if (!c->run_dir || !c->control_path || !c->secret_path || !c->rdzv_path)
        return -1;
    if (old && strcmp(old, c->run_dir) != 0 && access(old, F_OK) == 0)
        return err_set(e, ERR_USAGE,
                       "the job runs in %s, but XDG_RUNTIME_DIR leads to %s: set it as it was "
                       "when the job was started",
                       old, c->run_dir);
    return 0;
}

/* First of all that lies in the run-time folder: as long as it is there, an agent that leaves
 * sweeps nothing away. */
static int open_clients(struct control *c, struct err *e)
{
    c->clients = clients_new(&c->loop, c->dir->name, c->control_path, answer_ask, c, e);
    return c->clients ? 0 : -1;
}

static int find_secret(struct control *c, struct err *e)
{
    if (c->params->take_over && secret_read(c->secret_path, c->secret, NULL) == 0)
        return 0;
    return secret_make(c->secret_path, c->secret, e);
}

/* Wall-clock times of granted restarts, on this host's monotonic clock. */
static int64_t *on_our_clock(const struct journal_state *was)
{
    int64_t *at = xcalloc(was->n_restarts, sizeof(*at));
    int64_t now = clock_now_ns(), wall = clock_wall_ms();
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
        /* A start takes longer than a step may: programs load, ranks find each other. */
        .launch_ns = s->restart.hang_timeout_ns > s->cluster.timeouts.connect_ns
                         ? s->restart.hang_timeout_ns
                         : s->cluster.timeouts.connect_ns,
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

static int open_nodes(struct control *c, struct err *e)
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
    return joblock_say(c->params->lock_fd, c->control_path, e);
}

int control_build(struct control *c, struct err *e)
{
    struct journal_state was;
    c->dir = jobdir_new(c->params->job, e);
    if (!c->dir || load_spec(c, e) < 0 || make_plan(c, e) < 0 || find_program(c, e) < 0 ||
        journal_read(c->dir->journal, &was, e) < 0)
        return -1;
    int rc = find_run_dir(c, &was, e);
    if (rc == 0)
        rc = open_clients(c, e);
    if (rc == 0)
        rc = find_secret(c, e);
    make_deciders(c, &was);
    if (was.checkpoint_path && strcmp(was.checkpoint_dir, c->checkpoint_dir) == 0) {
        c->checkpoint_step = was.checkpoint_step;
        c->checkpoint_path = xstrdup(was.checkpoint_path);
    }
    c->started_ms = clock_wall_ms();
    if (rc == 0 && c->params->take_over)
        rc = adopt_prepare(c, &was, e);
    journal_state_done(&was);
    if (rc < 0 || open_records(c, e) < 0 || open_nodes(c, e) < 0)
        return -1;
    return 0;
}

void control_release(struct control *c)
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
