#include "launcher/agent/rank/workers.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/own.h"
#include "launcher/agent/rank/tree.h"

enum { SWEEP_TICK_MS = 50 };

struct workers {
    uv_signal_t chld;
    uv_timer_t sweep;
    const struct workers_ops *ops;
    void *ctx;
    struct proc **at;
    bool *lost; /* [n] the keeper was killed and its tree may live on */
    uint32_t n, live;
    int64_t kill_ns; /* workers_kill was called; 0: not */
    bool orphans;    /* there may be children that are no keepers */
    bool stuck_said;
    unsigned handles;
};

static void look(struct workers *w);
static void on_sweep(uv_timer_t *t);

static void end_rank(struct workers *w, uint32_t i)
{
    w->lost[i] = false;
    w->live--;
    proc_finish(w->at[i]);
    w->ops->on_ended(w->ctx, w->at[i]);
}

static void reap(struct workers *w)
{
    for (;;) {
        int status;
        uint32_t i;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return;
        for (i = 0; i < w->n; i++)
            if (proc_keeper(w->at[i]) == pid)
                break;
        if (i == w->n) {
            w->orphans = true;
        } else if (proc_keeper_gone(w->at[i], status)) {
            end_rank(w, i);
        } else {
            w->lost[i] = true;
            w->orphans = true;
        }
    }
}

/* Kills what has fallen to us.  With none left, the ranks whose keepers were killed have ended:
 * a killed keeper's children are ours before its own end is told, so none can come later. */
static void sweep_orphans(struct workers *w)
{
    AUTO_FREE pid_t *keepers = xcalloc(w->n, sizeof *keepers);
    struct err e;
    size_t n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (proc_keeper(w->at[i]))
            keepers[n++] = proc_keeper(w->at[i]);
    int killed = tree_kill(getpid(), keepers, n, &e);
    if (killed > 0)
        return;
    if (killed < 0) {
        if (!w->stuck_said)
            w->ops->on_stuck(w->ctx, e.text);
        w->stuck_said = true;
        return;
    }
    w->orphans = false;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->lost[i])
            end_rank(w, i);
}

static void press(struct workers *w)
{
    int64_t since = clock_now_ns() - w->kill_ns;
    if (since > WORKERS_ASK_NS)
        for (uint32_t i = 0; i < w->n; i++)
            proc_kill(w->at[i], true);
    if (since > WORKERS_STUCK_NS && !w->stuck_said) {
        w->stuck_said = true;
        pid_t pid = tree_stuck(getpid());
        AUTO_FREE char *text =
            xasprintf(pid ? "process %d is in uninterruptible sleep (state D) and does not die"
                          : "%d processes of this node do not die",
                      pid ? (int)pid : (int)w->live);
        w->ops->on_stuck(w->ctx, text);
    }
}

static void arm(struct workers *w)
{
    if (!uv_is_active((uv_handle_t *)&w->sweep))
        (void)uv_timer_start(&w->sweep, on_sweep, SWEEP_TICK_MS, SWEEP_TICK_MS);
}

static void look(struct workers *w)
{
    reap(w);
    if (w->orphans)
        sweep_orphans(w);
    if (w->kill_ns && w->live)
        press(w);
    if (w->orphans || (w->kill_ns && w->live)) {
        arm(w);
    } else {
        (void)uv_timer_stop(&w->sweep);
    }
}

static void on_child(uv_signal_t *s, int signum)
{
    (void)signum;
    look(s->data);
}

static void on_sweep(uv_timer_t *t)
{
    look(t->data);
}

struct workers *workers_new(struct uv_loop_s *loop, const struct workers_ops *ops, void *ctx,
                            struct err *e)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        (void)err_sys(e, "PR_SET_CHILD_SUBREAPER");
        return NULL;
    }
    struct workers *w = xcalloc(1, sizeof *w);
    w->ops = ops;
    w->ctx = ctx;
    w->chld.data = w->sweep.data = w;
    w->handles = 2;
    (void)uv_signal_init(loop, &w->chld);
    (void)uv_timer_init(loop, &w->sweep);
    (void)uv_signal_start(&w->chld, on_child, SIGCHLD);
    return w;
}

static void on_closed(uv_handle_t *h)
{
    struct workers *w = h->data;
    if (--w->handles == 0)
        free(w);
}

void workers_free(struct workers *w)
{
    if (!w)
        return;
    workers_clear(w);
    uv_close((uv_handle_t *)&w->chld, on_closed);
    uv_close((uv_handle_t *)&w->sweep, on_closed);
}

int workers_start(struct workers *w, const struct proc_params *params, struct err *e)
{
    struct proc *p = proc_start(w->chld.loop, params, &w->ops->proc, w->ctx, e);
    if (!p)
        return -1;
    w->at = xrealloc_array(w->at, w->n + 1, sizeof *w->at);
    w->lost = xrealloc_array(w->lost, w->n + 1, sizeof *w->lost);
    w->at[w->n] = p;
    w->lost[w->n++] = false;
    w->live++;
    w->kill_ns = 0;
    return 0;
}

void workers_kill(struct workers *w)
{
    if (!w->kill_ns) {
        w->kill_ns = clock_now_ns();
        w->stuck_said = false;
    }
    for (uint32_t i = 0; i < w->n; i++)
        proc_kill(w->at[i], false);
    arm(w);
}

void workers_clear(struct workers *w)
{
    assert(w->live == 0);
    for (uint32_t i = 0; i < w->n; i++)
        proc_free(w->at[i]);
    free(TAKE(w->at));
    free(TAKE(w->lost));
    w->n = 0;
    w->kill_ns = 0;
}

uint32_t workers_live(const struct workers *w)
{
    return w->live;
}

uint32_t workers_count(const struct workers *w)
{
    return w->n;
}

struct proc *workers_at(const struct workers *w, uint32_t i)
{
    return w->at[i];
}

struct proc *workers_find(const struct workers *w, uint32_t rank)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (proc_rank(w->at[i]) == rank)
            return w->at[i];
    return NULL;
}
