/* attention.c: causal attention in tiles, with the softmax kept online.
 *
 * Forward (Milakov & Gimelshein 2018; Dao et al. 2022): for a tile of Q_TILE queries the keys
 * come in tiles of K_TILE; the running maximum m, sum l and output o of a row are scaled by
 * exp(m_old - m_new) when a tile raises its maximum.  lse = m + log(l).
 * Backward: P = exp(S - lse) is made again per tile, and with D = rowsum(dout * out)
 *   dV += P^T dO,   dS = P (dO V^T - D),   dQ += dS K,   dK += dS^T Q
 * where S = (Q scale) K^T.  All sums run over tiles in ascending order, heads of a group too.
 *
 * Everything is packed per head, with seq_len and head_dim rounded up to 16 and zeros in the
 * padding.  A padded key is behind every real query, so that the causal mask hides it too.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/base/err.h"
#include "kernels/cpu/approx.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/tile.h"

enum { Q_TILE = 16, K_TILE = 64, QB_TILE = 32 }; /* QB_TILE: of queries, backward */

/* One (sequence, kv head) as the loops see it. */
struct shape {
    int64_t T, Tp, d, dp; /* Tp, dp: rounded up to tiles and lanes */
    int64_t group;        /* query heads per kv head */
    int64_t ld, ldo;      /* row lengths of qkv and out */
    float scale;
};

static struct shape shape_of(const struct attn_args *a)
{
    float scale = 1.0f / __builtin_sqrtf((float)a->head_dim);
    return (struct shape){
        .T = a->seq_len,
        .Tp = (a->seq_len + QB_TILE - 1) / QB_TILE * QB_TILE,
        .d = a->head_dim,
        .dp = (a->head_dim + LANES - 1) / LANES * LANES,
        .group = a->heads / a->kv_heads,
        .ld = (a->heads + 2 * a->kv_heads) * a->head_dim,
        .ldo = a->heads * a->head_dim,
        .scale = scale,
    };
}

static int check(const char *op, const struct attn_args *a, struct err *e)
{
    int64_t sizes[] = {a->batch, a->seq_len, a->heads, a->kv_heads, a->head_dim};
    if (cpu_check_sizes(op, sizes, 5, e) != 0)
        return -1;
    if (a->heads % a->kv_heads)
        return err_set(e, ERR_SPEC, "%s: %lld kv heads do not divide %lld heads", op,
                       (long long)a->kv_heads, (long long)a->heads);
    return 0;
}

/* Pieces of scratch, each whole cache lines because of the padding. */
struct fwd_scratch {
    float *kt, *v;    /* [dp, Tp], [Tp, dp] */
    float *q, *s, *o; /* [Q_TILE, dp], [Q_TILE, K_TILE], [Q_TILE, dp] */
    float *max, *sum; /* [Q_TILE] */
};
struct bwd_scratch {
    float *k, *kt, *vt, *dk, *dv; /* [Tp, dp], transposed [dp, Tp] */
    float *q, *dout, *dq;         /* [Tp, dp] */
    float *lse, *D;               /* [Tp] */
    float *p, *ds;                /* [QB_TILE, K_TILE] */
};

/* `at` is an address, or 0 to find out how much there is to cut. */
static float *cut(uintptr_t *at, int64_t n_floats)
{
    float *p = (float *)*at;
    *at += (size_t)n_floats * sizeof(float);
    return p;
}

static uintptr_t cut_fwd(struct fwd_scratch *w, const struct shape *h, uintptr_t at)
{
    w->kt = cut(&at, h->dp * h->Tp);
    w->v = cut(&at, h->dp * h->Tp);
    w->q = cut(&at, Q_TILE * h->dp);
    w->s = cut(&at, Q_TILE * K_TILE);
    w->o = cut(&at, Q_TILE * h->dp);
    w->max = cut(&at, Q_TILE);
    w->sum = cut(&at, Q_TILE);
    return at;
}

static uintptr_t cut_bwd(struct bwd_scratch *w, const struct shape *h, uintptr_t at)
{
    float **per_row[] = {&w->k, &w->kt, &w->vt, &w->dk, &w->dv, &w->q, &w->dout, &w->dq};
    for (size_t i = 0; i < sizeof(per_row) / sizeof(per_row[0]); i++)
        *per_row[i] = cut(&at, h->Tp * h->dp);
    w->lse = cut(&at, h->Tp);
    w->D = cut(&at, h->Tp);
    w->p = cut(&at, QB_TILE * K_TILE);
    w->ds = cut(&at, QB_TILE * K_TILE);
    return at;
}

int attn_fwd_prepare(struct kern_cpu *c, const void *args, size_t *ret, struct err *e)
{
    (void)c;
    if (check("attn_fwd", args, e) != 0)
        return -1;
    struct shape h = shape_of(args);
    struct fwd_scratch w;
    *ret = cut_fwd(&w, &h, 0);
    return 0;
}

