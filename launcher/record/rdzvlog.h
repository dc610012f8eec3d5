/* rdzvlog.h: what the ranks of the running generation have put, for a controller started again.
 *
 * Ranks look each other up whenever they first talk, so the map must outlive the controller
 * that gathered it.  It lies in the run-time folder, and begins anew with each generation; it
 * outlives a process, not the host, and needs no fsync.
 */
#ifndef DS_RECORD_RDZVLOG_H
#define DS_RECORD_RDZVLOG_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/own.h"

struct err;
struct rdzvlog;

/* An empty log of that generation. */
struct rdzvlog *rdzvlog_new(const char *path, uint32_t generation, struct err *e);
/* The log that is there, if it is that generation's, to be appended to; each of its puts is
 * given to `put` (-1 ends it).  Another generation's, or none: ERR_PROTOCOL. */
typedef int rdzvlog_put_fn(void *ctx, uint32_t rank, const char *key, const void *val,
                           size_t len, struct err *e);
struct rdzvlog *rdzvlog_resume(const char *path, uint32_t generation, rdzvlog_put_fn *put,
                               void *ctx, struct err *e);
void rdzvlog_free(struct rdzvlog *l); /* the file stays */
OWN(rdzvlog);

int rdzvlog_put(struct rdzvlog *l, uint32_t rank, const char *key, const void *val, size_t len,
                struct err *e);

#endif
