/* logring.h: what one rank printed, as whole lines, until the controller has it.
 *
 * Bytes are counted from the rank's start; the count is the offset in LogData and LogAck, and
 * the position in the controller's file.  Lines are never torn: a line longer than
 * LOGRING_LINE_MAX is cut by a newline, a last line without one gets it at the end.  No more
 * than LOGRING_WINDOW bytes are on their way unacknowledged.  At LOGRING_CAP the oldest lines
 * that were not yet sent make way for one line that says how many bytes were lost; offsets stay
 * dense, since what is on its way is never dropped.  Pure, one thread.
 */
#ifndef DS_AGENT_LOGRING_H
#define DS_AGENT_LOGRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"

struct logring;

enum { LOGRING_CAP = 16 << 20, LOGRING_WINDOW = 1 << 20, LOGRING_LINE_MAX = 64 << 10 };

struct logring *logring_new(void);
void logring_free(struct logring *r);
OWN(logring);

void logring_add(struct logring *r, const char *p, size_t n);
void logring_end(struct logring *r); /* nothing more will be added */

/* The next whole lines to send, counted as sent; 0 if there are none or the window is full.
 * *ret is borrowed until the next call. */
size_t logring_next(struct logring *r, const char **ret, uint64_t *ret_offset);
void logring_ack(struct logring *r, uint64_t offset); /* the controller has all below it */
/* Another controller has all below `offset`: what is above is sent again. */
void logring_rewind(struct logring *r, uint64_t offset);
/* Ended, and acknowledged to the last byte. */
bool logring_settled(const struct logring *r);

#endif
