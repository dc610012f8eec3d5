/* outbox.h: what there is to say while no controller listens.
 *
 * Frames are copied and kept in order up to OUTBOX_MAX_BYTES; beyond that the oldest go, first
 * those nobody waits for.  One thread.
 */
#ifndef DS_AGENT_OUTBOX_H
#define DS_AGENT_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/wire/agent.pb-c.h"

struct channel;
struct outbox;

enum { OUTBOX_MAX_BYTES = 16 << 20 };

struct outbox *outbox_new(void);
void outbox_free(struct outbox *o);
/* `lossy`: a metrics line, a note; no rank waits for an answer. */
void outbox_put(struct outbox *o, const Dsl__Frame *f, bool lossy);
/* Sends all of it, and forgets it. */
void outbox_flush(struct outbox *o, struct channel *c);
/* Forgets frames of generations before `generation`. */
void outbox_forget(struct outbox *o, uint32_t generation);
/* How many frames were lost for want of room. */
uint64_t outbox_lost(const struct outbox *o);

#endif
