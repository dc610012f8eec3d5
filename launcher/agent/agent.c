#include "launcher/agent/agent_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/own.h"
#include "launcher/agent/outbox.h"
#include "launcher/agent/rank/logring.h"
#include "launcher/boot/paths.h"
#include "launcher/wire/frame.h"

#define HELLO_NS (10 * NS_PER_S) /* a peer that does not introduce itself is cut */
#define SETTLE_NS (1 * NS_PER_S) /* for the last output and the disk, after the workers */
#define LEAVE_NS (9 * NS_PER_S)  /* then the agent ends whatever still lives */
#define IDLE_ORPHAN_NS (120 * NS_PER_S) /* without workers nobody needs it longer */
#define PROGRESS_NS (30 * NS_PER_S)     /* a rank that stood still longer will not save */
#define REFUSED_NS (2 * NS_PER_S)       /* a refused worker ends by itself by then */
#define PAUSE_NS (2 * NS_PER_S)         /* between two ticks: we were stopped ourselves */
enum { LINGER_MS = 1000, GREETED_MAX = 8 };

/* Out of the greeted ones, if it is one. */
static void unlink_greeted(struct connection *c)
{
    for (struct connection **at = &c->a->greeted; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            return;
        }
    }
}

void agent_connection_free(struct connection *c)
{
    unlink_greeted(c);
    if (c->a->controller == c)
        c->a->controller = NULL;
    channel_close(c->ch);
    free(c);
}

void agent_connection_accept(struct connection *c)
{
    unlink_greeted(c);
    if (c->a->controller)
        agent_connection_free(c->a->controller);
    c->a->controller = c;
}

/* Those who came before `until` and have not introduced themselves, and all but the newest few.
 */
static void drop_greeted(struct agent *a, int64_t until_ns)
{
    int n = 0;
    for (struct connection *c = a->greeted, *next; c; c = next) {
        next = c->next;
        if (++n > GREETED_MAX || c->since_ns < until_ns)
            agent_connection_free(c);
    }
}

static void on_end(void *ctx, const struct err *why)
{
    struct connection *c = ctx;
    struct agent *a = c->a;
    if (c == a->controller)
        log_info("the controller is gone%s%s", why->kind ? ": " : "", why->text);
    agent_connection_free(c);
    reports_pause(a);
}

static void on_connection(uv_poll_t *h, int status, int events)
{
    struct agent *a = h->data;
    struct err e;
    (void)status, (void)events;
    AUTO_CLOSE int fd = paths_accept(a->p.listen_fd);
    if (fd < 0)
        return;
    struct connection *c = xcalloc(1, sizeof *c);
    c->a = a;
    c->since_ns = clock_now_ns();
    c->ch = channel_open_fd(a->p.loop, TAKE_FD(fd), orders_on_frame, on_end, c, &e);
    if (!c->ch) {
        log_warn("%s", e.text);
        free(c);
        return;
    }
    c->next = a->greeted;
    a->greeted = c;
    reports_hello(c);
    drop_greeted(a, INT64_MIN);
}

static void on_closed(uv_handle_t *h)
{
    struct agent *a = h->data;
    a->handles--;
}

/* Everything that is ours is away: close what holds the loop. */
static void finish(struct agent *a)
{
    a->state = AGENT_GONE;
    if (a->dismissed && a->controller) {
        Dsl__Dismissed m;
        dsl__dismissed__init(&m);
        Dsl__Frame f;
        dsl__frame__init(&f);
        f.body_case = DSL__FRAME__BODY_DISMISSED;
        f.dismissed = &m;
        reports_say(a, a->generation, &f, false);
        channel_finish(TAKE(a->controller->ch), LINGER_MS);
    }
    if (a->controller)
        agent_connection_free(a->controller);
    drop_greeted(a, INT64_MAX);
    uv_close((uv_handle_t *)&a->tick, on_closed);
    writer_free(TAKE(a->writer));
    if (workers_live(a->workers) == 0)
        workers_free(TAKE(a->workers));
    else
        uv_stop(a->p.loop); /* what SIGKILL does not end: the keepers are told by our own end */
}

static bool logs_settled(const struct agent *a)
{
    for (uint32_t i = 0; i < workers_count(a->workers); i++)
        if (!logring_settled(proc_log(workers_at(a->workers, i))))
            return false;
    return true;
}

static void answer_kill(struct agent *a)
{
    Dsl__NodeClear m;
    dsl__node_clear__init(&m);
    Dsl__Frame f;
    dsl__frame__init(&f);
    f.body_case = DSL__FRAME__BODY_NODE_CLEAR;
    f.node_clear = &m;
    a->clearing = false;
    workers_clear(a->workers);
    reports_forget_gone(a);
    reports_say(a, a->generation, &f, false);
}

/* The committer removes what its generation did not finish; the others' ranks have ended too
 * when an agent is dismissed. */
static void tidy(struct agent *a)
{
    if (a->tidied || !a->has_rank0 || !a->checkpoint_dir[0])
        return;
    a->tidied = true;
    writer_tidy(a->writer,
                &(struct writer_job){.dir = a->checkpoint_dir, .generation = a->generation});
}

static void begin_leaving(struct agent *a)
{
    a->state = AGENT_LEAVING;
    a->deadline_ns = clock_now_ns() + LEAVE_NS;
    a->reaped_ns = clock_now_ns();
    uv_close((uv_handle_t *)&a->listener, on_closed);
    (void)close(TAKE_FD(a->p.listen_fd));
    (void)unlink(a->p.socket_path);
    writer_cancel(a->writer);
    workers_kill(a->workers);
}

