#include "worker/net/reduce.h"

#include <stdint.h>
#include <string.h>

#include "common/base/err.h"

/* One block at a time stays in the cache, and lets dst be one of the inputs.  Elements do not
 * meet, so the compiler may take as many at once as it likes. */
enum { BLOCK = 512 };

#define SUM(a, b) ((a) + (b))
/* A NaN on either side is the result: a bad number must not hide. */
#define MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

#define FOLD(name, type, op)                                              \
    static void name(void *dst, const void *const *x, size_t k, size_t n) \
    {                                                                     \
        for (size_t at = 0; at < n; at += BLOCK) {                        \
            type acc[BLOCK];                                              \
            size_t m = n - at < BLOCK ? n - at : BLOCK;                   \
            memcpy(acc, (const type *)x[0] + at, m * sizeof(type));       \
            for (size_t j = 1; j < k; j++) {                              \
                const type *xj = (const type *)x[j] + at;                 \
                for (size_t i = 0; i < m; i++)                            \
                    acc[i] = (type)op(acc[i], xj[i]);                     \
            }                                                             \
            memcpy((type *)dst + at, acc, m * sizeof(type));              \
        }                                                                 \
    }

FOLD(sum_f32, float, SUM)
FOLD(max_f32, float, MAX)
FOLD(min_f32, float, MIN)
FOLD(sum_f64, double, SUM)
FOLD(max_f64, double, MAX)
FOLD(min_f64, double, MIN)
FOLD(sum_u32, uint32_t, SUM)
FOLD(max_i32, int32_t, MAX)
FOLD(min_i32, int32_t, MIN)
FOLD(sum_u64, uint64_t, SUM)
FOLD(max_i64, int64_t, MAX)
FOLD(min_i64, int64_t, MIN)
FOLD(sum_u8, uint8_t, SUM)
FOLD(max_u8, uint8_t, MAX)
FOLD(min_u8, uint8_t, MIN)

typedef void fold_fn(void *dst, const void *const *x, size_t k, size_t n);

static fold_fn *fold_of(enum dtype t, enum comm_red r)
{
    static fold_fn *const table[DT_COUNT][3] = {
        [DT_F32] = {sum_f32, max_f32, min_f32}, [DT_F64] = {sum_f64, max_f64, min_f64},
        [DT_I32] = {sum_u32, max_i32, min_i32}, [DT_I64] = {sum_u64, max_i64, min_i64},
        [DT_U8] = {sum_u8, max_u8, min_u8},
    };
    return t < DT_COUNT && r <= COMM_MIN ? table[t][r] : NULL;
}

int reduce_check(enum dtype t, enum comm_red r, struct err *e)
{
    if (fold_of(t, r))
        return 0;
    return err_set(e, ERR_PROTOCOL, "reductions of %s are not built",
                   t < DT_COUNT ? dtype_name(t) : "an unknown type");
}

void reduce_in_order(void *dst, const void *const *x, size_t k, size_t n, enum dtype t,
                     enum comm_red r)
{
    fold_of(t, r)(dst, x, k, n);
}
