#include "launcher/plan/plan.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/err.h"
#include "common/shape/params.h"
#include "common/spec/spec.h"

static const char *const own_names[] = {"RANK",       "WORLD_SIZE",       "NODE_RANK",
                                        "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"};
enum { N_OWN = sizeof(own_names) / sizeof(own_names[0]) };

static size_t count(char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    return n;
}

/* Length of NAME in "NAME=value". */
static size_t name_len(const char *entry)
{
    return strcspn(entry, "=");
}

static bool same_name(const char *a, const char *b)
{
    size_t n = name_len(a);
    return n == name_len(b) && memcmp(a, b, n) == 0;
}

static bool has_name(char *const *list, size_t n, const char *entry)
{
    for (size_t i = 0; i < n; i++)
        if (same_name(list[i], entry))
            return true;
    return false;
}

static bool is_own(const char *entry)
{
    for (size_t i = 0; i < N_OWN; i++)
        if (same_name(own_names[i], entry))
            return true;
    return false;
}

/* A name, or "PREFIX_*". */
static bool matches(const char *pattern, const char *entry)
{
    size_t n = strlen(pattern);
    if (n > 0 && pattern[n - 1] == '*')
        return strncmp(pattern, entry, n - 1) == 0;
    return same_name(pattern, entry);
}

static bool chosen(char *const *patterns, const char *entry)
{
    for (; patterns && *patterns; patterns++)
        if (matches(*patterns, entry))
            return true;
    return false;
}

/* cluster.env first and from its end, so that of one name twice the later stays and cluster.env
 * wins; then what the user's environment adds. */
static char **common_env(const struct spec *s, char *const *user_env)
{
    const size_t n_spec = count(s->cluster.env), n_user = count(user_env);
    char **env = xcalloc(n_spec + n_user + 1, sizeof(*env));
    size_t n = 0;
    for (size_t i = n_spec; i-- > 0;)
        if (!has_name(env, n, s->cluster.env[i]))
            env[n++] = xstrdup(s->cluster.env[i]);
    for (size_t i = 0; i < n_user; i++)
        if (chosen(s->job.env, user_env[i]) && !has_name(env, n, user_env[i]))
            env[n++] = xstrdup(user_env[i]);
    return env;
}

/* The first n_used nodes get ranks, each as many as it has slots. */
static void place(struct plan *p)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        struct plan_node *n = &p->nodes[i];
        n->first_rank = rank;
        n->n_ranks = n->slots < p->world - rank ? n->slots : p->world - rank;
        p->n_used += n->n_ranks > 0;
        for (uint32_t k = 0; k < n->n_ranks; k++, rank++)
            p->ranks[rank] = (struct plan_rank){
                .rank = rank,
                .node = i,
                .local_rank = k,
                .at = topo_coord(&p->topo, rank),
            };
    }
}

struct plan *plan_new(const struct spec *s, const uint32_t *slots, char *const *user_env,
                      struct err *e)
{
    AUTO(plan) struct plan *p = xcalloc(1, sizeof(*p));
    p->topo = topo_of_spec(s);
    p->world = topo_world(&p->topo);
    p->n_nodes = (uint32_t)s->cluster.n_nodes;
    p->nodes = xcalloc(p->n_nodes, sizeof(*p->nodes));
    uint64_t there = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        assert(slots[i] > 0);
        p->nodes[i].host = xstrdup(s->cluster.nodes[i].host);
        p->nodes[i].slots = slots[i];
        there += slots[i];
    }
    if (there < p->world) {
        err_set(
            e, ERR_SPEC,
            "the layout needs %u workers (data %u x pipeline %u x tensor %u), but there are "
            "%llu slots on %u node%s: add nodes, or raise cluster.slots",
            p->world, p->topo.data, p->topo.pipeline, p->topo.tensor, (unsigned long long)there,
            p->n_nodes, p->n_nodes == 1 ? "" : "s");
        return NULL;
    }
    p->ranks = xcalloc(p->world, sizeof(*p->ranks));
    place(p);

    AUTO_FREE uint32_t *stages = xcalloc(p->topo.pipeline, sizeof(*stages));
    params_stages(s, stages);
    for (uint32_t i = 0; i < p->world; i++) {
        struct plan_rank *r = &p->ranks[i];
        for (uint32_t k = 0; k < r->at.pp; k++)
            r->layer0 += stages[k];
        r->n_layers = stages[r->at.pp];
    }
    p->env = common_env(s, user_env);
    return TAKE(p);
}

void plan_free(struct plan *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        free(p->nodes[i].host);
    free(p->nodes);
    free(p->ranks);
    plan_env_free(p->env);
    free(p);
}

void plan_slots_local(const struct spec *s, uint32_t cores, uint32_t *ret)
{
    const uint32_t n = (uint32_t)s->cluster.n_nodes;
    const uint32_t share = (spec_world(s) + n - 1) / n;
    for (uint32_t i = 0; i < n; i++) {
        if (s->cluster.nodes[i].slots)
            ret[i] = s->cluster.nodes[i].slots;
        else if (s->cluster.slots)
            ret[i] = s->cluster.slots;
        else
            ret[i] = cores > share ? cores : share;
    }
}

char **plan_env(const struct plan *p, uint32_t rank)
{
    assert(rank < p->world);
    const struct plan_rank *r = &p->ranks[rank];
    const uint32_t values[N_OWN] = {
        rank, p->world, r->node, r->local_rank, p->nodes[r->node].n_ranks, r->node,
    };
    const size_t n_env = count(p->env);
    char **env = xcalloc(N_OWN + n_env + 1, sizeof(*env));
    size_t n = 0;
    for (; n < N_OWN; n++)
        env[n] = xasprintf("%s=%u", own_names[n], values[n]);
    for (size_t i = 0; i < n_env; i++)
        if (!is_own(p->env[i]))
            env[n++] = xstrdup(p->env[i]);
    return env;
}

void plan_env_free(char **env)
{
    for (size_t i = 0; env && env[i]; i++)
        free(env[i]);
    free(env);
}