int attn_bwd_prepare(struct kern_cpu *c, const void *args, size_t *ret, struct err *e)
{
    (void)c;
    if (check("attn_bwd", args, e) != 0)
        return -1;
    struct shape h = shape_of(args);
    struct bwd_scratch w;
    *ret = cut_bwd(&w, &h, 0);
    return 0;
}

/* Keys k0 .. k0+nk of a tile as query q0+i may see them: the number of columns, >= 0. */
SIMD_INLINE int64_t visible(int64_t q, int64_t k0, int64_t nk)
{
    int64_t n = q - k0 + 1;
    return n < 0 ? 0 : n < nk ? n : nk;
}

/* s[Q_TILE, K_TILE]: scores in, P out; nk columns.  Scales o[Q_TILE, dp] where the maximum
 * rises.  Column k0 is visible to every row, so no row is empty. */
SIMD_CLONES static void softmax_tile(const struct fwd_scratch *w, int64_t q0, int64_t k0,
                                     int64_t nk, int64_t dp)
{
    for (int64_t i = 0; i < Q_TILE; i++) {
        float *restrict s = w->s + i * K_TILE, *restrict o = w->o + i * dp;
        for (int64_t j = visible(q0 + i, k0, nk); j < nk; j++)
            s[j] = -INFINITY;
        float m[LANES], sum[LANES] = {0};
        for (int l = 0; l < LANES; l++)
            m[l] = w->max[i];
        for (int64_t j = 0; j < nk; j += LANES)
            for (int l = 0; l < LANES; l++)
                m[l] = s[j + l] > m[l] ? s[j + l] : m[l];
        float max = lanes_max(m);
        for (int64_t j = 0; j < nk; j++)
            s[j] = approx_exp(s[j] - max);
        for (int64_t j = 0; j < nk; j += LANES)
            for (int l = 0; l < LANES; l++)
                sum[l] += s[j + l];
        if (max == w->max[i]) {
            w->sum[i] += lanes_sum(sum);
            continue;
        }
        float shrink = approx_exp(w->max[i] - max);
        w->sum[i] = w->sum[i] * shrink + lanes_sum(sum);
        w->max[i] = max;
        for (int64_t j = 0; j < dp; j++)
            o[j] *= shrink;
    }
}

/* q, out: the head's first element; lse [T] */
static void head_fwd(const struct shape *h, const struct fwd_scratch *w, const float *q,
                     float *out, float *lse)
{
    for (int64_t q0 = 0; q0 < h->T; q0 += Q_TILE) {
        int64_t rows = h->T - q0 < Q_TILE ? h->T - q0 : Q_TILE, end = q0 + Q_TILE;
        tile_pack(w->q, Q_TILE, h->dp, q + q0 * h->ld, h->ld, rows, h->d, h->scale);
        memset(w->o, 0, (size_t)(Q_TILE * h->dp) * sizeof(float));
        for (int i = 0; i < Q_TILE; i++) {
            w->max[i] = -INFINITY;
            w->sum[i] = 0;
        }
        for (int64_t k0 = 0; k0 < end; k0 += K_TILE) {
            int64_t nk = end - k0 < K_TILE ? end - k0 : K_TILE;
            tile_gemm(Q_TILE, nk, h->d, w->q, h->dp, 1, w->kt + k0, h->Tp, w->s, K_TILE, false);
            softmax_tile(w, q0, k0, nk, h->dp);
            tile_gemm(Q_TILE, h->dp, nk, w->s, K_TILE, 1, w->v + k0 * h->dp, h->dp, w->o, h->dp,
                      true);
        }
        for (int64_t i = 0; i < rows; i++) {
            tile_unpack(out + (q0 + i) * h->ldo, 0, w->o + i * h->dp, 0, 1, h->d,
                        1.0f / w->sum[i]);
            lse[q0 + i] = (float)(w->max[i] + approx_log_f64(w->sum[i]));
        }
    }
}

void attn_fwd_cpu(struct kern *kern, const struct attn_args *a, struct dev_stream *stream)
{
    (void)kern, (void)stream;
    assert(a->dtype == DT_F32);
    struct shape h = shape_of(a);
    struct fwd_scratch w;
    cut_fwd(&w, &h, (uintptr_t)a->scratch);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t kv = 0; kv < a->kv_heads; kv++) {
            const float *q = (const float *)a->qkv + b * h.T * h.ld;
            const float *k = q + (a->heads + kv) * h.d, *v = k + a->kv_heads * h.d;
            tile_pack_transposed(w.kt, h.Tp, k, h.ld, h.T, h.d);
            tile_pack(w.v, h.Tp, h.dp, v, h.ld, h.T, h.d, 1.0f);
            for (int64_t i = kv * h.group; i < (kv + 1) * h.group; i++)
                head_fwd(&h, &w, q + i * h.d, (float *)a->out + b * h.T * h.ldo + i * h.d,
                         a->lse + (b * a->heads + i) * h.T);
        }
}

