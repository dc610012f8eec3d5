#include "launcher/watch/attach.h"

#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/spec/spec.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/joblock.h"
#include "launcher/record/metrics.h"
#include "launcher/super/job.h"
#include "launcher/watch/ctl.h"
#include "launcher/watch/progress.h"
#include "launcher/watch/summary.h"

enum { OUT_BYTES_MAX = 32 << 20, ANSWER_MS = 5000, GONE_MS = 10000, SIGNALS = 4 };

struct attach {
    const struct attach_params *params;
    uv_loop_t loop;
    uv_timer_t deadline, answer; /* of the whole; of the first word */
    uv_signal_t signals[SIGNALS];
    struct ctl *ctl;
    struct progress *progress;
    struct buf out;
    unsigned interrupts;
    uint32_t generation; /* last announced */
    bool seen;           /* a status came */
    uint32_t old;        /* ATTACH_RESTART: one above it is waited for */
    bool over;           /* the job has ended */
    bool finished, ended, detached, mute;
    int exit_code;
    struct err why; /* finished, and neither ended nor detached */
};

static unsigned terminal_width(void)
{
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

static void leave(struct attach *a)
{
    a->finished = true;
    uv_stop(&a->loop);
}

/* What progress wrote goes out at once.  A reader that is gone detaches who only watches; who
 * waits for something goes on in silence. */
static void flush(struct attach *a)
{
    if (a->out.len && !a->mute &&
        io_write_full(STDOUT_FILENO, a->out.data, a->out.len, NULL) < 0) {
        a->mute = true;
        if (a->params->purpose == ATTACH_WATCH && !a->ended) {
            a->detached = true;
            leave(a);
        }
    }
    buf_clear(&a->out);
}

static void say(struct attach *a, const char *text)
{
    progress_on_text(a->progress, text, &a->out);
}

static json_t *parse(const Dsl__ClientEvent *ev)
{
    json_t *o = json_loads(ev->json, 0, NULL);
    return o ? o : json_object();
}

static void announce(struct attach *a, json_t *o)
{
    const char *state = json_string_value(json_object_get(o, "state"));
    uint32_t generation = (uint32_t)json_integer_value(json_object_get(o, "generation"));
    if (!state)
        return;
    bool running = strcmp(state, job_state_name(JOB_RUNNING)) == 0;
    if (!a->seen) {
        bool comes = strcmp(state, job_state_name(JOB_BOOTING)) == 0 ||
                     strcmp(state, job_state_name(JOB_LAUNCHING)) == 0;
        a->old = comes && generation ? generation - 1 : generation;
    }
    a->seen = true;
    if (!running)
        return;
    if (generation != a->generation) {
        AUTO_FREE char *text =
            xasprintf("%s: generation %u runs, %lld workers", a->params->dir->name, generation,
                      json_integer_value(json_object_get(o, "world")));
        say(a, text);
    }
    a->generation = generation;
    bool wanted = a->params->purpose == ATTACH_RUNNING ||
                  (a->params->purpose == ATTACH_RESTART && generation > a->old);
    if (wanted) {
        a->exit_code = 0;
        a->ended = true;
        leave(a);
    }
}

static void on_status(struct attach *a, const Dsl__ClientEvent *ev)
{
    json_t *o = parse(ev);
    announce(a, o);
    json_decref(o);
}

static void on_ended(struct attach *a, const Dsl__ClientEvent *ev)
{
    json_t *o = parse(ev);
    a->ended = a->over = true;
    a->exit_code = ev->exit_code;
    summary_show(a->progress, o, &a->out);
    json_decref(o);
}

static void on_event(void *ctx, uint32_t generation, const Dsl__ClientEvent *ev)
{
    struct attach *a = ctx;
    struct metrics m;
    (void)uv_timer_stop(&a->answer);
    switch (ev->kind) {
    case DSL__CLIENT_EVENT__KIND__STATUS:
        on_status(a, ev);
        break;
    case DSL__CLIENT_EVENT__KIND__PROGRESS:
        if (metrics_from_json(ev->json, &m, NULL) == 0)
            progress_on_metrics(a->progress, &m, &a->out);
        break;
    case DSL__CLIENT_EVENT__KIND__TEXT:
    case DSL__CLIENT_EVENT__KIND__REPORT:
        say(a, ev->text);
        break;
    case DSL__CLIENT_EVENT__KIND__REFUSED:
        (void)err_set(&a->why, ERR_USAGE, "%s", ev->text);
        leave(a);
        break;
    case DSL__CLIENT_EVENT__KIND__LOG:
        progress_on_log(a->progress, (uint32_t)ev->rank, generation,
                        (const char *)ev->data.data, ev->data.len, &a->out);
        break;
    case DSL__CLIENT_EVENT__KIND__ENDED:
        on_ended(a, ev);
        break;
    case _DSL__CLIENT_EVENT__KIND_IS_INT_SIZE:
        break;
    }
    flush(a);
}

static void on_end(void *ctx, const struct err *why)
{
    struct attach *a = ctx;
    if (!a->ended && !a->finished)
        (void)err_set(
            &a->why, ERR_SYSTEM,
            "the controller was lost%s%s; the workers go on without it for "
            "cluster.timeouts.orphan: `dslaunch up` the same spec to go on with them, "
            "or `dslaunch down %s`",
            *why->text ? ": " : "", why->text, a->params->dir->name);
    leave(a);
}

static void on_interrupt(struct attach *a)
{
    a->interrupts++;
    if (a->interrupts == 1 && a->params->purpose <= ATTACH_RUNNING) {
        say(a, "stopping after this step (Ctrl-C again: stop now)");
        ctl_ask(a->ctl, DSL__CLIENT_ASK__KIND__STOP);
    } else if (a->interrupts <= 2 && a->params->purpose != ATTACH_RESTART) {
        say(a, "stopping now");
        ctl_ask(a->ctl, DSL__CLIENT_ASK__KIND__STOP_NOW);
        a->interrupts = 2;
    } else {
        a->ended = true;
        a->exit_code = 128 + SIGINT;
        leave(a);
    }
}

static void on_signal(uv_signal_t *s, int signum)
{
    struct attach *a = s->data;
    switch (signum) {
    case SIGHUP:
        a->detached = true;
        leave(a);
        break;
    case SIGWINCH:
        progress_on_width(a->progress, terminal_width(), &a->out);
        break;
    default:
        on_interrupt(a);
        break;
    }
    flush(a);
}

static void on_deadline(uv_timer_t *t)
{
    struct attach *a = t->data;
    (void)err_set(&a->why, ERR_SYSTEM, "the job did not end in time; `dslaunch down --now %s`",
                  a->params->dir->name);
    leave(a);
}

static void on_no_answer(uv_timer_t *t)
{
    struct attach *a = t->data;
    struct joblock_holder h;
    (void)joblock_look(a->params->dir->lock, &h, NULL);
    (void)err_set(
        &a->why, ERR_SYSTEM,
        "the controller, process %d, does not answer; should it stay so, `kill -9 %d`, "
        "then `dslaunch up` the same spec, or `dslaunch down %s`",
        h.pid, h.pid, a->params->dir->name);
    leave(a);
}

/* The steps and log_every of the plain lines come from the job's spec. */
static struct progress *make_progress(const struct jobdir *d)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool tty = isatty(STDOUT_FILENO) && !(term && strcmp(term, "dumb") == 0);
    struct progress_params p = {
        .tty = tty, .color = tty && !(no_color && *no_color), .width = terminal_width()};
    AUTO_BUF struct buf text = BUF(1 << 20), report = BUF(1 << 20);
    if (io_read_file(d->spec, &text, NULL) == 0) {
        AUTO(spec)
        struct spec *s = spec_parse(d->spec, buf_str(&text), text.len, NULL, 0, &report, NULL);
        p.steps = s ? s->train.steps : 0;
        p.log_every = s ? s->monitor.log_every : 0;
    }
    return progress_new(&p);
}

