/* status_watch.h: `status --watch`: how a job stands, again and again, until it has ended.
 *
 * Shown every second and whenever the controller tells of a change: painted over on a terminal,
 * elsewhere block after block, and as JSON a document a line.
 */
#ifndef DS_WATCH_STATUS_WATCH_H
#define DS_WATCH_STATUS_WATCH_H

#include <stdbool.h>

struct err;
struct jobdir;

/* 0: it has ended, or our reader went away.  -1: the controller was lost, or does not answer.
 */
int status_watch(const struct jobdir *dir, bool json, struct err *e);

#endif
