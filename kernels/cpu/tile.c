#include "kernels/cpu/tile.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/simd.h"

/* An mr x (nv * LANES) piece of C, held in registers: mr and nv are constants of the call. */
SIMD_INLINE void block(int mr, int nv, int64_t k, const float *restrict a, int64_t a_row,
                       int64_t a_col, const float *restrict b, int64_t ldb, float *restrict c,
                       int64_t ldc, bool add)
{
    float s[8][2][LANES];
    for (int i = 0; i < mr; i++)
        for (int v = 0; v < nv; v++)
            for (int l = 0; l < LANES; l++)
                s[i][v][l] = add ? c[i * ldc + v * LANES + l] : 0.0f;
    for (int64_t p = 0; p < k; p++)
        for (int i = 0; i < mr; i++) {
            float x = a[i * a_row + p * a_col];
            for (int v = 0; v < nv; v++)
                for (int l = 0; l < LANES; l++)
                    s[i][v][l] = FMA(x, b[p * ldb + v * LANES + l], s[i][v][l]);
        }
    for (int i = 0; i < mr; i++)
        for (int v = 0; v < nv; v++)
            for (int l = 0; l < LANES; l++)
                c[i * ldc + v * LANES + l] = s[i][v][l];
}

SIMD_CLONES void tile_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                           int64_t a_col, const float *b, int64_t ldb, float *c, int64_t ldc,
                           bool add)
{
    assert(m % 16 == 0 && n % 16 == 0);
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES)
        for (int64_t i = 0; i < m; i += 4)
            block(4, 2, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add);
    if (j < n)
        for (int64_t i = 0; i < m; i += 8)
            block(8, 1, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add);
}

SIMD_CLONES void tile_pack(float *dst, int64_t rows_padded, int64_t cols_padded,
                           const float *src, int64_t ld, int64_t rows, int64_t cols,
                           float factor)
{
    for (int64_t r = 0; r < rows; r++) {
        float *restrict d = dst + r * cols_padded;
        for (int64_t c = 0; c < cols; c++)
            d[c] = src[r * ld + c] * factor;
        for (int64_t c = cols; c < cols_padded; c++)
            d[c] = 0;
    }
    memset(dst + rows * cols_padded, 0,
           (size_t)((rows_padded - rows) * cols_padded) * sizeof(float));
}

SIMD_CLONES void tile_pack_transposed(float *restrict dst, int64_t rows_padded,
                                      const float *restrict src, int64_t ld, int64_t rows,
                                      int64_t cols, float factor)
{
    for (int64_t r0 = 0; r0 < rows_padded; r0 += LANES) /* a cache line of each row of dst */
        for (int64_t c = 0; c < cols; c++)
            for (int64_t r = r0; r < r0 + LANES; r++)
                dst[c * rows_padded + r] = r < rows ? src[r * ld + c] * factor : 0.0f;
}

SIMD_CLONES void tile_unpack(float *restrict dst, int64_t ld, const float *restrict src,
                             int64_t ld_src, int64_t rows, int64_t cols, float factor)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            dst[r * ld + c] = src[r * ld_src + c] * factor;
}
