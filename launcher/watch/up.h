/* up.h: brings a job up and down, whatever state it is in.
 *
 * Both first try the job's lock.  Who gets it decides alone what the job's past means, and
 * hands the lock to a new controller; who does not talks to the controller that holds it.
 */
#ifndef DS_WATCH_UP_H
#define DS_WATCH_UP_H

#include <stdbool.h>

struct err;
struct jobdir;
struct spec;

/* Starts the job, resumes it, takes it over or re-attaches; returns when it has ended (detach:
 * when its ranks run), with the exit code.  -1: *e. */
int up_job(const struct spec *spec, bool fresh, bool detach, struct err *e);

/* Ends the job and leaves nothing of it running; idempotent.  0: nothing runs. */
int down_job(const struct jobdir *dir, bool at_once, struct err *e);

/* A new generation of a job that runs, not counted as a restart; returns once its ranks run.
 * -1: *e; ERR_USAGE if the job does not run or is ending. */
int restart_job(const struct jobdir *dir, struct err *e);

#endif
