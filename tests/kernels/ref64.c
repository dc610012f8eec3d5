#include "tests/kernels/ref64.h"

#include <math.h>
#include <string.h>

#include "common/base/own.h"

static double *zeros(int64_t n)
{
    return xcalloc((size_t)n, sizeof(double));
}

void ref_embed_fwd(const struct embed_args *a, const double *table, const double *pos,
                   double *y)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->hidden; i++) {
            int64_t id = a->ids[r] - a->v0, p = (a->row0 + r) % a->seq_len;
            double word = id >= 0 && id < a->vocab ? table[id * a->hidden + i] : 0;
            y[r * a->hidden + i] = word + (pos ? pos[p * a->hidden + i] : 0);
        }
}

void ref_embed_bwd(const struct embed_args *a, const double *dy, double *dtable, double *dpos)
{
    memset(dtable, 0, (size_t)(a->vocab * a->hidden) * sizeof(double));
    if (dpos)
        memset(dpos, 0, (size_t)(a->seq_len * a->hidden) * sizeof(double));
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->hidden; i++) {
            int64_t id = a->ids[r] - a->v0, p = (a->row0 + r) % a->seq_len;
            if (id >= 0 && id < a->vocab)
                dtable[id * a->hidden + i] += dy[r * a->hidden + i];
            if (dpos)
                dpos[p * a->hidden + i] += dy[r * a->hidden + i];
        }
}

static void row_stats(const struct norm_args *a, const double *s, double *ret_mean,
                      double *ret_rstd)
{
    double mean = 0, var = 0;
    if (a->kind == NORM_LAYER)
        for (int64_t i = 0; i < a->cols; i++)
            mean += s[i] / (double)a->cols;
    for (int64_t i = 0; i < a->cols; i++)
        var += (s[i] - mean) * (s[i] - mean) / (double)a->cols;
    *ret_mean = mean;
    *ret_rstd = 1 / sqrt(var + (double)a->eps);
}

void ref_norm_fwd(const struct norm_args *a, const double *s, const double *gain,
                  const double *bias, double *y)
{
    for (int64_t r = 0; r < a->rows; r++) {
        double mean, rstd;
        row_stats(a, s + r * a->cols, &mean, &rstd);
        for (int64_t i = 0; i < a->cols; i++)
            y[r * a->cols + i] =
                (s[r * a->cols + i] - mean) * rstd * gain[i] + (bias ? bias[i] : 0);
    }
}

void ref_norm_bwd(const struct norm_args *a, const double *s, const double *gain,
                  const double *dy, const double *dsum, double *dx, double *dgain,
                  double *dbias)
{
    int64_t n = a->cols;
    memset(dgain, 0, (size_t)n * sizeof(double));
    if (dbias)
        memset(dbias, 0, (size_t)n * sizeof(double));
    for (int64_t r = 0; r < a->rows; r++) {
        double mean, rstd, mg = 0, mgx = 0;
        const double *sr = s + r * n, *dyr = dy + r * n;
        row_stats(a, sr, &mean, &rstd);
        for (int64_t i = 0; i < n; i++) {
            double xh = (sr[i] - mean) * rstd;
            dgain[i] += dyr[i] * xh;
            if (dbias)
                dbias[i] += dyr[i];
            mg += a->kind == NORM_LAYER ? dyr[i] * gain[i] / (double)n : 0;
            mgx += dyr[i] * gain[i] * xh / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            double xh = (sr[i] - mean) * rstd;
            dx[r * n + i] =
                rstd * (dyr[i] * gain[i] - mg - xh * mgx) + (dsum ? dsum[r * n + i] : 0);
        }
    }
}

/* Element (o, i) of W. */
static int64_t at_w(const struct linear_args *a, int64_t o, int64_t i)
{
    return a->order == WEIGHT_OUT_IN ? o * a->in + i : i * a->out + o;
}

void ref_linear_fwd(const struct linear_args *a, const double *x, const double *w,
                    const double *bias, double *y)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t o = 0; o < a->out; o++) {
            double s = bias ? bias[o] : 0;
            for (int64_t i = 0; i < a->in; i++)
                s += x[r * a->in + i] * w[at_w(a, o, i)];
            y[r * a->out + o] = s;
        }
}

