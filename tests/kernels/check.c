#include "tests/kernels/check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/err.h"

static uint64_t state = 1;

static uint64_t next64(void) /* splitmix64 */
{
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void *aligned(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 64, bytes ? bytes : 1), 0);
    return p;
}

static struct vec *vec_new(int64_t n)
{
    struct vec *v = xmalloc(sizeof(*v));
    v->n = n;
    v->f = aligned((size_t)n * sizeof(float));
    v->d = aligned((size_t)n * sizeof(double));
    return v;
}

struct vec *vec_random(int64_t n, double scale)
{
    struct vec *v = vec_new(n);
    for (int64_t i = 0; i < n; i++) {
        double u = (double)(next64() >> 11) * 0x1p-53;
        v->f[i] = (float)((2 * u - 1) * scale);
        v->d[i] = (double)v->f[i];
    }
    return v;
}

struct vec *vec_poison(int64_t n)
{
    struct vec *v = vec_new(n);
    for (int64_t i = 0; i < n; i++) {
        v->f[i] = NAN;
        v->d[i] = (double)NAN;
    }
    return v;
}

struct vec *vec_copy(const struct vec *from)
{
    struct vec *v = vec_new(from->n);
    memcpy(v->f, from->f, (size_t)v->n * sizeof(float));
    memcpy(v->d, from->d, (size_t)v->n * sizeof(double));
    return v;
}

void vec_free(struct vec *v)
{
    if (!v)
        return;
    free(v->f);
    free(v->d);
    free(v);
}

int64_t random_below(int64_t n)
{
    return (int64_t)(next64() % (uint64_t)n);
}

int32_t *random_ids(int64_t rows, int64_t n, int64_t ignore_every)
{
    int32_t *ids = xcalloc((size_t)rows, sizeof(*ids));
    for (int64_t r = 0; r < rows; r++) {
        ids[r] = (int32_t)random_below(n);
        if (ignore_every && r % ignore_every == ignore_every - 1)
            ids[r] = -1;
    }
    return ids;
}

double distance(const float *got, const double *want, int64_t n)
{
    double diff2 = 0, want2 = 0, diff_max = 0, want_max = 0;
    for (int64_t i = 0; i < n; i++) {
        double g = (double)got[i], w = want[i];
        if (!isfinite(g) || !isfinite(w))
            return (double)INFINITY;
        diff2 += (g - w) * (g - w);
        want2 += w * w;
        diff_max = fmax(diff_max, fabs(g - w));
        want_max = fmax(want_max, fabs(w));
    }
    if (want2 == 0)
        return diff_max;
    return fmax(sqrt(diff2 / want2), diff_max / want_max);
}

void assert_near(const char *name, const struct vec *v, double tol)
{
    double d = distance(v->f, v->d, v->n);
    if (!(d <= tol))
        fail_msg("%s: %lld elements are %.3g away, %.3g allowed", name, (long long)v->n, d,
                 tol);
}

void assert_gradient(const char *name, loss_fn *loss, void *ctx, struct vec *x,
                     const double *grad, double tol)
{
    double largest = 0;
    for (int64_t i = 0; i < x->n; i++)
        largest = fmax(largest, fabs(grad[i]));
    assert_true(largest > 0);
    int64_t tries = x->n < 60 ? x->n : 60;
    for (int64_t t = 0; t < tries; t++) {
        int64_t i = x->n < 60 ? t : random_below(x->n);
        const double h = 1e-5, was = x->d[i];
        x->d[i] = was + h;
        double up = loss(ctx);
        x->d[i] = was - h;
        double down = loss(ctx);
        x->d[i] = was;
        double slope = (up - down) / (2 * h);
        if (!(fabs(slope - grad[i]) <= tol * largest))
            fail_msg("%s[%lld]: slope %.9g, gradient %.9g, largest %.3g", name, (long long)i,
                     slope, grad[i], largest);
    }
}

double dot64(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

struct kern *open_kern(void)
{
    struct err e = {0};
    struct kern *k = kern_cpu_open(1, &e);
    if (!k)
        fail_msg("%s", e.text);
    return k;
}

void assert_supported(struct kern *k, enum kern_op op)
{
    assert_true(k->supports(k, op, DT_F32));
    assert_false(k->supports(k, op, DT_BF16));
}

void *prepare(struct kern *k, enum kern_op op, const void *args)
{
    struct err e = {0};
    size_t bytes = SIZE_MAX;
    assert_supported(k, op);
    if (k->prepare(k, op, args, &bytes, &e) != 0)
        fail_msg("%s", e.text);
    assert_true(bytes < SIZE_MAX);
    void *p = aligned(bytes);
    memset(p, 0xff, bytes); /* NaN in every format */
    return p;
}