bool agent_live_clear(struct agent *a)
{
    if (workers_live(a->workers) || a->state == AGENT_GONE)
        return false;
    bool late = clock_now_ns() - a->reaped_ns > SETTLE_NS;
    bool settled = late || ((!a->controller || logs_settled(a)) && writer_idle(a->writer));
    if (!settled)
        return false;
    if (a->clearing && a->controller)
        answer_kill(a);
    if (a->state == AGENT_ORPHAN_STOP)
        begin_leaving(a);
    if (a->state != AGENT_LEAVING)
        return true;
    tidy(a);
    if (writer_idle(a->writer) || clock_now_ns() > a->deadline_ns)
        finish(a);
    return true;
}

void agent_leave(struct agent *a)
{
    if (a->state == AGENT_LEAVING || a->state == AGENT_GONE)
        return;
    begin_leaving(a);
    (void)agent_live_clear(a);
}

/* No controller for too long.  Ranks that all go on may save first. */
static void orphaned(struct agent *a, int64_t now)
{
    uint32_t n = workers_count(a->workers);
    bool all_go_on = n > 0 && workers_live(a->workers) == n;
    for (uint32_t i = 0; i < n; i++)
        if (proc_still_ns(workers_at(a->workers, i), now) > PROGRESS_NS)
            all_go_on = false;
    log_warn("no controller: %s",
             all_go_on ? "the ranks are told to save and stop" : "leaving");
    if (!all_go_on) {
        agent_leave(a);
        return;
    }
    a->state = AGENT_ORPHAN_STOP;
    a->deadline_ns = now + a->grace_ns;
    for (uint32_t i = 0; i < n; i++)
        ranklink_send(proc_link(workers_at(a->workers, i)), "stop");
}

static void check_deadlines(struct agent *a, int64_t now)
{
    int64_t limit = a->orphan_ns;
    if (!workers_live(a->workers) && limit > IDLE_ORPHAN_NS)
        limit = IDLE_ORPHAN_NS;
    drop_greeted(a, now - HELLO_NS);
    for (uint32_t i = 0; i < workers_count(a->workers); i++) {
        struct proc *p = workers_at(a->workers, i);
        (void)proc_still_ns(p, now);
        if (proc_refused_ns(p) && now - proc_refused_ns(p) > REFUSED_NS)
            proc_kill(p, false);
    }
    if (a->state == AGENT_SERVING && now - a->heard_ns > limit)
        orphaned(a, now);
    else if (a->state == AGENT_ORPHAN_STOP && now > a->deadline_ns)
        agent_leave(a);
    else if (a->state == AGENT_LEAVING && now > a->deadline_ns)
        finish(a);
}

/* As long as it is there, a controller can find us. */
static void keep_socket(struct agent *a)
{
    if (a->state != AGENT_SERVING || access(a->p.socket_path, F_OK) == 0)
        return;
    (void)uv_poll_stop(&a->listener);
    if (paths_listen_again(a->p.job, a->p.socket_path, a->p.listen_fd))
        log_warn("%s was removed, and is made again", a->p.socket_path);
    (void)uv_poll_start(&a->listener, UV_READABLE, on_connection);
}

static void on_tick(uv_timer_t *t)
{
    struct agent *a = t->data;
    int64_t now = clock_now_ns();
    if (now - a->ticked_ns > PAUSE_NS) /* the silence was ours */
        a->heard_ns += now - a->ticked_ns;
    a->ticked_ns = now;
    check_deadlines(a, now);
    if (a->state == AGENT_GONE)
        return;
    keep_socket(a);
    reports_pages(a);
    reports_pause(a);
    reports_logs(a);
    (void)agent_live_clear(a);
}

/* Equal for processes that reach each other by loopback: same boot, same network namespace. */
static void find_host_id(struct agent *a)
{
    AUTO_BUF struct buf boot = BUF(64);
    struct stat st = {0};
    (void)io_read_file("/proc/sys/kernel/random/boot_id", &boot, NULL);
    (void)stat("/proc/self/ns/net", &st);
    (void)snprintf(a->host_id, sizeof a->host_id, "%.36s-%llu", buf_str(&boot),
                   (unsigned long long)st.st_ino);
    if (gethostname(a->host, sizeof a->host - 1) < 0)
        (void)snprintf(a->host, sizeof a->host, "localhost");
}

struct agent *agent_new(const struct agent_params *p, struct err *e)
{
    struct agent *a = xcalloc(1, sizeof *a);
    a->p = *p;
    a->orphan_ns = p->orphan_ns;
    a->heard_ns = a->ticked_ns = clock_now_ns();
    a->checkpoint_dir = xstrdup("");
    a->workers = workers_new(p->loop, &reports_ops, a, e);
    if (!a->workers) {
        (void)close(a->p.listen_fd);
        free(a->checkpoint_dir);
        free(a);
        return NULL;
    }
    a->writer = writer_new(p->loop, reports_on_written, a);
    a->outbox = outbox_new();
    a->unheard = outbox_new();
    find_host_id(a);
    a->listener.data = a->tick.data = a;
    (void)uv_poll_init(p->loop, &a->listener, a->p.listen_fd);
    (void)uv_timer_init(p->loop, &a->tick);
    (void)uv_poll_start(&a->listener, UV_READABLE, on_connection);
    (void)uv_timer_start(&a->tick, on_tick, TICK_MS, TICK_MS);
    a->handles = 2;
    return a;
}

void agent_free(struct agent *a)
{
    if (!a)
        return;
    reports_forget_gone(a);
    outbox_free(a->outbox);
    outbox_free(a->unheard);
    free(a->checkpoint_dir);
    free(a);
}
