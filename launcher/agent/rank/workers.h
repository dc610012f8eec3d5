/* workers.h: the workers of one generation on this node, and the promise that they end.
 *
 * The process must be a subreaper (workers_new makes it one): when a keeper is killed, what was
 * below it becomes a child here, is found by not being a keeper, and is killed.  A rank is
 * reported ended only when its whole tree is gone.  workers_kill first asks the keepers; one
 * that has not obeyed after WORKERS_ASK_NS is killed itself; after WORKERS_STUCK_NS it is said
 * which process does not die, and killing goes on.
 *
 * Every child of this process is reaped here: nothing else may wait for children.  All on the
 * loop's thread.
 */
#ifndef DS_AGENT_WORKERS_H
#define DS_AGENT_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/agent/rank/proc.h"

struct workers;

#define WORKERS_ASK_NS (2LL * 1000000000LL)
#define WORKERS_STUCK_NS (5LL * 1000000000LL)

struct workers_ops {
    struct proc_ops proc;
    /* proc_exited is complete.  From the loop, once per rank. */
    void (*on_ended)(void *ctx, struct proc *p);
    /* A process that SIGKILL does not end: once per kill. */
    void (*on_stuck)(void *ctx, const char *text);
};

struct workers *workers_new(struct uv_loop_s *loop, const struct workers_ops *ops, void *ctx,
                            struct err *e);
void workers_free(struct workers *w); /* none may be live */

/* One more rank; its generation's others are kept. */
int workers_start(struct workers *w, const struct proc_params *p, struct err *e);
void workers_kill(struct workers *w);
/* Forgets the ended generation.  None may be live. */
void workers_clear(struct workers *w);

uint32_t workers_live(const struct workers *w);
uint32_t workers_count(const struct workers *w); /* live and ended */
struct proc *workers_at(const struct workers *w, uint32_t i);
struct proc *workers_find(const struct workers *w, uint32_t rank); /* NULL if not here */

#endif
