#include "worker/train.h"

#include <math.h>
#include <stdio.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/shape/memory.h"
#include "common/shape/params.h"
#include "common/shape/sched.h"
#include "common/spec/spec.h"
#include "kernels/dev.h"
#include "kernels/kernels.h"
#include "worker/ckpt/ckpt.h"
#include "worker/comm.h"
#include "worker/data/data.h"
#include "worker/link.h"
#include "worker/loop/agree.h"
#include "worker/loop/groups.h"
#include "worker/loop/pipeline.h"
#include "worker/loop/sample.h"
#include "worker/model/stage.h"
#include "worker/optim/optim.h"

/* Elements of one data-parallel reduction; order of sums does not depend on it. */
enum { BUCKET_ELEMENTS = 1 << 18 };
#define FLUSH_NS (600 * NS_PER_S)

struct rank {
    const struct spec *s;
    const struct link_identity *id;
    struct link *link;
    struct comm_net *net;
    struct groups *groups;
    struct params *params;
    struct sched *sched;
    struct mem_plan *mem;
    struct kern *kern;
    struct dev *dev;
    struct dev_stream *stream;
    void *arena;
    struct stage *stage;
    struct data *data;
    struct ckpt *ckpt;
    enum plant plant;
    struct ckpt_state state;
    struct optim_arenas arenas;
    float *micro_grads;

    /* The step in work. */
    bool validating;
    uint64_t first_sample;  /* of the step, or first validation window */
    double tokens;          /* unmasked, of the global batch */
    uint32_t loaded;        /* micro-batch in ids/targets, UINT32_MAX none */
    int32_t *ids, *targets; /* [micro_batch * seq_len] */
    double *losses;         /* [accumulation] */
    int64_t data_ns;
};

static void rank_done(struct rank *r)
{
    ckpt_free(r->ckpt);
    data_free(r->data);
    stage_free(r->stage);
    if (r->dev) {
        if (r->arena)
            r->dev->free(r->dev, r->arena);
        if (r->stream)
            r->dev->stream_free(r->dev, r->stream);
    }
    kern_close(r->kern);
    dev_close(r->dev);
    mem_plan_free(r->mem);
    sched_free(r->sched);
    params_free(r->params);
    groups_free(r->groups);
    comm_net_free(r->net);
    free(r->ids);
    free(r->targets);
    free(r->losses);
}

static void *at_arena(struct rank *r, uint32_t id)
{
    return (char *)r->arena + mem_plan_offset(r->mem, id, -1, 0);
}

static int connect_ranks(struct rank *r, struct err *e)
{
    const struct link_identity *id = r->id;
    link_phase(r->link, PHASE_CONNECT);
    if (id->world > 1) {
        /* Longer than the supervisor's own limit: it names the culprit, this only ends us. */
        struct comm_net_params np = {.world = id->world,
                                     .rank = id->rank,
                                     .generation = id->generation,
                                     .secret = id->secret,
                                     .host_id = id->host_id,
                                     .interface = r->s->cluster.interface,
                                     .timeout_ns =
                                         2 * r->s->restart.hang_timeout_ns + 60 * NS_PER_S,
                                     .link = r->link};
        r->net = comm_net_new(&np, NULL, e);
        if (!r->net)
            return -1;
    }
    if (link_barrier(r->link, clock_now_ns() + 600 * NS_PER_S, e) < 0)
        return err_wrap(e, "rendezvous");
    r->groups = groups_new(r->s, id->rank, r->net, e);
    return r->groups ? 0 : -1;
}

static int open_model(struct rank *r, struct err *e)
{
    const struct spec *s = r->s;
    struct coord at = r->groups->at;
    uint32_t acc = spec_accumulation(s);
    r->params = params_new(s, at);
    r->sched = sched_new(s->parallel.schedule, s->parallel.pipeline, acc);
    struct sched_cost cost = {1, 2, 0, 0};
    struct sched_report report;
    if (sched_simulate(r->sched, &cost, &report, e) < 0)
        return err_wrap(e, "schedule");
    r->mem = mem_plan_new(s, r->params, r->sched);
    r->dev = dev_cpu_open(e);
    r->kern = r->dev ? kern_cpu_open(s->job.threads, e) : NULL;
    if (!r->kern || !(r->stream = r->dev->stream_new(r->dev, e)) ||
        r->dev->alloc(r->dev, r->mem->arena_bytes, &r->arena, e) < 0)
        return -1;
    struct stage_params sp = {.spec = s,
                              .params = r->params,
                              .mem = r->mem,
                              .kern = r->kern,
                              .dev = r->dev,
                              .stream = r->stream,
                              .tensor = r->groups->of[GROUP_TENSOR],
                              .kv = r->groups->of[GROUP_KV],
                              .tp = at.tp,
                              .plant = r->plant,
                              .arena = r->arena};
    r->stage = stage_new(&sp, e);
    if (!r->stage)
        return -1;
    r->arenas = (struct optim_arenas){.weights = at_arena(r, MEM_WEIGHT),
                                      .grads = at_arena(r, MEM_GRAD),
                                      .exp_avg = at_arena(r, MEM_EXP_AVG),
                                      .exp_avg_sq = at_arena(r, MEM_EXP_AVG_SQ)};
    r->micro_grads = acc > 1 ? at_arena(r, MEM_MICRO_GRAD) : NULL;
    size_t tokens = (size_t)s->train.micro_batch * s->train.seq_len;
    r->ids = xcalloc(tokens, sizeof *r->ids);
    r->targets = xcalloc(tokens, sizeof *r->targets);
    r->losses = xcalloc(acc, sizeof *r->losses);
    return 0;
}