/* p: scores in, P out; ds: dO V^T in, dS out. */
SIMD_CLONES static void grad_tile(const struct bwd_scratch *w, int64_t q0, int64_t k0,
                                  int64_t nk)
{
    for (int64_t i = 0; i < QB_TILE; i++) {
        float *restrict p = w->p + i * K_TILE, *restrict ds = w->ds + i * K_TILE;
        float lse = w->lse[q0 + i], D = w->D[q0 + i];
        for (int64_t j = visible(q0 + i, k0, nk); j < nk; j++)
            p[j] = -INFINITY;
        for (int64_t j = 0; j < nk; j++) {
            p[j] = approx_exp(p[j] - lse);
            ds[j] = p[j] * (ds[j] - D);
        }
    }
}

static void head_bwd(const struct shape *h, const struct bwd_scratch *w)
{
    int64_t dp = h->dp;
    for (int64_t k0 = 0; k0 < h->Tp; k0 += K_TILE)
        for (int64_t q0 = k0; q0 < h->Tp; q0 += QB_TILE) {
            int64_t nk = q0 + QB_TILE - k0 < K_TILE ? q0 + QB_TILE - k0 : K_TILE;
            const float *q = w->q + q0 * dp, *dout = w->dout + q0 * dp;
            tile_gemm(QB_TILE, nk, h->d, q, dp, 1, w->kt + k0, h->Tp, w->p, K_TILE, false);
            tile_gemm(QB_TILE, nk, h->d, dout, dp, 1, w->vt + k0, h->Tp, w->ds, K_TILE, false);
            grad_tile(w, q0, k0, nk);
            tile_gemm(nk, dp, QB_TILE, w->p, 1, K_TILE, dout, dp, w->dv + k0 * dp, dp, true);
            tile_gemm(nk, dp, QB_TILE, w->ds, 1, K_TILE, q, dp, w->dk + k0 * dp, dp, true);
            tile_gemm(QB_TILE, dp, nk, w->ds, K_TILE, 1, w->k + k0 * dp, dp, w->dq + q0 * dp,
                      dp, true);
        }
}

/* D[t] = sum over the head of dout * out */
SIMD_CLONES static void out_dot(const struct shape *h, const float *out, const float *dout,
                                float *D)
{
    for (int64_t t = 0; t < h->T; t++)
        D[t] = row_dot(out + t * h->ldo, dout + t * h->ldo, h->d);
}

/* Query head `head` of sequence b: fills its part of w, and dq. */
static void query_head_bwd(const struct attn_args *a, const struct shape *h,
                           const struct bwd_scratch *w, int64_t b, int64_t head)
{
    const float *q = (const float *)a->qkv + b * h->T * h->ld + head * h->d;
    const float *out = (const float *)a->out + b * h->T * h->ldo + head * h->d;
    const float *dout = (const float *)a->dout + b * h->T * h->ldo + head * h->d;
    float *dq = (float *)a->dqkv + b * h->T * h->ld + head * h->d;
    size_t pad_bytes = (size_t)(h->Tp - h->T) * sizeof(float);
    memcpy(w->lse, a->lse + (b * a->heads + head) * h->T, (size_t)h->T * sizeof(float));
    memset(w->lse + h->T, 0, pad_bytes);
    out_dot(h, out, dout, w->D);
    memset(w->D + h->T, 0, pad_bytes);
    tile_pack(w->q, h->Tp, h->dp, q, h->ld, h->T, h->d, h->scale);
    tile_pack(w->dout, h->Tp, h->dp, dout, h->ldo, h->T, h->d, 1.0f);
    memset(w->dq, 0, (size_t)(h->Tp * h->dp) * sizeof(float));
    head_bwd(h, w);
    tile_unpack(dq, h->ld, w->dq, h->dp, h->T, h->d, h->scale);
}

void attn_bwd_cpu(struct kern *kern, const struct attn_args *a, struct dev_stream *stream)
{
    (void)kern, (void)stream;
    assert(a->dtype == DT_F32);
    struct shape h = shape_of(a);
    struct bwd_scratch w;
    cut_bwd(&w, &h, (uintptr_t)a->scratch);
    size_t bytes = (size_t)(h.Tp * h.dp) * sizeof(float);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t kv = 0; kv < a->kv_heads; kv++) {
            int64_t at_k = b * h.T * h.ld + (a->heads + kv) * h.d;
            int64_t at_v = at_k + a->kv_heads * h.d;
            const float *qkv = a->qkv;
            tile_pack(w.k, h.Tp, h.dp, qkv + at_k, h.ld, h.T, h.d, 1.0f);
            tile_pack_transposed(w.kt, h.Tp, qkv + at_k, h.ld, h.T, h.d);
            tile_pack_transposed(w.vt, h.Tp, qkv + at_v, h.ld, h.T, h.d);
            memset(w.dk, 0, bytes);
            memset(w.dv, 0, bytes);
            for (int64_t i = kv * h.group; i < (kv + 1) * h.group; i++)
                query_head_bwd(a, &h, &w, b, i);
            tile_unpack((float *)a->dqkv + at_k, h.ld, w.dk, h.dp, h.T, h.d, 1.0f);
            tile_unpack((float *)a->dqkv + at_v, h.ld, w.dv, h.dp, h.T, h.d, 1.0f);
        }
}
