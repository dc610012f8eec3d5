/* init.c: initial weights from a counter-based generator.
 *
 * Number i of tensor `name` depends on (seed, name, i) alone, so every layout starts from the
 * same bits.  It is a sum of twelve uniform 16-bit integers (Irwin-Hall), which is a normal
 * variable to within what initial weights care about: mean and variance are exact, the tails
 * end at six standard deviations, and no libm is asked.  The integers are the quarters of the
 * words 3i .. 3i+2 of SplitMix64 (Steele, Lea & Flood 2014) begun at a hash of seed and name.
 */
#include "worker/model/stage.h"

#include <math.h>
#include <string.h>

#include "common/shape/params.h"
#include "common/spec/spec.h"
#include "worker/model/stage_priv.h"

#define GOLDEN 0x9e3779b97f4a7c15u

static uint64_t mix(uint64_t z)
{
    z += GOLDEN;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void init_normal(uint64_t seed, const char *name, double std, int64_t first, int64_t n,
                 float *ret)
{
    uint64_t key = mix(seed);
    for (const char *c = name; *c; c++)
        key = mix(key ^ (uint8_t)*c);

    /* The sum has mean 12 * 65535/2 and variance 12 * (65536^2 - 1)/12. */
    const double scale = std / sqrt(65536.0 * 65536.0 - 1.0);
    for (int64_t i = 0; i < n; i++) {
        int32_t sum = -6 * 65535;
        for (uint64_t j = 0; j < 3; j++) {
            uint64_t w = mix(key + GOLDEN * (3 * (uint64_t)(first + i) + j));
            sum +=
                (int32_t)((w & 0xffff) + (w >> 16 & 0xffff) + (w >> 32 & 0xffff) + (w >> 48));
        }
        ret[i] = (float)(sum * scale);
    }
}

static void init_row(const struct param *p, uint64_t seed, int64_t first, int64_t n, float *ret)
{
    switch (p->init) {
    case INIT_NORMAL:
        init_normal(seed, p->name, p->std, first, n, ret);
        break;
    case INIT_ZERO:
    case INIT_ONE:
        for (int64_t i = 0; i < n; i++)
            ret[i] = p->init == INIT_ONE ? 1.0f : 0.0f;
        break;
    }
}

/* What no piece covers (padded vocabulary rows, gaps between stores) is zero. */
void init_pieces(const struct params *p, uint64_t seed, float *ret)
{
    memset(ret, 0, (size_t)p->n_elements * sizeof(float));
    for (size_t i = 0; i < p->n_pieces; i++) {
        const struct piece *q = &p->pieces[i];
        const struct param *m = &p->params[q->param];
        float *at = ret + p->stores[q->store].offset + q->offset;
        for (int64_t r = 0; r < q->size[0]; r++) {
            int64_t first = (q->start[0] + r) * m->shape[1] + q->start[1];
            init_row(m, seed, first, q->size[1], at + r * q->stride);
        }
    }
}
