#include "launcher/watch/status_watch.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"
#include "launcher/record/jobdir.h"
#include "launcher/record/joblock.h"
#include "launcher/watch/ctl.h"
#include "launcher/watch/status.h"

enum { SHOWN_MAX = 16 << 20, EVERY_MS = 1000 };
#define SILENT_NS                                                               \
    (5 * NS_PER_S) /* a controller that answers nothing for so long is given up \
                    */

struct watching {
    uv_loop_t loop;
    uv_timer_t timer;
    struct ctl *ctl;
    bool json, tty;
    bool any, ended, left, lost;
    int64_t heard_ns;
    struct err why;
};

static void leave(struct watching *w)
{
    uv_stop(&w->loop);
}

static void write_out(struct watching *w, const struct buf *out)
{
    if (io_write_full(STDOUT_FILENO, out->data, out->len, NULL) == 0)
        return;
    w->left = true;
    leave(w);
}

/* Line by line over what stood there, no more lines than the window has. */
static void paint(struct watching *w, const char *text)
{
    AUTO_BUF struct buf out = BUF(SHOWN_MAX);
    struct winsize win;
    unsigned rows = ioctl(STDOUT_FILENO, TIOCGWINSZ, &win) == 0 && win.ws_row ? win.ws_row : 24;
    (void)buf_puts(&out, w->any ? "\033[H" : "\033[H\033[2J");
    for (unsigned i = 1; i < rows && *text; i++) {
        size_t n = strcspn(text, "\n");
        (void)buf_add(&out, text, n);
        (void)buf_puts(&out, "\033[K\n");
        text += n + (text[n] == '\n');
    }
    (void)buf_puts(&out, "\033[J");
    write_out(w, &out);
}

static void show(struct watching *w, const char *json)
{
    AUTO_BUF struct buf text = BUF(SHOWN_MAX), out = BUF(SHOWN_MAX);
    if (w->json) {
        (void)buf_printf(&out, "%s\n", json);
    } else if (status_text(json, &text, NULL) < 0) {
        return;
    } else if (w->tty) {
        paint(w, buf_str(&text));
    } else {
        (void)buf_printf(&out, "%s%s", w->any ? "\n" : "", buf_str(&text));
    }
    if (out.len)
        write_out(w, &out);
    w->any = true;
}

static void on_event(void *ctx, uint32_t generation, const Dsl__ClientEvent *ev)
{
    struct watching *w = ctx;
    (void)generation;
    w->heard_ns = clock_now_ns();
    if (ev->kind != DSL__CLIENT_EVENT__KIND__STATUS &&
        ev->kind != DSL__CLIENT_EVENT__KIND__ENDED)
        return;
    show(w, ev->json);
    if (ev->kind == DSL__CLIENT_EVENT__KIND__ENDED) {
        w->ended = true;
        leave(w);
    }
}

static void on_end(void *ctx, const struct err *why)
{
    struct watching *w = ctx;
    (void)why;
    w->lost = true;
    leave(w);
}

static void on_second(uv_timer_t *t)
{
    struct watching *w = t->data;
    if (clock_now_ns() - w->heard_ns > SILENT_NS) {
        (void)err_set(&w->why, ERR_NETWORK, "the controller does not answer");
        leave(w);
        return;
    }
    ctl_ask(w->ctl, DSL__CLIENT_ASK__KIND__STATUS);
}

static void follow(struct watching *w, const char *control)
{
    const struct ctl_handlers h = {.on_event = on_event, .on_end = on_end, .ctx = w};
    (void)uv_loop_init(&w->loop);
    (void)uv_timer_init(&w->loop, &w->timer);
    w->timer.data = w;
    w->heard_ns = clock_now_ns();
    w->ctl = ctl_open(&w->loop, control, &h, NULL);
    if (w->ctl) {
        ctl_ask(w->ctl, DSL__CLIENT_ASK__KIND__ATTACH);
        (void)uv_timer_start(&w->timer, on_second, EVERY_MS, EVERY_MS);
        (void)uv_run(&w->loop, UV_RUN_DEFAULT);
    }
    w->lost |= !w->ctl;
    ctl_free(w->ctl);
    uv_close((uv_handle_t *)&w->timer, NULL);
    (void)uv_run(&w->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&w->loop);
}

int status_watch(const struct jobdir *dir, bool json, struct err *e)
{
    struct joblock_holder h = {0};
    struct watching w = {.json = json, .tty = isatty(STDOUT_FILENO)};
    AUTO_BUF struct buf past = BUF(SHOWN_MAX);
    (void)signal(SIGPIPE, SIG_IGN);
    enum joblock_state lock = joblock_look(dir->lock, &h, e);
    if (lock == JOBLOCK_ERROR)
        return -1;
    if (lock == JOBLOCK_HELD && *h.control)
        follow(&w, h.control);
    else
        w.lost = true;
    if (w.ended || w.left)
        return 0;
    if (!w.lost)
        return err_set(e, w.why.kind, "%s", w.why.text);
    /* Nobody is there to be asked: what its files say is the end, or how it was lost. */
    if (status_of(dir, &past, e) < 0)
        return -1;
    show(&w, buf_str(&past));
    return 0;
}
