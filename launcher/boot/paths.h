/* paths.h: where a job's sockets and its state lie.
 *
 * Run-time files, on every host:   $XDG_RUNTIME_DIR/dslaunch/<job>/ if that folder is ours, or
 *                                  /tmp/dslaunch-<uid>/<job>/
 *     agent-<node>.sock  control.sock
 * Each folder of ours is 0700 and owned by this user, else it is refused: /tmp is everybody's.
 *
 * State, on the controller's machine:
 *     ${DSLAUNCH_HOME:-${XDG_STATE_HOME:-~/.local/state}/dslaunch}/<job>/
 *
 * Returned strings are the caller's.  Job names are spec.h's: [a-z0-9][a-z0-9_-]{0,31}; any
 * other is refused here too, since it becomes a path.
 */
#ifndef DS_BOOT_PATHS_H
#define DS_BOOT_PATHS_H

#include <stdint.h>

struct err;

/* Makes the folder, or checks the one that is there. */
char *paths_run_dir(const char *job, struct err *e);
/* Names only; nothing is made.  Always short enough for sockaddr_un. */
char *paths_agent_socket(const char *job, uint32_t node, struct err *e);
char *paths_control_socket(const char *job, struct err *e);

/* Names only: the job's state folder, and the one above it that holds all jobs. */
char *paths_state_dir(const char *job, struct err *e);
char *paths_state_root(struct err *e);

/* A connected socket (CLOEXEC, non-blocking), or -1: nobody listens there (ERR_NETWORK). */
int paths_connect(const char *socket_path, struct err *e);
/* A listening socket (0600, CLOEXEC, non-blocking), put in place of a dead one; -1 if someone
 * listens there already (ERR_USAGE). */
int paths_listen(const char *socket_path, struct err *e);

/* Removes the job's folder if it is empty: who removes the last socket calls it. */
void paths_leave(const char *job);
/* Removes sockets of the job on which nobody listens, then the folder if it is empty.  For the
 * end of a job: what a killed agent or controller left.  A missing folder is fine. */
void paths_sweep(const char *job);

#endif