void ref_linear_bwd(const struct linear_args *a, const double *x, const double *w,
                    const double *dy, double *dx, double *dw, double *dbias)
{
    memset(dx, 0, (size_t)(a->rows * a->in) * sizeof(double));
    memset(dw, 0, (size_t)(a->out * a->in) * sizeof(double));
    memset(dbias, 0, (size_t)a->out * sizeof(double));
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t o = 0; o < a->out; o++) {
            double d = dy[r * a->out + o];
            dbias[o] += d;
            for (int64_t i = 0; i < a->in; i++) {
                dx[r * a->in + i] += d * w[at_w(a, o, i)];
                dw[at_w(a, o, i)] += d * x[r * a->in + i];
            }
        }
}

void ref_rope(const struct rope_args *a, double *qkv)
{
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_dim, half = a->head_dim / 2;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t h = 0; h < a->heads + a->kv_heads; h++)
            for (int64_t i = 0; i < half; i++) {
                double *x = qkv + r * width + h * a->head_dim + i;
                double angle = (double)(r % a->seq_len) *
                               pow(a->theta, -2.0 * (double)i / (double)a->head_dim);
                double c = cos(angle), s = a->inverse ? -sin(angle) : sin(angle);
                double u = x[0], v = x[half];
                x[0] = u * c - v * s;
                x[half] = v * c + u * s;
            }
}

struct head {
    const double *q, *k, *v; /* first row; `ld` to the next */
    int64_t ld, at_q, at_k, at_v;
};

static struct head head_of(const struct attn_args *a, const double *qkv, int64_t b, int64_t h)
{
    int64_t ld = (a->heads + 2 * a->kv_heads) * a->head_dim;
    int64_t kv = h / (a->heads / a->kv_heads), row = b * a->seq_len * ld;
    struct head r = {.ld = ld,
                     .at_q = row + h * a->head_dim,
                     .at_k = row + (a->heads + kv) * a->head_dim,
                     .at_v = row + (a->heads + a->kv_heads + kv) * a->head_dim};
    r.q = qkv + r.at_q;
    r.k = qkv + r.at_k;
    r.v = qkv + r.at_v;
    return r;
}

/* p[0..t]: softmax of query t's scores; returns the log of the sum of exp */
static double probabilities(const struct attn_args *a, const struct head *h, int64_t t,
                            double *p)
{
    double max = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j <= t; j++) {
        p[j] = 0;
        for (int64_t i = 0; i < a->head_dim; i++)
            p[j] += h->q[t * h->ld + i] * h->k[j * h->ld + i] / sqrt((double)a->head_dim);
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j <= t; j++)
        sum += exp(p[j] - max);
    for (int64_t j = 0; j <= t; j++)
        p[j] = exp(p[j] - max) / sum;
    return max + log(sum);
}

void ref_attn_fwd(const struct attn_args *a, const double *qkv, double *out, double *lse)
{
    AUTO_FREE double *p = zeros(a->seq_len);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t n = 0; n < a->heads; n++) {
            struct head h = head_of(a, qkv, b, n);
            for (int64_t t = 0; t < a->seq_len; t++) {
                lse[(b * a->heads + n) * a->seq_len + t] = probabilities(a, &h, t, p);
                double *o = out + ((b * a->seq_len + t) * a->heads + n) * a->head_dim;
                for (int64_t i = 0; i < a->head_dim; i++) {
                    o[i] = 0;
                    for (int64_t j = 0; j <= t; j++)
                        o[i] += p[j] * h.v[j * h.ld + i];
                }
            }
        }
}

/* Adds query t's part to dqkv; p, dp [seq_len] are working space. */
static void query_bwd(const struct attn_args *a, const struct head *h, int64_t t,
                      const double *dout, double *dqkv, double *p, double *dp)
{
    double mean = 0, scale = 1 / sqrt((double)a->head_dim);
    (void)probabilities(a, h, t, p);
    for (int64_t j = 0; j <= t; j++) {
        dp[j] = 0;
        for (int64_t i = 0; i < a->head_dim; i++)
            dp[j] += dout[i] * h->v[j * h->ld + i];
        mean += p[j] * dp[j];
    }
    for (int64_t j = 0; j <= t; j++)
        for (int64_t i = 0; i < a->head_dim; i++) {
            double ds = p[j] * (dp[j] - mean) * scale;
            dqkv[h->at_v + j * h->ld + i] += p[j] * dout[i];
            dqkv[h->at_q + t * h->ld + i] += ds * h->k[j * h->ld + i];
            dqkv[h->at_k + j * h->ld + i] += ds * h->q[t * h->ld + i];
        }
}

