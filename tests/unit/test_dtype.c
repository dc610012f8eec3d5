/* test_dtype.c: fp32 to and from the 16-bit types: against the definition of rounding in fp64,
 * and the same bits by every kind of vector code that the processor has. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/dtype.h"
#include "common/base/own.h"

static const enum dtype types[] = {DT_BF16, DT_F16};

static float widen(enum dtype t, uint16_t h)
{
    return t == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

static uint16_t narrow(enum dtype t, float x)
{
    return t == DT_BF16 ? bf16_from_f32(x) : f16_from_f32(x);
}

/* The value by the format's definition. */
static double value(enum dtype t, uint16_t h)
{
    int m_bits = t == DT_BF16 ? 7 : 10, bias = t == DT_BF16 ? 127 : 15;
    int e = (h & 0x7fff) >> m_bits, m = h & ((1 << m_bits) - 1);
    double sign = h & 0x8000 ? -1 : 1;
    if (e == 2 * bias + 1)
        return m ? (double)NAN : sign * (double)INFINITY;
    return sign * ldexp(e ? (1 << m_bits) + m : m, (e ? e : 1) - bias - m_bits);
}

static void every_value_goes_there_and_back(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++)
        for (uint32_t h = 0; h <= 0xffff; h++) {
            enum dtype t = types[k];
            float x = widen(t, (uint16_t)h);
            double v = value(t, (uint16_t)h);
            if (isnan(v)) {
                assert_true(isnan(x) && isnan(widen(t, narrow(t, x))));
                assert_int_equal(narrow(t, x) & 0x8000, h & 0x8000);
            } else {
                assert_true((double)x == v && !!signbit(x) == (h > 0x7fff));
                assert_int_equal(narrow(t, x), h);
            }
        }
}

/* Between neighbours a < b: below the middle to a, above it to b, in it to the even one. */
static void stores_round_to_nearest_even(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        enum dtype t = types[k];
        uint16_t inf = t == DT_BF16 ? 0x7f80 : 0x7c00;
        for (uint16_t h = 0; h < inf; h++) {
            double a = value(t, h), b = h + 1 < inf ? value(t, h + 1) : 2 * a - value(t, h - 1);
            float mid = (float)((a + b) / 2);
            assert_true((double)mid == (a + b) / 2);
            uint16_t even = h & 1 ? h + 1 : h;
            for (int sign = 0; sign < 2; sign++) {
                uint16_t s = sign ? 0x8000 : 0;
                float z = sign ? -1.0f : 1.0f;
                assert_int_equal(narrow(t, z * mid), even | s);
                assert_int_equal(narrow(t, z * nextafterf(mid, 0)), h | s);
                assert_int_equal(narrow(t, z * nextafterf(mid, INFINITY)), (h + 1) | s);
            }
        }
        assert_int_equal(narrow(t, INFINITY), inf);
        assert_int_equal(narrow(t, -INFINITY), inf | 0x8000);
        assert_int_equal(narrow(t, 0x1p-149f), 0);
        assert_int_equal(narrow(t, -0.0f), 0x8000);
        /* a NaN whose payload lies in the low bits alone must not become Inf */
        assert_true(isnan(widen(t, narrow(t, f32_from_bits(0x7f800001)))));
        assert_true(isnan(widen(t, narrow(t, f32_from_bits(0xffffffff)))));
    }
}

static void vector_code_has_the_same_bits(void **state)
{
    (void)state;
    enum { N = 65536 + 13 };
    AUTO_FREE uint16_t *h = xcalloc(N, sizeof(*h));
    AUTO_FREE uint16_t *back = xcalloc(N, sizeof(*back));
    AUTO_FREE float *x = xcalloc(N, sizeof(*x));
    for (uint32_t i = 0; i < N; i++)
        h[i] = (uint16_t)i;
    const struct dtype_rows *r;
    size_t levels = 0;
    for (; (r = dtype_rows(levels)); levels++)
        for (size_t k = 0; k < 2; k++) {
            enum dtype t = types[k];
            r->to_f32(t, x, h, N);
            for (uint32_t i = 0; i < N; i++)
                if (f32_to_bits(x[i]) != f32_to_bits(widen(t, h[i])))
                    fail_msg("%s %s: 0x%04x gives 0x%08x", r->name, dtype_name(t), h[i],
                             f32_to_bits(x[i]));
            /* all exponents, and mantissas around where rounding turns */
            for (uint32_t part = 0; part < 64; part++) {
                for (uint32_t i = 0; i < N; i++) {
                    uint32_t low = part < 32 ? part << 11 | (part & 1) : i * 0x9e3779b9u * part;
                    x[i] = f32_from_bits(i << 16 | (low & 0xffff));
                }
                r->from_f32(t, back, x, N);
                for (uint32_t i = 0; i < N; i++)
                    if (back[i] != narrow(t, x[i]))
                        fail_msg("%s %s: 0x%08x gives 0x%04x", r->name, dtype_name(t),
                                 f32_to_bits(x[i]), back[i]);
            }
        }
    assert_true(levels >= 1);
    assert_string_equal(dtype_rows(levels - 1)->name, "plain");
}

/* No element behind the last one is written, at any length; fp32 is a copy. */
static void rows_end_where_they_end(void **state)
{
    (void)state;
    static const enum dtype all[] = {DT_F32, DT_BF16, DT_F16};
    for (size_t n = 0; n < 40; n++)
        for (size_t k = 0; k < 3; k++) {
            float x[41], y[41];
            uint32_t stored[41];
            for (size_t i = 0; i < 41; i++) {
                x[i] = (float)i - 17;
                y[i] = 99;
                stored[i] = 0x55555555;
            }
            dtype_from_f32(all[k], stored, x, n);
            dtype_to_f32(all[k], y, stored, n);
            for (size_t i = 0; i < 41; i++)
                assert_true(y[i] == (i < n ? x[i] : 99));
            const unsigned char *end = (unsigned char *)stored + n * dtype_bytes(all[k]);
            assert_int_equal(*end, 0x55);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_goes_there_and_back),
        cmocka_unit_test(stores_round_to_nearest_even),
        cmocka_unit_test(vector_code_has_the_same_bits),
        cmocka_unit_test(rows_end_where_they_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
