#include "common/shape/flops.h"

#include "common/spec/spec.h"

double flops_layer_per_token(const struct spec *s)
{
    const double hidden = s->model.hidden;
    const double head_dim = hidden / s->model.heads;
    const double q = s->model.heads * head_dim, kv = s->model.kv_heads * head_dim;
    const double matrices = s->model.arch == ARCH_GPT2 ? 2 : 3; /* up, down; gate */
    const double weights = hidden * (q + 2 * kv + q + matrices * s->model.ffn);

    return 6 * weights + 6 * q * s->train.seq_len;
}

double flops_head_per_token(const struct spec *s)
{
    return 6.0 * s->model.hidden * s->model.vocab;
}

double flops_per_token(const struct spec *s)
{
    return s->model.layers * flops_layer_per_token(s) + flops_head_per_token(s);
}