/* Weights from the newest checkpoint, or from the seed. */
static int load(struct rank *r, struct err *e)
{
    link_phase(r->link, PHASE_LOAD);
    r->data = data_open(r->s, e);
    if (!r->data)
        return -1;
    struct ckpt_params cp = {
        .spec = r->s,
        .params = r->params,
        .world = r->groups->of[GROUP_WORLD],
        .link = r->link,
        .rank = r->id->rank,
        .generation = r->id->generation,
        .dp = r->groups->at.dp,
        .tensors = {r->arenas.weights, r->arenas.exp_avg, r->arenas.exp_avg_sq}};
    r->ckpt = ckpt_new(&cp, e);
    if (!r->ckpt)
        return -1;
    int loaded = ckpt_load(r->ckpt, &r->state, e);
    if (loaded < 0)
        return -1;
    if (loaded && r->state.data_digest != data_digest(r->data) && r->id->rank == 0)
        link_event(r->link, "warning: the training files are not those of the checkpoint");
    if (!loaded) {
        r->state = (struct ckpt_state){.loss_scale = 1};
        if (stage_init_weights(r->stage, e) < 0)
            return -1;
        if (r->id->rank == 0)
            link_event(r->link, "fresh start; data: %s", data_describe(r->data));
    }
    r->state.data_digest = data_digest(r->data);
    return 0;
}

/* Micro-batch a of this replica is number a * data + dp of the step. */
static uint64_t first_of_micro(const struct rank *r, uint32_t micro)
{
    uint64_t m = (uint64_t)micro * r->s->parallel.data + r->groups->at.dp;
    return r->first_sample + m * r->s->train.micro_batch;
}

static double micro_tokens(struct rank *r, uint32_t micro)
{
    double n = 0;
    for (uint32_t i = 0; i < r->s->train.micro_batch; i++)
        n += data_train_count(r->data, first_of_micro(r, micro) + i);
    return n;
}

static int input(void *ctx, uint32_t micro, struct pipeline_input *ret, struct err *e)
{
    struct rank *r = ctx;
    const struct spec *s = r->s;
    *ret = (struct pipeline_input){r->ids, r->targets, (float)(1 / r->tokens)};
    if (r->plant == PLANT_MICRO_LOSS && !r->validating)
        ret->scale =
            (float)(1 / (micro_tokens(r, micro) * spec_accumulation(s) * s->parallel.data));
    if (r->loaded == micro)
        return 0;
    int64_t t0 = clock_now_ns();
    for (uint32_t i = 0; i < s->train.micro_batch; i++) {
        uint64_t sample = first_of_micro(r, micro) + i;
        int32_t *ids = r->ids + (size_t)i * s->train.seq_len;
        int32_t *targets = r->targets + (size_t)i * s->train.seq_len;
        int n = r->validating ? data_validation(r->data, sample, ids, targets, e)
                              : data_train(r->data, sample, ids, targets, e);
        if (n < 0)
            return -1;
    }
    r->loaded = micro;
    r->data_ns += clock_now_ns() - t0;
    return 0;
}

static struct pipeline pipeline_of(struct rank *r)
{
    return (struct pipeline){.stage = r->stage,
                             .comm = r->groups->of[GROUP_PIPELINE],
                             .kern = r->kern,
                             .link = r->link,
                             .stream = r->stream,
                             .index = r->groups->at.pp,
                             .n_stages = r->s->parallel.pipeline,
                             .grads = r->arenas.grads,
                             .micro_grads = r->micro_grads,
                             .n_grads = r->params->n_elements,
                             .input = input,
                             .ctx = r,
                             .losses = r->losses};
}