void ref_attn_bwd(const struct attn_args *a, const double *qkv, const double *dout,
                  double *dqkv)
{
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_dim;
    AUTO_FREE double *p = zeros(a->seq_len);
    AUTO_FREE double *dp = zeros(a->seq_len);
    memset(dqkv, 0, (size_t)(a->batch * a->seq_len * width) * sizeof(double));
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t n = 0; n < a->heads; n++) {
            struct head h = head_of(a, qkv, b, n);
            for (int64_t t = 0; t < a->seq_len; t++)
                query_bwd(a, &h, t, dout + ((b * a->seq_len + t) * a->heads + n) * a->head_dim,
                          dqkv, p, dp);
        }
}

static const double gelu_c = 0.044715;

static double gelu_tanh(double x)
{
    return tanh(sqrt(2 / M_PI) * (x + gelu_c * x * x * x));
}

void ref_act_fwd(const struct act_args *a, const double *x, double *y)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->cols; i++) {
            double g = x[r * a->cols + i];
            if (a->kind == ACT_SWIGLU) {
                const double *row = x + 2 * r * a->cols;
                g = row[i];
                y[r * a->cols + i] = g / (1 + exp(-g)) * row[a->cols + i];
            } else {
                y[r * a->cols + i] = 0.5 * g * (1 + gelu_tanh(g));
            }
        }
}

void ref_act_bwd(const struct act_args *a, const double *x, const double *dy, double *dx)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->cols; i++) {
            double d = dy[r * a->cols + i];
            if (a->kind == ACT_SWIGLU) {
                int64_t at = 2 * r * a->cols + i;
                double g = x[at], u = x[at + a->cols], z = 1 / (1 + exp(-g));
                dx[at] = d * u * z * (1 + g * (1 - z));
                dx[at + a->cols] = d * g * z;
            } else {
                double v = x[r * a->cols + i], t = gelu_tanh(v);
                double du = sqrt(2 / M_PI) * (1 + 3 * gelu_c * v * v);
                dx[r * a->cols + i] = d * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * du);
            }
        }
}

double ref_xent(const struct xent_args *a, const double *logits, double *dlogits)
{
    double loss = 0;
    for (int64_t r = 0; r < a->rows; r++) {
        const double *x = logits + r * a->vocab;
        double max = -(double)INFINITY, sum = 0;
        int32_t t = a->targets[r];
        for (int64_t i = 0; i < a->vocab_valid; i++)
            max = fmax(max, x[i]);
        for (int64_t i = 0; i < a->vocab_valid; i++)
            sum += exp(x[i] - max);
        const double lse = log(sum) + max, z = (double)a->z;
        if (t >= 0)
            loss += lse - x[t] + (a->loss_only ? 0 : z * lse * lse);
        for (int64_t i = 0; dlogits && i < a->vocab; i++) {
            double p = i < a->vocab_valid ? exp(x[i] - max) / sum : 0;
            dlogits[r * a->vocab + i] =
                t < 0 ? 0 : (p * (1 + 2 * z * lse) - (i == t)) * (double)a->scale;
        }
    }
    return loss;
}

void ref_adamw(const struct adamw_args *a, double grad_scale, bool decay, int64_t n, double *p,
               double *m, double *v, const double *g)
{
    for (int64_t i = 0; i < n; i++) {
        double gi = g[i] * grad_scale;
        m[i] = a->beta1 * m[i] + (1 - a->beta1) * gi;
        v[i] = a->beta2 * v[i] + (1 - a->beta2) * gi * gi;
        double step = m[i] / a->bias1 / (sqrt(v[i] / a->bias2) + a->eps);
        p[i] -= a->lr * (step + (decay ? a->weight_decay * p[i] : 0));
    }
}
