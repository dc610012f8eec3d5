/* dtype.h: element types of tensors, in memory, on the wire and in safetensors files, and the
 * conversion of fp32 to and from the 16-bit ones.
 *
 * Storing rounds to nearest, ties to even; what is too large becomes infinite, denormals stay
 * what they are.  A NaN stays a NaN with its sign and the upper bits of its payload; F16 makes
 * it quiet on the way to fp32, as the processor's own instruction does.  The bits do not depend
 * on the processor.  Rounding mode and flush-to-zero must be as a program starts with them.
 */
#ifndef DS_BASE_DTYPE_H
#define DS_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32, DT_I64, DT_U8, DT_COUNT };

static inline size_t dtype_bytes(enum dtype t)
{
    static const unsigned char bytes[DT_COUNT] = {
        [DT_F32] = 4, [DT_BF16] = 2, [DT_F16] = 2, [DT_F64] = 8,
        [DT_I32] = 4, [DT_I64] = 8,  [DT_U8] = 1,
    };
    return bytes[t];
}

/* safetensors' name of the type: "F32", "BF16", ... */
static inline const char *dtype_name(enum dtype t)
{
    static const char *const names[DT_COUNT] = {
        [DT_F32] = "F32", [DT_BF16] = "BF16", [DT_F16] = "F16", [DT_F64] = "F64",
        [DT_I32] = "I32", [DT_I64] = "I64",   [DT_U8] = "U8",
    };
    return names[t];
}

/* n elements of type t (DT_F32, DT_BF16 or DT_F16) to fp32 and back.  dst and src do not
 * overlap. */
void dtype_to_f32(enum dtype t, float *dst, const void *src, size_t n);
void dtype_from_f32(enum dtype t, void *dst, const float *src, size_t n);

/* The same of DT_BF16 and DT_F16 by one kind of vector code.  dtype_rows(0) is what the two
 * above use, the last is plain C; NULL behind it.  Others than 0 are for tests. */
struct dtype_rows {
    const char *name;
    void (*to_f32)(enum dtype t, float *dst, const uint16_t *src, size_t n);
    void (*from_f32)(enum dtype t, uint16_t *dst, const float *src, size_t n);
};
const struct dtype_rows *dtype_rows(size_t nth);

/* One element; what the vector code is held to. */
static inline uint32_t f32_to_bits(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof(b));
    return b;
}

static inline float f32_from_bits(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof(x));
    return x;
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float x)
{
    uint32_t b = f32_to_bits(x);
    if ((b & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(b >> 16 | 0x40);
    return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, a = h & 0x7fff;
    if (a > 0x7c00)
        return f32_from_bits(sign | 0x7fc00000 | a << 13);
    if (a == 0x7c00)
        return f32_from_bits(sign | 0x7f800000);
    if (a < 0x400) /* denormal: a * 2^-24 */
        return f32_from_bits(sign | f32_to_bits((float)a * 0x1p-24f));
    return f32_from_bits(sign | ((a << 13) + (112u << 23)));
}

static inline uint16_t f16_from_f32(float x)
{
    uint32_t b = f32_to_bits(x), sign = b >> 16 & 0x8000, a = b & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) /* halfway between the largest one and 2^16 */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) /* below 2^-14: the units of 0.5 are those of denormals */
        return (uint16_t)(sign | (f32_to_bits(f32_from_bits(a) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | ((a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13));
}

#endif
