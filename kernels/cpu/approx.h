/* approx.h: exp, tanh, log, sin and cos of our own.
 *
 * libm's results may change with its version and with the CPU it finds; these are fixed
 * polynomials with +, -, *, / only, so that every host has the same bits.  The fp32 ones have
 * no branch and vectorise inside a loop: error below 2 ulp (exp) and 3 ulp (tanh), denormal
 * results included; NaN stays NaN.  The fp64 ones are for tables and per-row values: below
 * 2 ulp.  tests/kernels/test_approx.c scans them against libm.
 *
 * Sources: exp(fp32) Cephes expf (S. Moshier); fp64 fdlibm (Sun Microsystems 1993), with the
 * range reduction by a pi/2 of two parts that is exact for |x| < 2^20 * pi/2.
 */
#ifndef DS_KERNELS_CPU_APPROX_H
#define DS_KERNELS_CPU_APPROX_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/simd.h"

SIMD_INLINE int32_t bits_of_f32(float x)
{
    int32_t i;
    memcpy(&i, &x, sizeof(i));
    return i;
}

SIMD_INLINE float f32_of_bits(int32_t i)
{
    float x;
    memcpy(&x, &i, sizeof(x));
    return x;
}

/* c ? a : b without a branch in sight: GCC would split the arms and do the rest for each. */
SIMD_INLINE float select_f32(bool c, float a, float b)
{
    int32_t mask = -(int32_t)c;
    return f32_of_bits((bits_of_f32(a) & mask) | (bits_of_f32(b) & ~mask));
}

/* 2^n for -126 <= n <= 127; any n gives some float. */
SIMD_INLINE float pow2_f32(int32_t n)
{
    return f32_of_bits((int32_t)((uint32_t)(n + 127) << 23));
}

/* x = n ln2 + r, |r| <= ln2/2: returns exp(r) - 1 and n. */
SIMD_INLINE float exp_reduced(float x, int32_t *ret_n)
{
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, in the low bits */
    float t = x * 1.44269504088896341f + magic;
    float n = t - magic;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    *ret_n = bits_of_f32(t) - 0x4b400000;
    return p * (r * r) + r;
}

SIMD_INLINE float approx_exp(float x)
{
    x = select_f32(x < -104.0f, -104.0f, x);
    x = select_f32(x > 89.0f, 89.0f, x);
    int32_t n;
    float q = exp_reduced(x, &n);
    int32_t half = n >> 1; /* 2^128 is no float: scale in two steps */
    return (q + 1.0f) * pow2_f32(half) * pow2_f32(n - half);
}

/* tanh |x| = e / (e + 2) with e = exp(2|x|) - 1 */
SIMD_INLINE float approx_tanh(float x)
{
    float a = f32_of_bits(bits_of_f32(x) & 0x7fffffff);
    a = select_f32(a > 10.0f, 10.0f, a);
    int32_t n;
    float q = exp_reduced(a + a, &n);
    float s = pow2_f32(n);
    float e = s * q + (s - 1.0f);
    float t = e / (e + 2.0f);
    return f32_of_bits(bits_of_f32(t) | (bits_of_f32(x) & INT32_MIN));
}

static inline double approx_pow2_f64(int n)
{
    uint64_t b = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &b, sizeof(x));
    return x;
}

/* |x| < 700 */
static inline double approx_exp_f64(double x)
{
    double t = x * 1.44269504088896338700e+00;
    int n = (int)(t < 0 ? t - 0.5 : t + 0.5);
    double hi = x - n * 6.93147180369123816490e-01, lo = n * 1.90821492927058770002e-10;
    double r = hi - lo, z = r * r;
    double c = 4.13813679705723846039e-08;
    c = c * z - 1.65339022054652515390e-06;
    c = c * z + 6.61375632143793436117e-05;
    c = c * z - 2.77777777770155933842e-03;
    c = c * z + 1.66666666666666019037e-01;
    c = r - z * c;
    return (1.0 - ((lo - (r * c) / (2.0 - c)) - hi)) * approx_pow2_f64(n);
}

/* Of a normal x > 0; other values: 0 gives -inf, and x < 0 and NaN give NaN. */
static inline double approx_log_f64(double x)
{
    if (!(x > 0) || x > 0x1.fffffffffffffp1023)
        return x == 0 ? -__builtin_inf() : x > 0 ? x : __builtin_nan("");
    uint64_t b;
    memcpy(&b, &x, sizeof(b));
    /* m in [sqrt(1/2), sqrt(2)) */
    uint64_t off = b - 0x3fe6a09e00000000;
    int n = (int)((int64_t)off >> 52);
    uint64_t mb = b - ((uint64_t)(int64_t)n << 52);
    double m;
    memcpy(&m, &mb, sizeof(m));
    double f = m - 1.0, s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
    double p = 1.479819860511658591e-01;
    p = p * z + 1.531383769920937332e-01;
    p = p * z + 1.818357216161805012e-01;
    p = p * z + 2.222219843214978396e-01;
    p = p * z + 2.857142874366239149e-01;
    p = p * z + 3.999999999940941908e-01;
    p = p * z + 6.666666666666735130e-01;
    p *= z;
    return n * 6.93147180369123816490e-01 -
           ((h - (s * (h + p) + n * 1.90821492927058770002e-10)) - f);
}

/* |x| < 2^20 * pi/2, which is more than a million positions. */
static inline void approx_sincos_f64(double x, double *ret_sin, double *ret_cos)
{
    double t = x * 6.36619772367581382433e-01;
    int n = (int)(t < 0 ? t - 0.5 : t + 0.5);
    double hi = x - n * 1.57079632673412561417e+00, lo = n * 6.07710050650619224932e-11;
    double r = hi - lo;
    double e = (hi - r) - lo; /* what r lost */
    double z = r * r;
    double s = 1.58969099521155010221e-10;
    s = s * z - 2.50507602534068634195e-08;
    s = s * z + 2.75573137070700676789e-06;
    s = s * z - 1.98412698298579493134e-04;
    s = s * z + 8.33333333332248946124e-03;
    double v = z * r;
    s = r - ((z * (0.5 * e - v * s) - e) - v * -1.66666666666666324348e-01);
    double c = -1.13596475577881948265e-11;
    c = c * z + 2.08757232129817482790e-09;
    c = c * z - 2.75573143513906633035e-07;
    c = c * z + 2.48015872894767294178e-05;
    c = c * z - 1.38888888888741095749e-03;
    c = c * z + 4.16666666666666019037e-02;
    double h = 0.5 * z, w = 1.0 - h;
    c = w + (((1.0 - w) - h) + (z * (z * c) - r * e));
    double sc[4] = {s, c, -s, -c};
    *ret_sin = sc[n & 3];
    *ret_cos = sc[(n + 1) & 3];
}

#endif
