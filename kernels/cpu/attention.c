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

enum { Q_TILE = 32, K_TILE = 64 };

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
        .Tp = (a->seq_len + Q_TILE - 1) / Q_TILE * Q_TILE,
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
    float *k, *v;     /* [Tp, dp] */
    float *qt;        /* [d, Q_TILE]: a tile of queries, transposed */
    float *st;        /* [K_TILE, Q_TILE]: scores, then P, transposed: a query is a SIMD lane */
    float *o;         /* [Q_TILE, dp] */
    float *max, *sum; /* [Q_TILE] */
};
struct bwd_scratch {
    float *k, *kt, *vt, *dk, *dv; /* [Tp, dp], transposed [dp, Tp] */
    float *q, *dout, *dq;         /* [Tp, dp] */
    float *lse, *D;               /* [Tp] */
    float *p, *ds;                /* [Q_TILE, K_TILE] */
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
    w->k = cut(&at, h->Tp * h->dp);
    w->v = cut(&at, h->Tp * h->dp);
    w->qt = cut(&at, h->dp * Q_TILE);
    w->st = cut(&at, K_TILE * Q_TILE);
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
    w->p = cut(&at, Q_TILE * K_TILE);
    w->ds = cut(&at, Q_TILE * K_TILE);
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

/* st: scores in, P out, of nk keys from k0.  `shrink` [Q_TILE] receives what o and sum so far
 * are to be scaled by.  Key 0 is visible to every query, so no query's maximum stays -inf. */
SIMD_CLONES static void softmax_tile(const struct fwd_scratch *w, int64_t q0, int64_t k0,
                                     int64_t nk, float *restrict shrink)
{
    float *restrict st = w->st, m[Q_TILE], sum[Q_TILE];
    for (int64_t j = q0 + 1 - k0 > 0 ? q0 + 1 - k0 : 0; j < nk; j++)
        for (int l = 0; l < Q_TILE; l++) /* key k0 + j is behind query q0 + l */
            st[j * Q_TILE + l] = l < (int)(k0 + j - q0) ? -INFINITY : st[j * Q_TILE + l];
    for (int l = 0; l < Q_TILE; l++)
        m[l] = w->max[l];
    for (int64_t j = 0; j < nk; j++)
        for (int l = 0; l < Q_TILE; l++)
            m[l] = st[j * Q_TILE + l] > m[l] ? st[j * Q_TILE + l] : m[l];
    for (int l = 0; l < Q_TILE; l++) {
        shrink[l] = approx_exp(w->max[l] - m[l]);
        sum[l] = w->sum[l] * shrink[l];
    }
    for (int64_t j = 0; j < nk; j++)
        for (int l = 0; l < Q_TILE; l++) {
            float p = approx_exp(st[j * Q_TILE + l] - m[l]);
            st[j * Q_TILE + l] = p;
            sum[l] += p;
        }
    for (int l = 0; l < Q_TILE; l++) {
        w->max[l] = m[l];
        w->sum[l] = sum[l];
    }
}

/* o[Q_TILE, dp], each row by its factor */
SIMD_CLONES static void scale_rows(float *restrict o, const float *restrict factor, int64_t dp)
{
    for (int64_t i = 0; i < Q_TILE; i++)
        for (int64_t j = 0; j < dp; j++)
            o[i * dp + j] *= factor[i];
}

/* q, out: the head's first element; lse [T] */
static void head_fwd(const struct shape *h, const struct fwd_scratch *w, const float *q,
                     float *out, float *lse)
{
    for (int64_t q0 = 0; q0 < h->T; q0 += Q_TILE) {
        int64_t rows = h->T - q0 < Q_TILE ? h->T - q0 : Q_TILE, end = q0 + Q_TILE;
        tile_pack_transposed(w->qt, Q_TILE, q + q0 * h->ld, h->ld, rows, h->d, h->scale);
        for (int i = 0; i < Q_TILE; i++) {
            w->max[i] = -INFINITY;
            w->sum[i] = 0;
        }
        for (int64_t k0 = 0; k0 < end; k0 += K_TILE) {
            int64_t nk = end - k0 < K_TILE ? end - k0 : K_TILE;
            float shrink[Q_TILE];
            tile_gemm(nk, Q_TILE, h->d, w->k + k0 * h->dp, h->dp, 1, w->qt, Q_TILE, w->st,
                      Q_TILE, false);
            softmax_tile(w, q0, k0, nk, shrink);
            if (k0 > 0)
                scale_rows(w->o, shrink, h->dp);
            tile_gemm(Q_TILE, h->dp, nk, w->st, 1, Q_TILE, w->v + k0 * h->dp, h->dp, w->o,
                      h->dp, k0 > 0);
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
            tile_pack(w.k, h.Tp, h.dp, k, h.ld, h.T, h.d, 1.0f);
            tile_pack(w.v, h.Tp, h.dp, v, h.ld, h.T, h.d, 1.0f);
            for (int64_t i = kv * h.group; i < (kv + 1) * h.group; i++)
                head_fwd(&h, &w, q + i * h.d, (float *)a->out + b * h.T * h.ldo + i * h.d,
                         a->lse + (b * a->heads + i) * h.T);
        }
}

/* How many of the keys k0 .. k0+nk query q sees. */
SIMD_INLINE int64_t visible(int64_t q, int64_t k0, int64_t nk)
{
    int64_t n = q - k0 + 1;
    return n < 0 ? 0 : n < nk ? n : nk;
}

/* p: scores in, P out; ds: dO V^T in, dS out. */
SIMD_CLONES static void grad_tile(const struct bwd_scratch *w, int64_t q0, int64_t k0,
                                  int64_t nk)
{
    for (int64_t i = 0; i < Q_TILE; i++) {
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
        for (int64_t q0 = k0; q0 < h->Tp; q0 += Q_TILE) {
            int64_t nk = q0 + Q_TILE - k0 < K_TILE ? q0 + Q_TILE - k0 : K_TILE;
            const float *q = w->q + q0 * dp, *dout = w->dout + q0 * dp;
            tile_gemm(Q_TILE, nk, h->d, q, dp, 1, w->kt + k0, h->Tp, w->p, K_TILE, false);
            tile_gemm(Q_TILE, nk, h->d, dout, dp, 1, w->vt + k0, h->Tp, w->ds, K_TILE, false);
            grad_tile(w, q0, k0, nk);
            tile_gemm(nk, dp, Q_TILE, w->p, 1, K_TILE, dout, dp, w->dv + k0 * dp, dp, true);
            tile_gemm(nk, dp, Q_TILE, w->ds, 1, K_TILE, q, dp, w->dk + k0 * dp, dp, true);
            tile_gemm(Q_TILE, dp, nk, w->ds, K_TILE, 1, w->k + k0 * dp, dp, w->dq + q0 * dp, dp,
                      true);
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
            tile_pack_transposed(w.kt, h.Tp, qkv + at_k, h.ld, h.T, h.d, 1.0f);
            tile_pack_transposed(w.vt, h.Tp, qkv + at_v, h.ld, h.T, h.d, 1.0f);
            memset(w.dk, 0, bytes);
            memset(w.dv, 0, bytes);
            for (int64_t i = kv * h.group; i < (kv + 1) * h.group; i++)
                query_head_bwd(a, &h, &w, b, i);
            tile_unpack((float *)a->dqkv + at_k, h.ld, w.dk, h.dp, h.T, h.d, 1.0f);
            tile_unpack((float *)a->dqkv + at_v, h.ld, w.dv, h.dp, h.T, h.d, 1.0f);
        }
}
