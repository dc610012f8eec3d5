/* dtype.h: element types of tensors, in memory, on the wire and in safetensors files. */
#ifndef DS_BASE_DTYPE_H
#define DS_BASE_DTYPE_H

#include <stddef.h>

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

#endif
