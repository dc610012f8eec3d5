/* rdzv.h: where the ranks of one generation find each other.
 *
 * For each generation of a job there is a small map and one barrier.  Ranks put what others
 * need (addresses, later the NCCL id of each communicator) and enter the barrier; once all
 * `world` ranks are in, every get is answered, and every rank is released.  A restart opens the
 * next generation and voids the one before: a rank left over gets ERR_PROTOCOL, and no data.
 *
 * Nothing here blocks or does I/O.  The controller feeds requests in as frames arrive; `reply`
 * runs inside the call that completes a request, and must not call back.  At the barrier all
 * ranks are released first, then the gets answered in the order asked.  Keys (printable, no
 * blanks), values and their number are capped: RDZV_KEYS_PER_RANK puts a rank, and as many gets
 * waiting for the barrier plus one for each rank.  One thread; no locks.
 */
#ifndef DS_RDZV_RDZV_H
#define DS_RDZV_RDZV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"

struct err;
struct rdzv;

enum { RDZV_KEY_MAX = 128, RDZV_VALUE_MAX = 64 << 10, RDZV_KEYS_PER_RANK = 64 };

enum rdzv_reply_kind { RDZV_VALUE, RDZV_ABSENT, RDZV_RELEASED, RDZV_VOID };

/* Once for each accepted get (VALUE, ABSENT or VOID) or enter (RELEASED or VOID).  key is NULL
 * for an enter; key and val are borrowed for the call. */
typedef void rdzv_reply_fn(void *ctx, uint32_t rank, enum rdzv_reply_kind kind, const char *key,
                           const void *val, size_t len);

struct rdzv *rdzv_new(uint32_t world, rdzv_reply_fn *reply, void *ctx);
void rdzv_free(struct rdzv *r); /* voids what is pending */
OWN(rdzv);

/* Voids the generation before; `gen` must be larger than any before. */
int rdzv_open(struct rdzv *r, uint32_t gen, struct err *e);
/* Copies `val`.  A second put of a key is an error: two ranks disagree on who owns it. */
int rdzv_put(struct rdzv *r, uint32_t gen, uint32_t rank, const char *key, const void *val,
             size_t len, struct err *e);
int rdzv_get(struct rdzv *r, uint32_t gen, uint32_t rank, const char *key, struct err *e);
int rdzv_enter(struct rdzv *r, uint32_t gen, uint32_t rank, struct err *e);
/* True once all ranks of the open generation are in. */
bool rdzv_complete(const struct rdzv *r);
/* Ranks not yet in, ascending, at most `cap` of them; returns their number in all. */
uint32_t rdzv_missing(const struct rdzv *r, uint32_t *ret, uint32_t cap);

#endif
