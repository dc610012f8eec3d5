#include "worker/loop/groups.h"

#include "common/base/err.h"
#include "common/spec/spec.h"
#include "worker/comm.h"

struct groups *groups_new(const struct spec *s, uint32_t rank, struct comm_net *net,
                          struct err *e)
{
    AUTO(groups) struct groups *g = xcalloc(1, sizeof *g);
    g->topo = topo_of_spec(s);
    g->at = topo_coord(&g->topo, rank);
    g->rank = rank;
    uint32_t world = topo_world(&g->topo);
    AUTO_FREE uint32_t *ranks = xcalloc(world, sizeof *ranks);
    for (enum group_kind k = 0; k < GROUP_KIND_COUNT; k++) {
        uint32_t n = topo_group(&g->topo, k, rank, s->model.kv_heads, ranks);
        if (n < 2)
            continue;
        g->of[k] = comm_tcp_new(net, k, ranks, n, e);
        if (!g->of[k])
            return NULL;
    }
    return TAKE(g);
}

void groups_free(struct groups *g)
{
    if (!g)
        return;
    for (enum group_kind k = 0; k < GROUP_KIND_COUNT; k++)
        if (g->of[k])
            g->of[k]->ops->free(g->of[k]);
    free(g);
}

int64_t groups_spent_ns(const struct groups *g)
{
    int64_t ns = 0;
    for (enum group_kind k = 0; k < GROUP_KIND_COUNT; k++)
        if (g->of[k])
            ns += g->of[k]->spent_ns;
    return ns;
}
