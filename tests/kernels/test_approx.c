/* test_approx.c: our exp, tanh, log, sin and cos against libm's in fp64, over their ranges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu/approx.h"

/* |got - want| in units of the last place of want, as fp32 (denormals: of 2^-149). */
static double ulps32(float got, double want)
{
    int exp;
    (void)frexp(want, &exp);
    double ulp = ldexp(1.0, exp - 24 < -149 ? -149 : exp - 24);
    return fabs((double)got - want) / ulp;
}

static double ulps64(double got, double want)
{
    int exp;
    (void)frexp(want, &exp);
    return fabs(got - want) / ldexp(1.0, exp - 53);
}

/* Every `stride`th float from lo to hi, both of one sign. */
static double worst32(float fn(float), double ref(double), float lo, float hi, int32_t stride)
{
    double worst = 0;
    for (int32_t i = bits_of_f32(lo); i <= bits_of_f32(hi); i += stride) {
        float x = f32_of_bits(i);
        double u = ulps32(fn(x), ref((double)x));
        worst = u > worst ? u : worst;
    }
    return worst;
}

static float exp32(float x)
{
    return approx_exp(x);
}

static float tanh32(float x)
{
    return approx_tanh(x);
}

static void exp_is_close(void **state)
{
    (void)state;
    double up = worst32(exp32, exp, 1e-8f, 88.72f, 997);
    double down = worst32(exp32, exp, -1e-8f, -104.0f, 997); /* bits grow with |x| */
    print_message("# exp: %.3f and %.3f ulp\n", up, down);
    assert_true(up < 2 && down < 2);
    assert_true(approx_exp(0.0f) == 1.0f);
    assert_true(approx_exp(-INFINITY) == 0.0f && approx_exp(-200.0f) == 0.0f);
    assert_true(approx_exp(INFINITY) == INFINITY && approx_exp(89.0f) == INFINITY);
    assert_true(isnan(approx_exp(NAN)) && isnan(approx_exp(-NAN)));
}

static void tanh_is_close(void **state)
{
    (void)state;
    double up = worst32(tanh32, tanh, 1e-30f, 30.0f, 997);
    double down = worst32(tanh32, tanh, -1e-30f, -30.0f, 997);
    print_message("# tanh: %.3f and %.3f ulp\n", up, down);
    assert_true(up < 3 && down < 3);
    assert_true(approx_tanh(0.0f) == 0.0f && signbit(approx_tanh(-0.0f)));
    assert_true(approx_tanh(INFINITY) == 1.0f && approx_tanh(-INFINITY) == -1.0f);
    assert_true(isnan(approx_tanh(NAN)));
}

static void fp64_is_close(void **state)
{
    (void)state;
    double e = 0, l = 0, s = 0, c = 0;
    for (int i = 0; i < 1000000; i++) {
        double x = (i - 500000) * 0.00139; /* +-695 */
        double u = ulps64(approx_exp_f64(x), exp(x));
        e = u > e ? u : e;
        double y = ldexp(1 + i * 1e-6, i % 600 - 300);
        u = ulps64(approx_log_f64(y), log(y));
        l = u > l ? u : l;
        double sin_x, cos_x, a = i * 1.048576 * (i % 2 ? 1 : -0.7); /* to a million */
        approx_sincos_f64(a, &sin_x, &cos_x);
        s = fmax(s, fabs(sin_x - sin(a)));
        c = fmax(c, fabs(cos_x - cos(a)));
    }
    print_message("# fp64: exp %.3f log %.3f ulp, sin %.3g cos %.3g\n", e, l, s, c);
    assert_true(e < 2 && l < 2);
    assert_true(s < 3e-16 && c < 3e-16);
    assert_true(approx_log_f64(1.0) == 0);
    assert_true(approx_log_f64(0.0) == -INFINITY && approx_log_f64(INFINITY) == INFINITY);
    assert_true(isnan(approx_log_f64(-1.0)) && isnan(approx_log_f64(NAN)));
}

static float exp_off(float x) /* the negative control: 4 ulp off */
{
    return approx_exp(x) * (1 + 4 * 0x1p-23f);
}

static void a_wrong_exp_is_seen(void **state)
{
    (void)state;
    assert_true(worst32(exp_off, exp, 1e-8f, 88.0f, 99991) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_close),
        cmocka_unit_test(tanh_is_close),
        cmocka_unit_test(fp64_is_close),
        cmocka_unit_test(a_wrong_exp_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
