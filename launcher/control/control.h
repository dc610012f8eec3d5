/* control.h: the controller, a process of its own that runs one job to its end.
 *
 * It decides nothing: what happens (frames of agents, asks of clients, time) becomes events of
 * super's job, and the job's orders are carried out.  Everything it must know to go on after
 * its own death is in the journal before it is acted upon.  It outlives the terminal that
 * started it, and leaves no process, socket or run-time file when the job has ended.
 */
#ifndef DS_CONTROL_CONTROL_H
#define DS_CONTROL_CONTROL_H

#include <stdbool.h>

struct err;

enum control_errand {
    CONTROL_RUN,      /* run the job to its end */
    CONTROL_STOP,     /* take over only to stop it gracefully */
    CONTROL_STOP_NOW, /* ... at once */
};

struct control_params {
    const char *job;
    int lock_fd;    /* holds the job's lock (record/joblock.h); owned */
    int ready_fd;   /* a pipe: "ready", or why not (spawn.h); owned */
    bool take_over; /* the journal's last run goes on; else a new run begins */
    enum control_errand errand;
};

/* The state folder holds spec.yaml, resolved.  Returns the job's exit code; *e is set if it
 * could not even begin (and the ready pipe has told). */
int control_run(const struct control_params *p, struct err *e);

#endif
