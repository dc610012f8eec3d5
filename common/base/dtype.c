#include "common/base/dtype.h"

#include <assert.h>

static void plain_to_f32(enum dtype t, float *dst, const uint16_t *src, size_t n)
{
    if (t == DT_BF16)
        for (size_t i = 0; i < n; i++)
            dst[i] = bf16_to_f32(src[i]);
    else
        for (size_t i = 0; i < n; i++)
            dst[i] = f16_to_f32(src[i]);
}

static void plain_from_f32(enum dtype t, uint16_t *dst, const float *src, size_t n)
{
    if (t == DT_BF16)
        for (size_t i = 0; i < n; i++)
            dst[i] = bf16_from_f32(src[i]);
    else
        for (size_t i = 0; i < n; i++)
            dst[i] = f16_from_f32(src[i]);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

AVX2 static void avx2_to_f32(enum dtype t, float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    if (t == DT_BF16)
        for (; i + 8 <= n; i += 8) {
            __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)(src + i)));
            _mm256_storeu_si256((__m256i_u *)(dst + i), _mm256_slli_epi32(h, 16));
        }
    else
        for (; i + 8 <= n; i += 8)
            _mm256_storeu_ps(dst + i,
                             _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(src + i))));
    plain_to_f32(t, dst + i, src + i, n - i);
}

AVX2 static void avx2_from_f32(enum dtype t, uint16_t *dst, const float *src, size_t n)
{
    const __m256i one = _mm256_set1_epi32(1), half = _mm256_set1_epi32(0x7fff);
    size_t i = 0;
    if (t == DT_BF16)
        for (; i + 8 <= n; i += 8) {
            __m256 x = _mm256_loadu_ps(src + i);
            __m256i b = _mm256_castps_si256(x), top = _mm256_srli_epi32(b, 16);
            __m256i up = _mm256_add_epi32(half, _mm256_and_si256(top, one));
            __m256i round = _mm256_srli_epi32(_mm256_add_epi32(b, up), 16);
            __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
            __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
            __m256i r = _mm256_blendv_epi8(round, quiet, nan);
            __m128i lo = _mm256_castsi256_si128(r), hi = _mm256_extracti128_si256(r, 1);
            _mm_storeu_si128((__m128i_u *)(dst + i), _mm_packus_epi32(lo, hi));
        }
    else
        for (; i + 8 <= n; i += 8)
            _mm_storeu_si128((__m128i_u *)(dst + i),
                             _mm256_cvtps_ph(_mm256_loadu_ps(src + i),
                                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    plain_from_f32(t, dst + i, src + i, n - i);
}

AVX512 static void avx512_to_f32(enum dtype t, float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    if (t == DT_BF16)
        for (; i + 16 <= n; i += 16) {
            __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)(src + i)));
            _mm512_storeu_si512(dst + i, _mm512_slli_epi32(h, 16));
        }
    else
        for (; i + 16 <= n; i += 16)
            _mm512_storeu_ps(dst + i,
                             _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)(src + i))));
    plain_to_f32(t, dst + i, src + i, n - i);
}

/* Not vcvtneps2bf16, which takes denormals for zero. */
AVX512 static void avx512_from_f32(enum dtype t, uint16_t *dst, const float *src, size_t n)
{
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff);
    size_t i = 0;
    if (t == DT_BF16)
        for (; i + 16 <= n; i += 16) {
            __m512 x = _mm512_loadu_ps(src + i);
            __m512i b = _mm512_castps_si512(x), top = _mm512_srli_epi32(b, 16);
            __m512i up = _mm512_add_epi32(half, _mm512_and_si512(top, one));
            __m512i round = _mm512_srli_epi32(_mm512_add_epi32(b, up), 16);
            __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
            __m512i r = _mm512_mask_or_epi32(round, nan, top, _mm512_set1_epi32(0x40));
            _mm256_storeu_si256((__m256i_u *)(dst + i), _mm512_cvtepi32_epi16(r));
        }
    else
        for (; i + 16 <= n; i += 16)
            _mm256_storeu_si256((__m256i_u *)(dst + i),
                                _mm512_cvtps_ph(_mm512_loadu_ps(src + i),
                                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    plain_from_f32(t, dst + i, src + i, n - i);
}
#endif

const struct dtype_rows *dtype_rows(size_t nth)
{
    static const struct dtype_rows rows[] = {
#if defined(__x86_64__)
        {"avx512", avx512_to_f32, avx512_from_f32},
        {"avx2", avx2_to_f32, avx2_from_f32},
#endif
        {"plain", plain_to_f32, plain_from_f32},
    };
    enum { N = sizeof(rows) / sizeof(rows[0]) };
    size_t best = N - 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
        best = 1;
    if (best == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        best = 0;
#endif
    return nth < N - best ? &rows[best + nth] : NULL;
}

void dtype_to_f32(enum dtype t, float *dst, const void *src, size_t n)
{
    assert(t == DT_F32 || t == DT_BF16 || t == DT_F16);
    if (t == DT_F32)
        memcpy(dst, src, n * sizeof(float));
    else
        dtype_rows(0)->to_f32(t, dst, src, n);
}

void dtype_from_f32(enum dtype t, void *dst, const float *src, size_t n)
{
    assert(t == DT_F32 || t == DT_BF16 || t == DT_F16);
    if (t == DT_F32)
        memcpy(dst, src, n * sizeof(float));
    else
        dtype_rows(0)->from_f32(t, dst, src, n);
}
