/* paths.h: where a job's sockets and its state lie.
 *
 * Run-time files, on every host:   $XDG_RUNTIME_DIR/dslaunch/<job>/ if that folder is ours, or
 *                                  /tmp/dslaunch-<uid>/<job>/
 *     agent-<node>.sock  control.sock  secret (record/secret.h)  rdzv (record/rdzvlog.h)
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

#include <stdbool.h>
#include <stdint.h>

struct err;

/* Names only; nothing is made.  Always short enough for sockaddr_un. */
char *paths_run_dir(const char *job, struct err *e);
char *paths_secret(const char *job, struct err *e);
char *paths_rdzv(const char *job, struct err *e);
char *paths_agent_socket(const char *job, uint32_t node, struct err *e);
char *paths_control_socket(const char *job, struct err *e);

/* Another program of ours: what the environment variable says (tests; an absolute path), else
 * the one beside the running program. */
char *paths_program(const char *variable, const char *name, struct err *e);

/* Names only: the job's state folder, and the one above it that holds all jobs. */
char *paths_state_dir(const char *job, struct err *e);
char *paths_state_root(struct err *e);

/* A connected socket (CLOEXEC, non-blocking), or -1: nobody listens there (ERR_NETWORK). */
int paths_connect(const char *socket_path, struct err *e);
/* A listening socket (0600, CLOEXEC, non-blocking), put in place of a dead one; -1 if someone
 * listens there already (ERR_USAGE).  Makes the job's folder, or checks the one that is there;
 * it is not removed as long as somebody listens in it. */
int paths_listen(const char *job, const char *socket_path, struct err *e);
/* When the socket has been removed from outside (a login manager clears $XDG_RUNTIME_DIR when
 * its user logs out): listens there anew, on the same fd, which nobody may be polling.  False:
 * it cannot be yet. */
bool paths_listen_again(const char *job, const char *socket_path, int fd);
/* The next connection (CLOEXEC, non-blocking), if it is this user's; else -1. */
int paths_accept(int listen_fd);

/* Removes sockets of the job on which nobody listens; with none left, all the rest and the
 * folder.  For the end of a job or an agent.  A missing folder is fine. */
void paths_sweep(const char *job);

#endif
