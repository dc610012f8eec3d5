/* boxes.h: what a rank writes into its checkpoint file, and how it lies there.
 *
 * The list is a pure function of (spec, rank), so rank 0 knows every rank's file without
 * asking: only digests travel.  Order: pieces in table order, each as weight, exp_avg,
 * exp_avg_sq.
 */
#ifndef DS_CKPT_BOXES_H
#define DS_CKPT_BOXES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"

struct buf;
struct params;
struct piece;
struct spec;

enum ckpt_kind { CKPT_WEIGHT, CKPT_EXP_AVG, CKPT_EXP_AVG_SQ, CKPT_KIND_COUNT };

struct box {
    uint32_t piece; /* index into params->pieces */
    enum ckpt_kind kind;
    uint64_t begin, end; /* bytes, from the start of the file's data section */
};

struct boxes {
    struct box *box;
    size_t n;
    uint64_t bytes; /* of the data section */
};

/* Of replica dp: box k of the pieces this rank owns belongs to replica k % data. */
struct boxes *boxes_new(const struct spec *s, const struct params *p, uint32_t dp);
void boxes_free(struct boxes *b);
OWN(boxes);

/* "name", "name.exp_avg", ... into ret[128]. */
void boxes_tensor_name(const struct params *p, uint32_t param, enum ckpt_kind kind, char *ret);
/* safetensors: u64 little-endian length, JSON padded with blanks to 8 bytes. */
void boxes_header(const struct boxes *b, const struct params *p, struct buf *out);
/* Gathers a box of strided rows from `store` (its start), or the reverse for the part of
 * `piece` inside [start, start + size) of the param; `dense` is that box, row-major.  Returns
 * the elements copied; 0: they do not meet. */
void boxes_pack(const struct piece *piece, const float *store, float *dense);
int64_t boxes_unpack(const struct piece *piece, float *store, const int64_t start[2],
                     const int64_t size[2], const float *dense);

#endif
