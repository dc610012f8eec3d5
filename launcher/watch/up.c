#include "launcher/watch/up.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/spec/spec.h"
#include "launcher/boot/paths.h"
#include "launcher/control/control.h"
#include "launcher/control/resume.h"
#include "launcher/control/spawn.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/joblock.h"
#include "launcher/record/journal.h"
#include "launcher/watch/attach.h"

enum { SPEC_BYTES_MAX = 1 << 20, RETRY_MS = 10 };
/* A lock that is held, but whose holder does not answer: it is starting or ending. */
#define HOLDER_WAIT_NS (30 * NS_PER_S)
/* Beyond the grace: killing, reaping and dismissing, each with its own deadline. */
#define DOWN_MARGIN_NS (60 * NS_PER_S)

struct upper {
    const struct jobdir *dir;
    const struct spec *spec; /* NULL: going down */
    bool fresh, detach, at_once;
    int64_t give_up_ns;
};

/* NULL without an error: the job has none yet. */
static struct spec *last_spec(const struct jobdir *dir, struct err *e)
{
    AUTO_BUF struct buf text = BUF(SPEC_BYTES_MAX), report = BUF(SPEC_BYTES_MAX);
    e->kind = ERR_NONE;
    if (access(dir->spec, F_OK) < 0)
        return NULL;
    if (io_read_file(dir->spec, &text, e) < 0)
        return NULL;
    struct spec *s = spec_parse(dir->spec, buf_str(&text), text.len, NULL, 0, &report, e);
    if (!s)
        (void)err_set(e, ERR_SPEC, "%s", buf_str(&report));
    return s;
}

static int write_spec(const struct upper *u, struct err *e)
{
    AUTO_BUF struct buf yaml = BUF(SPEC_BYTES_MAX);
    if (spec_to_yaml(u->spec, &yaml) < 0)
        return err_set(e, ERR_SPEC, "the resolved spec is too large");
    return io_replace_file(u->dir->spec, yaml.data, yaml.len, e);
}

static int attach(const struct upper *u, const char *control, enum attach_for purpose,
                  int64_t deadline_ns, struct err *e)
{
    const struct attach_params ap = {
        .dir = u->dir, .control = control, .purpose = purpose, .deadline_ns = deadline_ns};
    return attach_run(&ap, e);
}

/* The lock goes to the controller. */
static int start(const struct upper *u, int *lock_fd, bool take_over,
                 enum control_errand errand, struct err *e)
{
    const struct spawn_params sp = {.job = u->dir->name,
                                    .log = u->dir->log,
                                    .lock_fd = *lock_fd,
                                    .take_over = take_over,
                                    .errand = errand};
    int rc = spawn_controller(&sp, e);
    (void)close(TAKE_FD(*lock_fd));
    return rc;
}

/* Up. */

static int put_aside(const struct upper *u, struct err *e)
{
    AUTO_BUF struct buf to = BUF(1 << 16);
    AUTO_FREE char *checkpoints = spec_host_path(u->spec, u->spec->checkpoint.dir);
    if (jobdir_put_aside(u->dir, checkpoints, &to, e) < 0)
        return -1;
    if (to.len)
        (void)printf("%s begins anew; what was there is now in\n%s", u->dir->name,
                     buf_str(&to));
    return 0;
}

static int prepare(const struct upper *u, const struct journal_state *past, bool *ret_take_over,
                   bool *ret_done, struct err *e)
{
    enum resume what;
    AUTO(spec) struct spec *was = last_spec(u->dir, e);
    if (!was && e->kind != ERR_NONE)
        return -1;
    if (resume_decide(past, was, u->spec, u->fresh, &what, e) < 0)
        return -1;
    *ret_take_over = what == RESUME_TAKE_OVER;
    *ret_done = what == RESUME_DONE;
    if (what == RESUME_DONE) {
        (void)printf("%s is completed: step %" PRIu64 " of %u; a larger train.steps goes on, "
                     "--fresh begins anew\n",
                     u->dir->name, past->step, u->spec->train.steps);
        return 0;
    }
    if (u->fresh && put_aside(u, e) < 0)
        return -1;
    (void)fflush(stdout);
    return *ret_take_over ? 0 : write_spec(u, e);
}

static enum attach_for watch_for(const struct upper *u)
{
    return u->detach ? ATTACH_RUNNING : ATTACH_WATCH;
}

/* The lock is ours. */
static int up_free(const struct upper *u, int *lock_fd, struct err *e)
{
    struct journal_state past;
    bool take_over, done;
    if (journal_read(u->dir->journal, &past, e) < 0)
        return -1;
    int rc = prepare(u, &past, &take_over, &done, e);
    journal_state_done(&past);
    if (rc < 0 || done)
        return rc;
    if (start(u, lock_fd, take_over, CONTROL_RUN, e) < 0)
        return -1;
    AUTO_FREE char *control = paths_control_socket(u->dir->name, e);
    return control ? attach(u, control, watch_for(u), INT64_MAX, e) : -1;
}

