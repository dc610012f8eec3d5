/* nodes.h: one channel to each node's agent.
 *
 * Hides how an agent was started and greeted.  A node is `up` from its AgentHello until its
 * channel ends or nodes_drop.  Call-backs come from the loop; any of them may call back into
 * this module.  One thread.
 */
#ifndef DS_CONTROL_NODES_H
#define DS_CONTROL_NODES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/own.h"
#include "launcher/wire/agent.pb-c.h"

struct boot_ops;
struct err;
struct nodes;
struct uv_loop_s;

struct nodes_params {
    struct uv_loop_s *loop;
    const struct boot_ops *boot;
    const char *job;
    uint32_t n_nodes;
    int64_t connect_ns, orphan_ns;
    void *ctx;
    /* The first frame; the node is up.  The receiver greets back (ControllerHello). */
    void (*on_hello)(void *ctx, uint32_t node, const Dsl__AgentHello *h);
    void (*on_frame)(void *ctx, uint32_t node, const Dsl__Frame *f);    /* those after it */
    void (*on_failed)(void *ctx, uint32_t node, const struct err *why); /* never was up */
    void (*on_lost)(void *ctx, uint32_t node, const struct err *why);   /* was up */
};

struct nodes *nodes_new(const struct nodes_params *p, struct err *e);
/* An agent whose channel is still open was not dismissed in time, and is given up.  No
 * call-back comes after. */
void nodes_free(struct nodes *all);
OWN(nodes);

/* Starts the node's agent, or finds the one that runs; `attach`: only finds it.  A channel
 * still open is closed first. */
void nodes_boot(struct nodes *all, uint32_t node, bool attach);
bool nodes_up(const struct nodes *all, uint32_t node);
/* Nothing if the node is not up. */
void nodes_send(struct nodes *all, uint32_t node, const Dsl__Frame *f);
void nodes_ping(struct nodes *all);
/* Call now and then.  An agent that took the connection and does not greet is given up; where
 * one may be started, another takes its place. */
void nodes_tick(struct nodes *all);
/* Closes the channel; what is queued is still written.  No call-back. */
void nodes_drop(struct nodes *all, uint32_t node);
/* And ends the agent, which fell silent: it holds the node's workers and its socket. */
void nodes_give_up(struct nodes *all, uint32_t node);

#endif