static void open_loop(struct attach *a)
{
    static const int signums[SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    (void)uv_loop_init(&a->loop);
    (void)uv_timer_init(&a->loop, &a->deadline);
    (void)uv_timer_init(&a->loop, &a->answer);
    a->deadline.data = a->answer.data = a;
    (void)uv_timer_start(&a->answer, on_no_answer, ANSWER_MS, 0);
    for (int i = 0; i < SIGNALS; i++) {
        (void)uv_signal_init(&a->loop, &a->signals[i]);
        a->signals[i].data = a;
        (void)uv_signal_start(&a->signals[i], on_signal, signums[i]);
    }
    if (a->params->deadline_ns != INT64_MAX)
        (void)uv_timer_start(&a->deadline, on_deadline,
                             (uint64_t)(a->params->deadline_ns / NS_PER_MS), 0);
}

static void close_loop(struct attach *a)
{
    ctl_free(a->ctl);
    uv_close((uv_handle_t *)&a->deadline, NULL);
    uv_close((uv_handle_t *)&a->answer, NULL);
    for (int i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&a->signals[i], NULL);
    (void)uv_run(&a->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&a->loop);
}

static void first_asks(struct attach *a)
{
    ctl_ask(a->ctl, DSL__CLIENT_ASK__KIND__ATTACH);
    if (a->params->purpose == ATTACH_STOP)
        ctl_ask(a->ctl, DSL__CLIENT_ASK__KIND__STOP);
    if (a->params->purpose == ATTACH_RESTART)
        ctl_ask(a->ctl, DSL__CLIENT_ASK__KIND__RESTART);
    if (a->params->purpose == ATTACH_STOP_NOW)
        ctl_ask(a->ctl, DSL__CLIENT_ASK__KIND__STOP_NOW);
}

/* The controller said that all has ended; it is gone when its lock is free. */
static void wait_gone(const struct jobdir *d)
{
    struct joblock_holder h;
    for (int ms = 0; ms < GONE_MS && joblock_look(d->lock, &h, NULL) == JOBLOCK_HELD; ms += 5)
        (void)poll(NULL, 0, 5);
}

int attach_run(const struct attach_params *p, struct err *e)
{
    struct attach a = {.params = p, .out = BUF(OUT_BYTES_MAX)};
    const struct ctl_handlers h = {.on_event = on_event, .on_end = on_end, .ctx = &a};
    (void)signal(SIGPIPE, SIG_IGN);
    open_loop(&a);
    a.progress = make_progress(p->dir);
    a.ctl = ctl_open(&a.loop, p->control, &h, e);
    if (a.ctl) {
        first_asks(&a);
        while (!a.finished)
            (void)uv_run(&a.loop, UV_RUN_DEFAULT);
        progress_clear(a.progress, &a.out);
        flush(&a);
    }
    bool reached = a.ctl;
    close_loop(&a);
    progress_free(a.progress);
    buf_done(&a.out);
    if (!reached)
        return -1;
    if (a.detached)
        return 0;
    if (!a.ended)
        return err_set(e, a.why.kind, "%s", a.why.text);
    if (a.over && p->purpose != ATTACH_RUNNING && a.interrupts <= 2)
        wait_gone(p->dir);
    return a.exit_code;
}
