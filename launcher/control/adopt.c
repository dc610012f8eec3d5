/* adopt.c: what a new controller takes over from a killed one.
 *
 * The workers of the journal's last generation may go on if its barrier was complete and the
 * map of its rendezvous can be read; then every lookup that a rank still makes is answered as
 * before.  Else the leftover workers are killed and the next generation resumes from the
 * checkpoint.
 */
#include "launcher/control/core.h"

#include "common/base/err.h"
#include "common/base/log.h"
#include "launcher/plan/plan.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/journal.h"
#include "launcher/record/rdzvlog.h"

static int put_again(void *ctx, uint32_t rank, const char *key, const void *val, size_t len,
                     struct err *e)
{
    struct control *c = ctx;
    return rdzv_put(c->rdzv, c->adopt, rank, key, val, len, e);
}

static int meet_again(struct control *c, struct err *e)
{
    if (rdzv_open(c->rdzv, c->adopt, e) < 0)
        return -1;
    c->rdzvlog = rdzvlog_resume(c->rdzv_path, c->adopt, put_again, c, e);
    if (!c->rdzvlog)
        return -1;
    for (uint32_t r = 0; r < c->plan->world; r++)
        if (rdzv_enter(c->rdzv, c->adopt, r, e) < 0)
            return -1;
    return 0;
}

int adopt_prepare(struct control *c, const struct journal_state *was, struct err *e)
{
    c->started_ms = was->started_ms;
    if (metrics_last(c->dir->metrics, &c->last, e) < 0)
        return -1;
    if (was->failure)
        c->failure = xstrdup(was->failure);
    if (!was->in_this_run || !was->barrier)
        return 0;
    struct err why;
    c->adopt = was->generation;
    c->restart_again = was->restart_asked;
    c->rejoining = true;
    int rc = meet_again(c, &why);
    c->rejoining = false;
    if (rc < 0) {
        log_warn("generation %u cannot go on: %s", c->adopt, why.text);
        c->adopt = 0;
    }
    return 0;
}