static int reduce_data(struct rank *r, struct err *e)
{
    struct comm *c = r->groups->of[GROUP_DATA];
    if (!c)
        return 0;
    int64_t n = r->params->n_elements;
    for (int64_t at = 0; at < n; at += BUCKET_ELEMENTS) {
        int64_t k = n - at < BUCKET_ELEMENTS ? n - at : BUCKET_ELEMENTS;
        if (at == 0 && r->plant == PLANT_DROP_BUCKET)
            continue;
        if (c->ops->all_reduce(c, r->arenas.grads + at, (size_t)k, DT_F32, COMM_SUM, r->stream,
                               e) < 0)
            return -1;
    }
    return 0;
}

/* Both copies of a tied table get embedding gradient + head gradient. */
static int reduce_tied(struct rank *r, struct err *e)
{
    if (!r->s->model.tied || r->plant == PLANT_TIED_GRAD)
        return 0;
    const struct store *in = params_store(r->params, STORE_EMBED, -1);
    const struct store *out = params_store(r->params, STORE_HEAD, -1);
    float *g = r->arenas.grads;
    if (in && out) {
        struct add_args a = {.dtype = DT_F32,
                             .n = in->n,
                             .x = g + out->offset,
                             .y = g + in->offset,
                             .scratch = stage_scratch(r->stage)};
        r->kern->add(r->kern, &a, r->stream);
        return r->dev->copy_async(r->dev, g + out->offset, g + in->offset,
                                  (size_t)in->n * sizeof *g, r->stream, e);
    }
    const struct store *mine = in ? in : out;
    struct comm *c = r->groups->of[GROUP_EMBEDDING];
    if (!mine || !c)
        return 0;
    return c->ops->all_reduce(c, g + mine->offset, (size_t)mine->n, DT_F32, COMM_SUM, r->stream,
                              e);
}

static int report(struct rank *r, double loss, double norm, double lr, int64_t t0,
                  int64_t comm0, struct err *e)
{
    char line[512];
    if (r->id->rank != 0)
        return 0;
    double s = (double)(clock_now_ns() - t0) / 1e9;
    double comm = (double)(groups_spent_ns(r->groups) - comm0) / 1e9;
    (void)snprintf(
        line, sizeof line,
        "step=%llu loss=%.9g grad_norm=%.9g lr=%.9g loss_scale=%.9g tokens_per_s=%.1f "
        "samples_per_s=%.2f step_ms=%.3f comm_share=%.4f data_wait_ms=%.3f",
        (unsigned long long)r->state.step, loss, norm, lr, r->state.loss_scale, r->tokens / s,
        r->s->train.batch / s, s * 1e3, comm / s, (double)r->data_ns / 1e6);
    return link_metrics(r->link, line, e);
}

static int one_step(struct rank *r, bool *ret_stop, struct err *e)
{
    const struct spec *s = r->s;
    int64_t t0 = clock_now_ns(), comm0 = groups_spent_ns(r->groups);
    r->validating = false;
    r->loaded = UINT32_MAX;
    r->first_sample = r->state.consumed_samples;
    r->tokens = 0;
    r->data_ns = 0;
    for (uint32_t i = 0; i < s->train.batch; i++)
        r->tokens += data_train_count(r->data, r->first_sample + i);

    struct pipeline p = pipeline_of(r);
    if (pipeline_step(&p, &r->sched->lanes[p.index], e) < 0)
        return -1;
    link_phase(r->link, PHASE_REDUCE);
    double norm;
    struct optim_norm on = {.spec = s,
                            .params = r->params,
                            .tp = r->groups->at.tp,
                            .tensor = r->groups->of[GROUP_TENSOR],
                            .pipeline = p.comm,
                            .local_only = r->plant == PLANT_LOCAL_CLIP,
                            .sums = at_arena(r, MEM_NORM_SUMS),
                            .scratch = stage_scratch(r->stage)};
    if (reduce_data(r, e) < 0 || reduce_tied(r, e) < 0 ||
        optim_grad_norm(&on, r->kern, r->arenas.grads, r->stream, &norm, e) < 0)
        return -1;
    struct agree_in in = {.stop = link_stop_asked(r->link),
                          .written = ckpt_written(r->ckpt),
                          .losses = r->losses,
                          .n_losses = spec_accumulation(s)};
    struct agree_out out;
    if (agree(r->groups, &in, &out, e) < 0)
        return -1;
    double loss = out.loss_sum / r->tokens;
    if (!isfinite(norm) || !isfinite(loss))
        return err_set(e, ERR_NUMERIC, "step %llu: loss %g, gradient norm %g",
                       (unsigned long long)r->state.step + 1, loss, norm);
    if (ckpt_on_agreed(r->ckpt, out.written_min, e) < 0)
        return -1;

    link_phase(r->link, PHASE_OPTIMIZER);
    double lr = optim_lr(s, r->state.step);
    r->state.optimizer_t++;
    struct optim_values *v = at_arena(r, MEM_STEP_VALUES);
    *v = (struct optim_values){.grad_scale = optim_clip_factor(s->train.clip, norm)};
    optim_step(s, r->params, r->kern, &r->arenas, lr, r->state.optimizer_t, v,
               stage_scratch(r->stage), r->stream);
    r->state.step++;
    r->state.consumed_samples += s->train.batch;
    link_page(r->link)->step = r->state.step;
    *ret_stop = out.stop;
    return report(r, loss, norm, lr, t0, comm0, e);
}

