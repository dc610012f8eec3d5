/* check.h: what the kernel tests share: seeded data, comparison, finite differences.
 *
 * A vec is one tensor twice: in fp32 for the op and in fp64 for the reference, equal at the
 * start because the fp64 value is made from the fp32 one.  Storage is 64-byte aligned and
 * exactly as long as asked for, so that ASan sees an op that goes too far.
 */
#ifndef DS_TESTS_KERNELS_CHECK_H
#define DS_TESTS_KERNELS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"
#include "kernels/kernels.h"

struct vec {
    int64_t n;
    float *f;
    double *d;
};

/* Uniform in [-scale, scale), from a generator that starts anew in each test program. */
struct vec *vec_random(int64_t n, double scale);
/* fp32 all NaN, fp64 all NaN: for outputs. */
struct vec *vec_poison(int64_t n);
struct vec *vec_copy(const struct vec *v);
void vec_free(struct vec *v);
OWN(vec);

/* Uniform in [0, n). */
int64_t random_below(int64_t n);
/* ids in [0, n), every `ignore_every`th one -1 if that is not 0 */
int32_t *random_ids(int64_t rows, int64_t n, int64_t ignore_every);

/* The larger of ||got - want|| / ||want|| and max|got - want| / max|want|, or, where want is
 * all zero, of got itself.  NaN or Inf in got gives Inf. */
double distance(const float *got, const double *want, int64_t n);
/* Fails the test, with the name and the distance, unless distance(v->f, v->d) <= tol. */
void assert_near(const char *name, const struct vec *v, double tol);

/* grad against central differences of loss(ctx) in up to 60 elements of x, relative to the
 * largest |grad|. */
typedef double loss_fn(void *ctx);
void assert_gradient(const char *name, loss_fn *loss, void *ctx, struct vec *x,
                     const double *grad, double tol);

double dot64(const double *a, const double *b, int64_t n);

/* The CPU back end with one thread; it is asked whether it supports `op` in fp32. */
struct kern *open_kern(void);
void assert_supported(struct kern *k, enum kern_op op);
/* prepare, and scratch full of NaN; free() it. */
void *prepare(struct kern *k, enum kern_op op, const void *args);

#endif
