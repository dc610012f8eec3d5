/* forecast_json.c: the same for scripts.  Members:
 *
 *   name, parameters, flops_per_token
 *   model        arch, layers, hidden, heads, kv_heads, ffn, vocab, tied
 *   parallel     data, pipeline, tensor, sequence, workers
 *   batch        sequences, micro_batch, accumulation, tokens
 *   schedule     kind, bubble, slots, stages: per stage a list of [op, micro-batch, slot, tick]
 *   nodes        host, slots, ranks
 *   groups       kind -> list of lists of ranks, those with more than one member
 *   ranks        rank, node, local_rank, pp, dp, tp, layers: [first, number],
 *                bytes: class -> bytes, arena_bytes
 *   env          what every worker's environment gets from the spec
 */
#include "launcher/plan/forecast.h"

#include <jansson.h>

#include "common/base/buf.h"
#include "common/spec/spec.h"
#include "launcher/plan/plan.h"

static void put_int(json_t *o, const char *name, uint64_t n)
{
    (void)json_object_set_new(o, name, json_integer((json_int_t)n));
}

static json_t *model(const struct spec *s)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "arch",
                              json_string(s->model.arch == ARCH_GPT2 ? "gpt2" : "llama"));
    put_int(o, "layers", s->model.layers);
    put_int(o, "hidden", s->model.hidden);
    put_int(o, "heads", s->model.heads);
    put_int(o, "kv_heads", s->model.kv_heads);
    put_int(o, "ffn", s->model.ffn);
    put_int(o, "vocab", s->model.vocab);
    (void)json_object_set_new(o, "tied", json_boolean(s->model.tied));
    return o;
}

static json_t *parallel(const struct forecast *f)
{
    json_t *o = json_object();
    put_int(o, "data", f->plan->topo.data);
    put_int(o, "pipeline", f->plan->topo.pipeline);
    put_int(o, "tensor", f->plan->topo.tensor);
    (void)json_object_set_new(o, "sequence", json_boolean(f->spec->parallel.sequence));
    put_int(o, "workers", f->plan->world);
    return o;
}

static json_t *batch(const struct forecast *f)
{
    json_t *o = json_object();
    put_int(o, "sequences", f->spec->train.batch);
    put_int(o, "micro_batch", f->spec->train.micro_batch);
    put_int(o, "accumulation", f->accumulation);
    put_int(o, "tokens", (uint64_t)f->tokens_per_step);
    return o;
}

static json_t *schedule(const struct forecast *f)
{
    json_t *o = json_object(), *stages = json_array();
    const char *kind = f->spec->parallel.schedule == SCHEDULE_GPIPE ? "gpipe" : "1f1b";
    (void)json_object_set_new(o, "kind", json_string(kind));
    (void)json_object_set_new(o, "bubble", json_real(f->report.bubble));
    put_int(o, "slots", f->report.max_slots);
    for (uint32_t i = 0; i < f->sched->n_stages; i++) {
        json_t *items = json_array();
        for (size_t k = 0; k < f->sched->lanes[i].n; k++) {
            const struct sched_item *it = &f->sched->lanes[i].items[k];
            json_t *x = json_array();
            (void)json_array_append_new(x, json_string(sched_op_name(it->op)));
            (void)json_array_append_new(x, json_integer(it->micro));
            (void)json_array_append_new(x, json_integer(it->slot));
            (void)json_array_append_new(x, json_integer(it->tick));
            (void)json_array_append_new(items, x);
        }
        (void)json_array_append_new(stages, items);
    }
    (void)json_object_set_new(o, "stages", stages);
    return o;
}

static json_t *nodes(const struct plan *p)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const struct plan_node *n = &p->nodes[i];
        json_t *o = json_object(), *ranks = json_array();
        (void)json_object_set_new(o, "host", json_string(n->host));
        put_int(o, "slots", n->slots);
        for (uint32_t k = 0; k < n->n_ranks; k++)
            (void)json_array_append_new(ranks, json_integer(n->first_rank + k));
        (void)json_object_set_new(o, "ranks", ranks);
        (void)json_array_append_new(a, o);
    }
    return a;
}

static json_t *groups(const struct forecast *f)
{
    const struct plan *p = f->plan;
    json_t *o = json_object();
    AUTO_FREE uint32_t *r = xcalloc(p->world, sizeof(*r));
    for (enum group_kind k = 0; k < GROUP_KIND_COUNT; k++) {
        json_t *all = json_array();
        for (uint32_t i = 0; i < p->world; i++) {
            uint32_t n = topo_group(&p->topo, k, i, f->spec->model.kv_heads, r);
            if (n < 2 || r[0] != i)
                continue;
            json_t *one = json_array();
            for (uint32_t m = 0; m < n; m++)
                (void)json_array_append_new(one, json_integer(r[m]));
            (void)json_array_append_new(all, one);
        }
        (void)json_object_set_new(o, group_kind_name(k), all);
    }
    return o;
}

static json_t *ranks(const struct forecast *f)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < f->plan->world; i++) {
        const struct plan_rank *r = &f->plan->ranks[i];
        json_t *o = json_object(), *layers = json_array(), *bytes = json_object();
        put_int(o, "rank", i);
        put_int(o, "node", r->node);
        put_int(o, "local_rank", r->local_rank);
        put_int(o, "pp", r->at.pp);
        put_int(o, "dp", r->at.dp);
        put_int(o, "tp", r->at.tp);
        (void)json_array_append_new(layers, json_integer(r->layer0));
        (void)json_array_append_new(layers, json_integer(r->n_layers));
        (void)json_object_set_new(o, "layers", layers);
        for (enum mem_class c = 0; c < MEM_CLASS_COUNT; c++)
            put_int(bytes, mem_class_name(c), f->ranks[i].class_bytes[c]);
        (void)json_object_set_new(o, "bytes", bytes);
        put_int(o, "arena_bytes", f->ranks[i].arena_bytes);
        (void)json_array_append_new(a, o);
    }
    return a;
}

static json_t *env(const struct plan *p)
{
    json_t *a = json_array();
    for (char **v = p->env; *v; v++)
        (void)json_array_append_new(a, json_string(*v));
    return a;
}

int forecast_json(const struct forecast *f, struct buf *out)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "name", json_string(f->spec->name));
    put_int(o, "parameters", (uint64_t)f->n_params);
    (void)json_object_set_new(o, "flops_per_token", json_real(f->flops_per_token));
    (void)json_object_set_new(o, "model", model(f->spec));
    (void)json_object_set_new(o, "parallel", parallel(f));
    (void)json_object_set_new(o, "batch", batch(f));
    (void)json_object_set_new(o, "schedule", schedule(f));
    (void)json_object_set_new(o, "nodes", nodes(f->plan));
    (void)json_object_set_new(o, "groups", groups(f));
    (void)json_object_set_new(o, "ranks", ranks(f));
    (void)json_object_set_new(o, "env", env(f->plan));
    AUTO_FREE char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(o);
    return !text || buf_printf(out, "%s\n", text) < 0 ? -1 : 0;
}
