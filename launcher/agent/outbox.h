/* outbox.h: frames that a controller has still to hear, or may not have dealt with when it
 * died.
 *
 * Frames are copied and kept in order up to OUTBOX_MAX_BYTES; beyond that the oldest go, first
 * those nobody waits for.  One thread.
 */
#ifndef DS_AGENT_OUTBOX_H
#define DS_AGENT_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/wire/agent.pb-c.h"

struct outbox;

enum { OUTBOX_MAX_BYTES = 16 << 20 };

struct outbox *outbox_new(void);
void outbox_free(struct outbox *o);
/* `lossy`: a metrics line, a note; no rank waits for an answer. */
void outbox_put(struct outbox *o, const Dsl__Frame *f, bool lossy);
/* Hands over all of it in order, and forgets it; `f` is borrowed for the call. */
typedef void outbox_say_fn(void *ctx, Dsl__Frame *f, bool lossy);
void outbox_flush(struct outbox *o, outbox_say_fn *say, void *ctx);
/* Forgets all but the newest n. */
void outbox_keep(struct outbox *o, uint64_t n);
/* Forgets frames of generations before `generation`. */
void outbox_forget(struct outbox *o, uint32_t generation);
/* How many frames were lost for want of room. */
uint64_t outbox_lost(const struct outbox *o);

#endif
