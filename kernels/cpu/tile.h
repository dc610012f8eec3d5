/* tile.h: small matrix products on packed tiles, for attention.
 *
 * At tiles of 16 x 64 x head_dim a CBLAS call costs more in packing than in arithmetic, and as
 * much as 5 times where the library does not know the processor; this one runs at about 100
 * GFLOP/s on one AVX-512 core, and its bits do not depend on the library.
 */
#ifndef DS_KERNELS_CPU_TILE_H
#define DS_KERNELS_CPU_TILE_H

#include <stdbool.h>
#include <stdint.h>

/* C[m,n] = or (add) += A[m,k] B[k,n].  A's element (i,p) is a[i*a_row + p*a_col], so it may be
 * a transposed tile; B and C are row-major.  m and n are multiples of 16.  Every element is one
 * chain of fused multiply-adds, p ascending. */
void tile_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_col,
               const float *b, int64_t ldb, float *c, int64_t ldc, bool add);

/* dst[rows_padded, cols_padded] = src[rows, cols] * factor, and zeros around it. */
void tile_pack(float *dst, int64_t rows_padded, int64_t cols_padded, const float *src,
               int64_t ld, int64_t rows, int64_t cols, float factor);
/* dst[cols, rows_padded] = transposed src[rows, cols] * factor, and zeros behind each row. */
void tile_pack_transposed(float *dst, int64_t rows_padded, const float *src, int64_t ld,
                          int64_t rows, int64_t cols, float factor);
/* dst[rows, cols] = src[., ld_src] * factor */
void tile_unpack(float *dst, int64_t ld, const float *src, int64_t ld_src, int64_t rows,
                 int64_t cols, float factor);

#endif