/* Mean loss over the held-out windows; micro-batches are dealt to replicas as in training. */
static int validate(struct rank *r, struct err *e)
{
    const struct spec *s = r->s;
    uint64_t windows = data_validation_windows(r->data);
    uint64_t per_round = (uint64_t)s->train.micro_batch * s->parallel.data;
    struct pipeline p = pipeline_of(r);
    double sum = 0, tokens = 0, loss = 0;
    r->validating = true;
    r->tokens = 1;
    for (uint64_t w = 0; w < windows; w++)
        tokens += data_validation_count(r->data, w);
    p.losses = &loss;
    for (r->first_sample = 0; r->first_sample < windows; r->first_sample += per_round) {
        r->loaded = UINT32_MAX;
        struct agree_in in = {.losses = &loss, .n_losses = 1};
        struct agree_out out;
        if (pipeline_forward(&p, 0, e) < 0)
            return -1;
        link_phase(r->link, PHASE_VALIDATE);
        if (agree(r->groups, &in, &out, e) < 0)
            return -1;
        sum += out.loss_sum;
    }
    if (r->id->rank == 0) {
        char line[128];
        (void)snprintf(line, sizeof line, "step=%llu validation_loss=%.9g",
                       (unsigned long long)r->state.step, sum / tokens);
        link_event(r->link, "step %llu: validation loss %.4f nats per token",
                   (unsigned long long)r->state.step, sum / tokens);
        return link_metrics(r->link, line, e);
    }
    return 0;
}

static int sample(struct rank *r, struct err *e)
{
    struct pipeline p = pipeline_of(r);
    return sample_run(r->s, r->params, r->groups, &p, e);
}

static int snapshot(struct rank *r, struct err *e)
{
    link_phase(r->link, PHASE_CHECKPOINT);
    return ckpt_snapshot(r->ckpt, &r->state, e);
}

static bool due(uint64_t step, uint32_t every)
{
    return every && step % every == 0;
}

static int steps(struct rank *r, struct err *e)
{
    const struct spec *s = r->s;
    bool stop = false;
    link_page(r->link)->step = r->state.step;
    /* Nothing left to train, but asked for in another layout: that is a reshard. */
    if (r->state.step >= s->train.steps && ckpt_layout_differs(r->ckpt) && snapshot(r, e) < 0)
        return -1;
    while (r->state.step < s->train.steps && !stop) {
        if (one_step(r, &stop, e) < 0)
            return -1;
        bool last = r->state.step >= s->train.steps;
        if (last || stop || due(r->state.step, s->checkpoint.every)) {
            if (snapshot(r, e) < 0)
                return -1;
        }
        if (data_validation_windows(r->data) &&
            (last || due(r->state.step, s->data.validation.every)) && validate(r, e) < 0)
            return -1;
    }
    if (r->state.step >= s->train.steps && s->train.sample.tokens && sample(r, e) < 0)
        return -1;
    link_phase(r->link, PHASE_CHECKPOINT);
    if (ckpt_flush(r->ckpt, clock_now_ns() + FLUSH_NS, e) < 0)
        return -1;
    link_phase(r->link, PHASE_DONE);
    return link_done(r->link, r->state.step >= s->train.steps, r->state.step, e);
}

int train_run(const struct spec *s, struct link *link, const struct link_identity *id,
              struct err *e)
{
    __attribute__((cleanup(rank_done))) struct rank r = {.s = s, .id = id, .link = link};
    if (id->world != spec_world(s))
        (void)err_set(e, ERR_SPEC, "the layout needs %u ranks, the job has %u", spec_world(s),
                      id->world);
    else if (plant_get(&r.plant, e) == 0 && connect_ranks(&r, e) == 0 &&
             open_model(&r, e) == 0 && load(&r, e) == 0 && steps(&r, e) == 0)
        return 0;
    /* Said before anything is taken down: closing connections looks like a loss to others, and
     * the page still holds the peer that was waited for. */
    uint32_t peer = link_page(link)->coll_peer;
    link_failed(link, e, e->kind == ERR_NETWORK && peer != UINT32_MAX ? (int)peer : -1);
    return -1;
}
