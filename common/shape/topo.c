/* topo.c: arithmetic of the (pipeline, data, tensor) grid; docs/design.md, "Ranks". */
#include "common/shape/topo.h"

#include <assert.h>

#include "common/spec/spec.h"

struct topo topo_of_spec(const struct spec *s)
{
    return (struct topo){
        .pipeline = s->parallel.pipeline,
        .data = s->parallel.data,
        .tensor = s->parallel.tensor,
    };
}

uint32_t topo_world(const struct topo *t)
{
    return t->pipeline * t->data * t->tensor;
}

struct coord topo_coord(const struct topo *t, uint32_t rank)
{
    assert(rank < topo_world(t));
    return (struct coord){
        .pp = rank / t->tensor / t->data,
        .dp = rank / t->tensor % t->data,
        .tp = rank % t->tensor,
    };
}

uint32_t topo_rank(const struct topo *t, struct coord c)
{
    return (c.pp * t->data + c.dp) * t->tensor + c.tp;
}

uint32_t topo_group(const struct topo *t, enum group_kind kind, uint32_t rank,
                    uint32_t kv_heads, uint32_t *ret_ranks)
{
    const struct coord at = topo_coord(t, rank);
    const uint32_t last = t->pipeline - 1;
    const uint32_t share = kv_heads && t->tensor > kv_heads ? t->tensor / kv_heads : 1;
    uint32_t first = rank, step = 1, n = 1;

    switch (kind) {
    case GROUP_WORLD:
        first = 0;
        n = topo_world(t);
        break;
    case GROUP_TENSOR:
        first = rank - at.tp;
        n = t->tensor;
        break;
    case GROUP_DATA:
        step = t->tensor;
        first = rank - at.dp * step;
        n = t->data;
        break;
    case GROUP_PIPELINE:
        step = t->data * t->tensor;
        first = rank - at.pp * step;
        n = t->pipeline;
        break;
    case GROUP_EMBEDDING:
        if (last == 0)
            break;
        if (at.pp != 0 && at.pp != last)
            return 0;
        step = last * t->data * t->tensor;
        first = at.pp ? rank - step : rank;
        n = 2;
        break;
    case GROUP_KV:
        first = rank - at.tp % share;
        n = share;
        break;
    case GROUP_KIND_COUNT:
        assert(!"no such group");
    }
    for (uint32_t i = 0; i < n; i++)
        ret_ranks[i] = first + i * step;
    return n;
}

const char *group_kind_name(enum group_kind kind)
{
    static const char *const names[GROUP_KIND_COUNT] = {
        [GROUP_WORLD] = "world",       [GROUP_TENSOR] = "tensor",       [GROUP_DATA] = "data",
        [GROUP_PIPELINE] = "pipeline", [GROUP_EMBEDDING] = "embedding", [GROUP_KV] = "kv",
    };
    return names[kind];
}
