/* past.h: the status document of a job that nobody controls, from its state folder.
 *
 * The keys are those of a live job's (control/answer.c).  `state` is "ended", "lost" if the
 * controller died (its agents may still be there), or "silent" if it lives and does not answer.
 */
#ifndef DS_WATCH_PAST_H
#define DS_WATCH_PAST_H

struct buf;
struct err;
struct jobdir;

/* `holder`: pid of the controller that holds the job's lock; 0: none. */
int past_status(const struct jobdir *dir, int holder, struct buf *json, struct err *e);

#endif
