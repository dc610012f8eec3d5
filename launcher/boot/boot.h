/* boot.h: how an agent comes to run on a node, and how the controller gets a stream to it.
 *
 * One implementation per world (local; later ssh, slurm, pmix), each a struct boot_ops.  For
 * every start or attach exactly one of the two call-backs comes, from the loop, never from
 * inside the call, and at the latest when connect_ns has passed.  The agent is a daemon:
 * neither free nor the end of the controller ends it.
 *
 * All on the loop's thread.
 */
#ifndef DS_BOOT_BOOT_H
#define DS_BOOT_BOOT_H

#include <stdint.h>

struct boot;
struct err;
struct uv_loop_s;

struct boot_params {
    struct uv_loop_s *loop;
    const char *job; /* copied */
    uint32_t n_nodes;
    int64_t connect_ns; /* deadline of each start and attach */
    int64_t orphan_ns; /* how long an agent stays that no controller greets; INT64_MAX: never */
    /* A connected stream to the node's agent, for channel_open_fd; the receiver owns the fd. */
    void (*on_channel_fd)(void *ctx, uint32_t node, int fd);
    void (*on_failed)(void *ctx, uint32_t node, const struct err *why);
    void *ctx;
};

struct boot_ops {
    const char *name;
    struct boot *(*create)(const struct boot_params *p, struct err *e);
    /* Starts the node's agent and connects.  If one runs already it is used: its AgentHello
     * tells what lives there. */
    void (*start)(struct boot *b, uint32_t node);
    /* Connects to an agent that runs already; fails if there is none. */
    void (*attach)(struct boot *b, uint32_t node);
    /* Ends an agent that no longer speaks to us, and with it all that runs under it; does its
     * best.  Waits for its end, briefly. */
    void (*kill)(struct boot *b, uint32_t node);
    /* Call-backs still to come are dropped. */
    void (*free)(struct boot *b);
};

/* One agent per node entry, all on this machine.  Takes dsagent from beside the running
 * program, or from the environment variable DSLAUNCH_AGENT (tests). */
extern const struct boot_ops boot_local;

#endif
