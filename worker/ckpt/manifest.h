/* manifest.h: manifest.json, written by rank 0 and read by every loader.  Schema:
 * docs/checkpoint.md.
 */
#ifndef DS_CKPT_MANIFEST_H
#define DS_CKPT_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"
#include "worker/ckpt/ckpt.h"

struct buf;
struct err;
struct manifest;

enum { CKPT_DIGEST = 16, MANIFEST_MAX = 1 << 30, MANIFEST_BOXES_MAX = 4096 /* of a tensor */ };

/* What each rank tells rank 0 about its file. */
struct manifest_file {
    uint64_t bytes;
    const uint8_t (*digests)[CKPT_DIGEST]; /* one per box, in boxes.h's order */
};

/* files[world]. */
int manifest_write(const struct spec *s, uint32_t generation, const struct ckpt_state *st,
                   const struct manifest_file *files, struct buf *out, struct err *e);

struct manifest_box {
    int64_t start[2], size[2]; /* size[1] = 1, start[1] = 0 for one dimension */
    uint32_t file;
    uint64_t begin; /* bytes from the start of the file's data section */
    uint8_t digest[CKPT_DIGEST];
};

/* ERR_STORAGE: the file is missing, torn, or says what cannot be. */
struct manifest *manifest_read(const char *dir, struct err *e);
void manifest_free(struct manifest *m);
OWN(manifest);
const struct ckpt_state *manifest_state(const struct manifest *m);
const char *manifest_spec(const struct manifest *m); /* resolved YAML of the run that saved */
/* Boxes of a tensor, no two of which meet; NULL if it has none.  Borrowed until the next call.
 */
const struct manifest_box *manifest_tensor(struct manifest *m, const char *name, size_t *ret_n,
                                           struct err *e);
/* "rank-00003.safetensors" and its size; NULL if there is no such file. */
const char *manifest_file_name(const struct manifest *m, uint32_t file, uint64_t *ret_bytes);

#endif
