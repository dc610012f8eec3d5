/* spawn.h: how a command starts the controller, and learns that it runs.
 *
 * The controller is this very program, executed anew with the hidden command `controller`, in a
 * session of its own, without the caller's terminal, folder or open files; its parent is init.
 * It inherits the job's lock, so the lock is never free in between, and a pipe on which it says
 * that it is ready or why not.
 */
#ifndef DS_CONTROL_SPAWN_H
#define DS_CONTROL_SPAWN_H

#include <stdbool.h>

#include "launcher/control/control.h"

struct err;

struct spawn_params {
    const char *job;
    const char *log; /* file for its diagnostics, appended to */
    int lock_fd;     /* borrowed; the child gets its own */
    bool take_over;
    enum control_errand errand;
};

/* 0: the control socket answers.  Else *e says what the controller said, or that it died. */
int spawn_controller(const struct spawn_params *p, struct err *e);

/* The other side: the arguments that spawn_controller gave, as cmd_controller gets them. */
int spawn_parse(int argc, char **argv, struct control_params *ret, struct err *e);
/* Once; closes fd.  why NULL: ready. */
void spawn_say_ready(int fd, const struct err *why);

#endif
