/* link_solo.h: what an agent does for a worker, done by the worker itself when it was started
 * by hand: it is rank 0 of 1, hears its own rendezvous, and writes its own checkpoints in the
 * layout of docs/checkpoint.md.
 *
 * The generation is one more than the newest in the checkpoint folder, so that names stay
 * unique.  Writing blocks.
 */
#ifndef DS_WORKER_LINK_SOLO_H
#define DS_WORKER_LINK_SOLO_H

#include <stdint.h>

#include "common/base/own.h"

struct buf;
struct err;
struct solo;

struct solo *solo_new(const char *spec_yaml, struct err *e);
void solo_free(struct solo *s);
OWN(solo);

uint32_t solo_generation(const struct solo *s);
void solo_put(struct solo *s, const char *key, const void *val, size_t n);
int solo_get(const struct solo *s, const char *key, struct buf *ret, struct err *e);
/* Writes the first `bytes` of `fd` as this rank's file of `step`, fsynced. */
int solo_shard(struct solo *s, uint64_t step, int fd, uint64_t bytes, struct err *e);
/* Writes the manifest, renames the folder into place, removes what is older than the newest
 * checkpoint.keep. */
int solo_commit(struct solo *s, uint64_t step, int fd, uint64_t offset, uint64_t bytes,
                struct err *e);

#endif
