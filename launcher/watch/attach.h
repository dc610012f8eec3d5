/* attach.h: a person's screen on a live job, until it ends or the person leaves.
 *
 * The first Ctrl-C (or SIGTERM) asks the job to finish the step, save and end; the second stops
 * it now; the third leaves at once.  Who only waits for a restart leaves with the first.  A
 * lost terminal, or a reader of our output that went away, only detaches: the job goes on.
 */
#ifndef DS_WATCH_ATTACH_H
#define DS_WATCH_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct jobdir;

enum attach_for {
    ATTACH_WATCH,    /* until the job has ended */
    ATTACH_RUNNING,  /* until its ranks run (up -d) */
    ATTACH_RESTART,  /* ask for a new generation, then until that runs */
    ATTACH_STOP,     /* ask it to stop, then until it has ended */
    ATTACH_STOP_NOW, /* ... at once */
    ATTACH_ENDING    /* it is being stopped already */
};

struct attach_params {
    const struct jobdir *dir;
    const char *control; /* socket */
    enum attach_for purpose;
    int64_t deadline_ns; /* for the whole, from now; INT64_MAX: none */
};

/* The exit code: the job's; 0 if the purpose was reached or we were detached.  -1: the
 * controller cannot be reached (ERR_NETWORK, before anything was shown), was lost on the way
 * (ERR_SYSTEM), the deadline passed, or a restart was refused (ERR_USAGE). */
int attach_run(const struct attach_params *p, struct err *e);

#endif
