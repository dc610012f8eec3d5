/* carry.c: the job's orders, carried out.  The journal knows of an order before an agent does.
 */
#include "launcher/control/core.h"

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/spec/spec.h"
#include "launcher/plan/plan.h"
#include "launcher/rdzv/rdzv.h"
#include "launcher/record/journal.h"
#include "launcher/record/rdzvlog.h"

static size_t count(char **list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    return n;
}

static Dsl__Frame frame_of(uint32_t generation, Dsl__Frame__BodyCase body)
{
    Dsl__Frame f = DSL__FRAME__INIT;
    f.generation = generation;
    f.body_case = body;
    return f;
}

static void boot(struct control *c, uint32_t node)
{
    c->node[node].view = NODE_BOOTING;
    nodes_boot(c->nodes, node, c->params->errand != CONTROL_RUN);
}

static void launch_node(struct control *c, uint32_t node, uint32_t generation)
{
    const struct plan_node *pn = &c->plan->nodes[node];
    AUTO_FREE Dsl__RankPlan *ranks = xcalloc(pn->n_ranks, sizeof(*ranks));
    AUTO_FREE Dsl__RankPlan **list = xcalloc(pn->n_ranks, sizeof(*list));
    Dsl__Launch l;
    dsl__launch__init(&l);
    for (uint32_t i = 0; i < pn->n_ranks; i++) {
        uint32_t rank = pn->first_rank + i;
        dsl__rank_plan__init(&ranks[i]);
        ranks[i].rank = rank;
        ranks[i].local_rank = c->plan->ranks[rank].local_rank;
        ranks[i].env = plan_env(c->plan, rank);
        ranks[i].n_env = count(ranks[i].env);
        list[i] = &ranks[i];
    }
    l.spec =
        (ProtobufCBinaryData){.len = c->spec_text.len, .data = (uint8_t *)c->spec_text.data};
    l.n_ranks = pn->n_ranks;
    l.ranks = list;
    l.program = c->program;
    l.workdir = c->spec->cluster.workdir;
    l.n_setup = count(c->spec->cluster.setup);
    l.setup = c->spec->cluster.setup;
    l.threads = c->spec->job.threads;
    l.checkpoint_dir = c->checkpoint_dir;
    l.checkpoint_keep = c->spec->checkpoint.keep;
    Dsl__Frame f = frame_of(generation, DSL__FRAME__BODY_LAUNCH);
    f.launch = &l;
    nodes_send(c->nodes, node, &f);
    for (uint32_t i = 0; i < pn->n_ranks; i++)
        plan_env_free(ranks[i].env);
}

static void launch(struct control *c, uint32_t generation)
{
    struct err e;
    control_forget_ranks(c);
    rdzvlog_free(TAKE(c->rdzvlog));
    if (journal_generation(c->journal, generation, &e) < 0)
        log_error("%s", e.text);
    if (rdzv_open(c->rdzv, generation, &e) < 0)
        log_error("generation %u: %s", generation, e.text);
    c->rdzvlog = rdzvlog_new(c->rdzv_path, generation, &e);
    if (!c->rdzvlog)
        log_error("%s", e.text);
    log_info("generation %u: launching %u ranks on %u nodes", generation, c->plan->world,
             c->n_nodes);
    for (uint32_t i = 0; i < c->n_nodes; i++)
        launch_node(c, i, generation);
}

static void signal_stop(struct control *c, uint32_t generation)
{
    Dsl__SignalStop s = DSL__SIGNAL_STOP__INIT;
    Dsl__Frame f = frame_of(generation, DSL__FRAME__BODY_SIGNAL_STOP);
    f.signal_stop = &s;
    for (uint32_t i = 0; i < c->n_nodes; i++)
        nodes_send(c->nodes, i, &f);
}

static void kill_workers(struct control *c, uint32_t node, uint32_t generation)
{
    Dsl__Kill k = DSL__KILL__INIT;
    Dsl__Frame f = frame_of(generation, DSL__FRAME__BODY_KILL);
    f.kill = &k;
    nodes_send(c->nodes, node, &f);
}

static void dismiss(struct control *c, uint32_t node)
{
    Dsl__Dismiss d = DSL__DISMISS__INIT;
    Dsl__Frame f = frame_of(0, DSL__FRAME__BODY_DISMISS);
    f.dismiss = &d;
    nodes_send(c->nodes, node, &f);
}

static void backoff(struct control *c, int64_t until_ns)
{
    double s = (double)(until_ns - clock_now_ns()) / (double)NS_PER_S;
    if (s > 0.05)
        publish_text(c, "the next generation starts in %.1f s", s);
}

static void finish(struct control *c, const struct job_order *o)
{
    struct err e;
    c->finished = true;
    c->exit_code = o->exit_code;
    c->outcome = o->outcome;
    if (o->outcome == JOB_COMPLETED) /* a resume of the last checkpoint has no step to report */
        c->last.step = c->spec->train.steps;
    log_info("the job ended: %s, exit code %d", job_outcome_name(o->outcome), o->exit_code);
    if (journal_ended(c->journal, job_outcome_name(o->outcome), o->exit_code, c->last.step,
                      &e) < 0)
        log_error("%s", e.text);
    uv_stop(&c->loop);
}

void carry_order(void *ctx, const struct job_order *o)
{
    struct control *c = ctx;
    switch (o->kind) {
    case JOB_DO_BOOT:
        boot(c, o->node);
        break;
    case JOB_DO_LAUNCH:
        launch(c, o->generation);
        break;
    case JOB_DO_SIGNAL_STOP:
        signal_stop(c, o->generation);
        break;
    case JOB_DO_KILL:
        kill_workers(c, o->node, o->generation);
        break;
    case JOB_DO_DISMISS:
        dismiss(c, o->node);
        break;
    case JOB_DO_FAILURE:
        blame(c, o);
        break;
    case JOB_DO_BACKOFF:
        backoff(c, o->until_ns);
        break;
    case JOB_DO_FINISH:
        finish(c, o);
        break;
    }
}
