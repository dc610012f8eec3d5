/* simd.h: one source for every vector width, with the same bits on all of them.
 *
 * A hot loop is a function marked SIMD_CLONES: GCC compiles it for AVX-512, AVX2 and plain
 * x86-64, and the loader picks by CPUID.  It is written so that the width cannot show:
 * elements are independent of each other, or a sum runs in LANES accumulators (element i of a
 * row goes to lane i % LANES) that are added by the one tree of lanes_sum.  Contraction is off
 * (Makefile); where a fused multiply-add pays, it is asked for by name, FMA(), and rounds the
 * same everywhere.  Sanitizers run before the loader's choice can work, so there the plain
 * version alone is built.
 */
#ifndef DS_KERNELS_CPU_SIMD_H
#define DS_KERNELS_CPU_SIMD_H

#include <stdint.h>

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SIMD_CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SIMD_CLONES
#endif
#define SIMD_INLINE static inline __attribute__((always_inline))

/* The iterations of the next loop are independent, also where two pointers are equal. */
#define SIMD_LOOP _Pragma("GCC ivdep")

#define FMA(a, b, c) __builtin_fmaf(a, b, c)

enum { LANES = 16 };

SIMD_INLINE float lanes_sum(const float s[LANES])
{
    float t[LANES / 2];
    for (int l = 0; l < 8; l++)
        t[l] = s[l] + s[l + 8];
    for (int l = 0; l < 4; l++)
        t[l] += t[l + 4];
    return (t[0] + t[2]) + (t[1] + t[3]);
}

SIMD_INLINE float lanes_max(const float s[LANES])
{
    float t[LANES / 2];
    for (int l = 0; l < 8; l++)
        t[l] = s[l] > s[l + 8] ? s[l] : s[l + 8];
    for (int l = 0; l < 4; l++)
        t[l] = t[l] > t[l + 4] ? t[l] : t[l + 4];
    float a = t[0] > t[2] ? t[0] : t[2], b = t[1] > t[3] ? t[1] : t[3];
    return a > b ? a : b;
}

/* Sum of x[0..n). */
SIMD_INLINE float row_sum(const float *x, int64_t n)
{
    float s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            s[l] += x[i + l];
    for (int l = 0; i + l < n; l++)
        s[l] += x[i + l];
    return lanes_sum(s);
}

/* Sum of x[i] * y[i]. */
SIMD_INLINE float row_dot(const float *x, const float *y, int64_t n)
{
    float s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            s[l] += x[i + l] * y[i + l];
    for (int l = 0; i + l < n; l++)
        s[l] += x[i + l] * y[i + l];
    return lanes_sum(s);
}

#endif
