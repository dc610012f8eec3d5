/* proc.h: one worker of this node: its keeper, link, page, snapshots and output.
 *
 * Starting forks a keeper (keeper.h) from the loop's thread, which must stay the thread that
 * lives as long as the agent: PDEATHSIG goes by thread.  The worker gets fds for its link, its
 * progress page (a memfd whose size is sealed: the mapping here can never fault) and two
 * snapshot memfds, and writes stdout and stderr into one pipe.
 *
 * Who reaps tells proc_keeper_gone; once nothing of the tree is left, proc_finish takes in the
 * worker's last words, and `exit` is complete.  The object with its log and page stays until
 * proc_free.
 */
#ifndef DS_AGENT_PROC_H
#define DS_AGENT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcher/agent/rank/ranklink.h"

struct err;
struct logring;
struct proc;
struct uv_loop_s;

struct proc_params { /* all borrowed for the call */
    uint32_t rank, generation, threads;
    const char *job, *program, *workdir, *welcome;
    char *const *setup;
    size_t n_setup;
    char *const
        *env; /* "NAME=value": above the agent's own, of which only a few are passed on */
    size_t n_env;
};

struct proc_ops {                                  /* from the loop */
    void (*on_started)(void *ctx, struct proc *p); /* the worker runs: proc_pid */
    void (*on_link)(void *ctx, struct proc *p, const struct ranklink_event *ev);
    void (*on_log)(void *ctx, struct proc *p); /* there are new lines in proc_log */
};

struct proc_exit {
    int status;         /* exit code, or -signal */
    bool done, stopped; /* it said so */
    char kind[16];      /* of its failed line, or ours; "" if none */
    char *text;         /* "" if none; owned by the proc */
    int peer;           /* -1 none */
};

struct proc_page { /* the page's fields at one look, and /proc's */
    uint64_t beat, step, coll_seq, rss_bytes;
    uint32_t phase, micro, waiting, coll_group, coll_op, coll_peer;
    char state;
};

struct proc *proc_start(struct uv_loop_s *loop, const struct proc_params *params,
                        const struct proc_ops *ops, void *ctx, struct err *e);
void proc_free(struct proc *p); /* NULL is fine; its keeper must be gone */

uint32_t proc_rank(const struct proc *p);
pid_t proc_keeper(const struct proc *p); /* 0 once it is gone */
pid_t proc_pid(const struct proc *p);    /* the worker; 0 if it never started, or has ended */
struct ranklink *proc_link(struct proc *p);
struct logring *proc_log(struct proc *p);
int proc_snapshot_fd(const struct proc *p, int slot); /* stays the proc's */
struct proc_page proc_page(const struct proc *p);

/* The keeper takes the tree down; with `hard` it is killed itself, and the tree is then the
 * reaper's. */
void proc_kill(const struct proc *p, bool hard);
/* The keeper was reaped.  False: it was killed, and what was below it may live on. */
bool proc_keeper_gone(struct proc *p, int wait_status);
void proc_finish(struct proc *p);
/* NULL before proc_finish. */
const struct proc_exit *proc_exited(const struct proc *p);
/* When its link was refused; 0: never. */
int64_t proc_refused_ns(const struct proc *p);
/* To be called now and then: how long its beat has stood still. */
int64_t proc_still_ns(struct proc *p, int64_t now_ns);
/* Why it is being ended from here; shown unless the worker gave a reason of its own. */
void proc_blame(struct proc *p, const char *kind, const char *text);

#endif