static int up_held(const struct upper *u, const struct joblock_holder *h, struct err *e)
{
    AUTO_BUF struct buf lines = BUF(1 << 16);
    AUTO(spec) struct spec *was = last_spec(u->dir, e);
    if (!was)
        return e->kind == ERR_NONE ? err_set(e, ERR_NETWORK, "no spec yet") : -1;
    if (u->fresh)
        return err_set(e, ERR_USAGE, "%s is live; `dslaunch down %s` before --fresh",
                       u->dir->name, u->dir->name);
    if (spec_differences(was, u->spec, &lines) > 0)
        return err_set(e, ERR_SPEC,
                       "%s is live with another spec:\n%shint: `dslaunch down %s` "
                       "first, or give the spec another name",
                       u->dir->name, buf_str(&lines), u->dir->name);
    return attach(u, h->control, watch_for(u), INT64_MAX, e);
}

/* Down. */

static int64_t down_deadline(const struct upper *u)
{
    struct err e;
    AUTO(spec) struct spec *s = last_spec(u->dir, &e);
    return DOWN_MARGIN_NS + (s && !u->at_once ? s->job.grace_ns : 0);
}

static int down_free(const struct upper *u, int *lock_fd, struct err *e)
{
    struct journal_state past;
    if (journal_read(u->dir->journal, &past, e) < 0)
        return -1;
    bool live = past.started && !past.ended;
    journal_state_done(&past);
    if (!live) {
        paths_sweep(u->dir->name);
        (void)printf("%s is not running\n", u->dir->name);
        return 0;
    }
    (void)printf("%s lost its controller; stopping its agents\n", u->dir->name);
    (void)fflush(stdout);
    if (start(u, lock_fd, true, u->at_once ? CONTROL_STOP_NOW : CONTROL_STOP, e) < 0)
        return -1;
    AUTO_FREE char *control = paths_control_socket(u->dir->name, e);
    if (!control)
        return -1;
    return attach(u, control, ATTACH_ENDING, down_deadline(u), e) < 0 ? -1 : 0;
}

static int down_held(const struct upper *u, const struct joblock_holder *h, struct err *e)
{
    enum attach_for purpose = u->at_once ? ATTACH_STOP_NOW : ATTACH_STOP;
    return attach(u, h->control, purpose, down_deadline(u), e) < 0 ? -1 : 0;
}

/* A holder that cannot be reached is starting or ending: looked at again until it has. */
static int whatever_state(struct upper *u, struct err *e)
{
    u->give_up_ns = clock_now_ns() + HOLDER_WAIT_NS;
    for (;;) {
        struct joblock_holder h;
        int fd = -1, rc = -1;
        switch (joblock_take(u->dir->lock, &fd, &h, e)) {
        case JOBLOCK_ERROR:
            return -1;
        case JOBLOCK_FREE:
            rc = u->spec ? up_free(u, &fd, e) : down_free(u, &fd, e);
            if (fd >= 0)
                (void)close(fd);
            return rc;
        case JOBLOCK_HELD:
            (void)err_set(e, ERR_NETWORK, "the controller does not answer");
            if (*h.control)
                rc = u->spec ? up_held(u, &h, e) : down_held(u, &h, e);
            break;
        }
        if (rc >= 0 || e->kind != ERR_NETWORK || clock_now_ns() > u->give_up_ns)
            return rc;
        (void)poll(NULL, 0, RETRY_MS);
    }
}

int up_job(const struct spec *spec, bool fresh, bool detach, struct err *e)
{
    AUTO(jobdir) struct jobdir *dir = jobdir_new(spec->name, e);
    if (!dir || jobdir_make(dir, e) < 0)
        return -1;
    struct upper u = {.dir = dir, .spec = spec, .fresh = fresh, .detach = detach};
    return whatever_state(&u, e);
}

int down_job(const struct jobdir *dir, bool at_once, struct err *e)
{
    struct upper u = {.dir = dir, .at_once = at_once};
    return whatever_state(&u, e);
}

int restart_job(const struct jobdir *dir, struct err *e)
{
    struct joblock_holder h;
    const struct upper u = {.dir = dir};
    switch (joblock_look(dir->lock, &h, e)) {
    case JOBLOCK_ERROR:
        return -1;
    case JOBLOCK_FREE:
        return err_set(e, ERR_USAGE, "%s is not running; `dslaunch up` its spec resumes it",
                       dir->name);
    case JOBLOCK_HELD:
        break;
    }
    if (!*h.control)
        return err_set(e, ERR_USAGE, "%s is only starting", dir->name);
    return attach(&u, h.control, ATTACH_RESTART, INT64_MAX, e);
}
