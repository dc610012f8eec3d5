/* past.h: the status document of a job that nobody controls, from its state folder.
 *
 * The keys are those of a live job's (control/answer.c).  `state` is "ended", or "lost" if the
 * controller died: its agents may still be there.
 */
#ifndef DS_WATCH_PAST_H
#define DS_WATCH_PAST_H

struct buf;
struct err;
struct jobdir;

int past_status(const struct jobdir *dir, struct buf *json, struct err *e);

#endif
