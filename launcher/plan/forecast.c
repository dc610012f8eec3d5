#include "launcher/plan/forecast.h"

#include <string.h>

#include "common/base/err.h"
#include "common/shape/flops.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"
#include "launcher/plan/plan.h"

/* Replicas of a rank have the same bytes: each is counted once and copied. */
static void count_bytes(struct forecast *f)
{
    const struct topo *t = &f->plan->topo;
    for (uint32_t i = 0; i < f->plan->world; i++) {
        struct coord c = f->plan->ranks[i].at;
        if (c.dp > 0) {
            c.dp = 0;
            f->ranks[i] = f->ranks[topo_rank(t, c)];
            continue;
        }
        AUTO(params) struct params *p = params_new(f->spec, c);
        AUTO(mem_plan) struct mem_plan *m = mem_plan_new(f->spec, p, f->sched);
        memcpy(f->ranks[i].class_bytes, m->class_bytes, sizeof(m->class_bytes));
        f->ranks[i].arena_bytes = m->arena_bytes;
    }
}

struct forecast *forecast_new(const struct spec *s, const struct plan *p, struct err *e)
{
    static const struct sched_cost cost = {.f = 1, .b = 2};
    AUTO(forecast) struct forecast *f = xcalloc(1, sizeof(*f));
    f->spec = s;
    f->plan = p;
    f->n_params = params_count(s);
    f->flops_per_token = flops_per_token(s);
    f->accumulation = spec_accumulation(s);
    f->tokens_per_step = (int64_t)s->train.batch * s->train.seq_len;
    f->sched = sched_new(s->parallel.schedule, p->topo.pipeline, f->accumulation);
    if (sched_simulate(f->sched, &cost, &f->report, e) < 0)
        return NULL;
    f->ranks = xcalloc(p->world, sizeof(*f->ranks));
    count_bytes(f);
    return TAKE(f);
}

void forecast_free(struct forecast *f)
{
    if (!f)
        return;
    sched_free(f->sched);
    free(f->ranks);
    free(f);
}
