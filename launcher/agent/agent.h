/* agent.h: one node's agent: it carries out a controller's orders and outlives it.
 *
 * The agent listens on its socket.  A controller (of the same user: SO_PEERCRED) that connects
 * is greeted with AgentHello; once it has answered with a ControllerHello for this job and node
 * it is the controller, and an older one is cut off.  Frames of older generations are dropped.
 *
 * Without a word from a controller for the orphan time the agent gives up: if all its ranks go
 * on, it tells them to stop and waits the grace time for them to save; then it kills what is
 * left, removes its socket and ends.  Until then nothing changes for the ranks; checkpoints are
 * written and committed as before, and what a controller would have been told is kept for the
 * next one, within bounds.
 *
 * One loop, one thread, which must be the process's main thread (proc.h).
 */
#ifndef DS_AGENT_AGENT_H
#define DS_AGENT_AGENT_H

#include <stdint.h>

struct agent;
struct err;
struct uv_loop_s;

struct agent_params {
    struct uv_loop_s *loop;
    const char *job; /* borrowed for the agent's life, as is socket_path */
    uint32_t node;
    int listen_fd; /* taken */
    const char *socket_path;
    int64_t orphan_ns; /* until a ControllerHello says otherwise; INT64_MAX: never */
};

struct agent *agent_new(const struct agent_params *p, struct err *e);
/* Kills, cleans up, and lets go of the loop: uv_run then returns. */
void agent_leave(struct agent *a);
/* After uv_run has returned. */
void agent_free(struct agent *a);

#endif
