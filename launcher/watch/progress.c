#include "launcher/watch/progress.h"

#include <math.h>
#include <string.h>

#include "common/base/buf.h"
#include "launcher/record/metrics.h"
#include "launcher/record/utf8.h"

enum { BAR_MAX = 30, BAR_MIN = 6, LINE_MAX_BYTES = 1024 };
static const double smoothing = 0.1; /* weight of the newest step in the ETA's step time */

struct progress {
    struct progress_params params;
    bool bar_shown;
    bool any;         /* a step was reported */
    uint64_t step;    /* newest */
    uint64_t printed; /* plain: newest step that has its line */
    double loss, grad_norm, lr, tokens_per_s, step_ms;
};

struct progress *progress_new(const struct progress_params *params)
{
    struct progress *p = xcalloc(1, sizeof(*p));
    p->params = *params;
    if (p->params.width == 0)
        p->params.width = 80;
    if (p->params.log_every == 0)
        p->params.log_every = 1;
    p->loss = p->grad_norm = p->lr = p->tokens_per_s = p->step_ms = NAN;
    return p;
}

void progress_free(struct progress *p)
{
    free(p);
}

void progress_duration(double seconds, struct buf *out)
{
    unsigned long s = seconds > 0 ? (unsigned long)(seconds + 0.5) : 0;
    if (s >= 24 * 3600)
        (void)buf_printf(out, "%lud%02luh", s / 86400, s % 86400 / 3600);
    else if (s >= 3600)
        (void)buf_printf(out, "%luh%02lum", s / 3600, s % 3600 / 60);
    else if (s >= 60)
        (void)buf_printf(out, "%lum%02lus", s / 60, s % 60);
    else
        (void)buf_printf(out, "%lus", s);
}

void progress_count(double n, struct buf *out)
{
    static const char *const units = "kMGT";
    int u = -1;
    while (fabs(n) >= 999.5 && u < 3) {
        n /= 1000;
        u++;
    }
    if (u < 0)
        (void)buf_printf(out, "%.0f", n);
    else
        (void)buf_printf(out, "%.*f%c", fabs(n) < 99.95 ? 1 : 0, n, units[u]);
}

static void number(struct buf *b, const char *label, const char *fmt_prefix, double v,
                   int precision, bool exponent)
{
    if (isnan(v))
        return;
    (void)buf_printf(b, "%s%s ", fmt_prefix, label);
    if (exponent)
        (void)buf_printf(b, "%.*e", precision, v);
    else
        (void)buf_printf(b, "%.*f", precision, v);
}

/* Everything of the line but the bar. */
static void numbers(const struct progress *p, struct buf *b)
{
    number(b, "loss", "  ", p->loss, 4, false);
    number(b, "norm", "  ", p->grad_norm, 3, false);
    number(b, "lr", "  ", p->lr, 2, true);
    if (!isnan(p->tokens_per_s)) {
        (void)buf_puts(b, "  ");
        progress_count(p->tokens_per_s, b);
        (void)buf_puts(b, " tok/s");
    }
    if (!isnan(p->step_ms) && p->params.steps > p->step) {
        (void)buf_puts(b, "  ETA ");
        progress_duration((double)(p->params.steps - p->step) * p->step_ms / 1000, b);
    }
}

static void draw_bar(struct progress *p, struct buf *out)
{
    AUTO_BUF struct buf head = BUF(LINE_MAX_BYTES), tail = BUF(LINE_MAX_BYTES);
    if (!p->any)
        return;
    (void)buf_printf(&head, "step %llu/%llu ", (unsigned long long)p->step,
                     (unsigned long long)p->params.steps);
    numbers(p, &tail);
    size_t width = p->params.width - 1; /* a full last column wraps on some terminals */
    size_t used = head.len + tail.len + 2;
    size_t bar = used + BAR_MIN <= width ? width - used : 0;
    if (bar > BAR_MAX)
        bar = BAR_MAX;
    AUTO_BUF struct buf line = BUF(LINE_MAX_BYTES);
    (void)buf_add(&line, head.data, head.len);
    if (bar) {
        double part = p->params.steps ? (double)p->step / (double)p->params.steps : 0;
        size_t full = (size_t)((double)bar * (part > 1 ? 1 : part));
        (void)buf_puts(&line, "[");
        for (size_t i = 0; i < bar; i++)
            (void)buf_puts(&line, i < full ? "=" : i == full ? ">" : " ");
        (void)buf_puts(&line, "]");
    }
    (void)buf_puts(&line, buf_str(&tail));
    (void)buf_add(out, line.data, line.len < width ? line.len : width);
    p->bar_shown = true;
}

void progress_clear(struct progress *p, struct buf *out)
{
    if (p->bar_shown)
        (void)buf_puts(out, "\r\033[K");
    p->bar_shown = false;
}

void progress_on_metrics(struct progress *p, const struct metrics *m, struct buf *out)
{
    if (isnan(m->loss)) /* numbers of a validation: they come as a text as well */
        return;
    bool back = p->any && m->step < p->step; /* a resume repeats steps */
    p->any = true;
    p->step = m->step;
    p->loss = m->loss;
    p->grad_norm = m->grad_norm;
    p->lr = m->lr;
    p->tokens_per_s = m->tokens_per_s;
    if (!isnan(m->step_ms))
        p->step_ms = isnan(p->step_ms) ? m->step_ms
                                       : (1 - smoothing) * p->step_ms + smoothing * m->step_ms;
    if (p->params.tty) {
        progress_clear(p, out);
        draw_bar(p, out);
        return;
    }
    if (back)
        p->printed = 0;
    if (p->step % p->params.log_every != 0 && p->step != p->params.steps && p->printed != 0)
        return;
    p->printed = p->step;
    (void)buf_printf(out, "step %llu/%llu", (unsigned long long)p->step,
                     (unsigned long long)p->params.steps);
    numbers(p, out);
    (void)buf_puts(out, "\n");
}

void progress_on_text(struct progress *p, const char *text, struct buf *out)
{
    bool bar = p->bar_shown;
    progress_clear(p, out);
    utf8_clean(text, strlen(text), out);
    (void)buf_puts(out, "\n");
    if (bar)
        draw_bar(p, out);
}

static void log_line(struct progress *p, uint32_t rank, uint32_t generation, const char *line,
                     size_t n, struct buf *out)
{
    /* Six colours that are readable on dark and light; neighbours differ. */
    static const unsigned char colors[] = {36, 33, 32, 35, 34, 31};
    if (p->params.color)
        (void)buf_printf(out, "\033[%um[rank %u g%u]\033[0m ",
                         (unsigned)colors[rank % sizeof(colors)], rank, generation);
    else
        (void)buf_printf(out, "[rank %u g%u] ", rank, generation);
    utf8_clean(line, n, out);
    (void)buf_puts(out, "\n");
}

void progress_on_log(struct progress *p, uint32_t rank, uint32_t generation, const char *data,
                     size_t n, struct buf *out)
{
    bool bar = p->bar_shown;
    progress_clear(p, out);
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(data + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - (data + at)) : n - at;
        log_line(p, rank, generation, data + at, len, out);
        at += len + 1;
    }
    if (bar)
        draw_bar(p, out);
}

void progress_on_width(struct progress *p, unsigned width, struct buf *out)
{
    p->params.width = width ? width : 80;
    if (!p->bar_shown)
        return;
    progress_clear(p, out);
    draw_bar(p, out);
}

void progress_summary(struct progress *p, const struct progress_summary *s, struct buf *out)
{
    progress_clear(p, out);
    (void)buf_printf(out, "%s %s at step %llu/%llu", s->job, s->outcome,
                     (unsigned long long)s->step, (unsigned long long)s->steps);
    (void)buf_puts(out, " in ");
    progress_duration(s->seconds, out);
    (void)buf_printf(out, ", restarts: %u\n", s->restarts);
    number(out, "loss        ", "  ", s->loss, 4, false);
    if (!isnan(s->loss))
        (void)buf_puts(out, " nats per token\n");
    number(out, "validation  ", "  ", s->validation_loss, 4, false);
    if (!isnan(s->validation_loss))
        (void)buf_puts(out, " nats per token\n");
    if (!isnan(s->tokens_per_s) && s->tokens_per_s > 0) {
        (void)buf_puts(out, "  speed        ");
        progress_count(s->tokens_per_s, out);
        (void)buf_puts(out, " tokens/s\n");
    }
    if (s->logs)
        (void)buf_printf(out, "  logs         %s\n", s->logs);
    if (s->checkpoints && s->checkpoint_step)
        (void)buf_printf(out, "  checkpoints  %s (newest: step %llu)\n", s->checkpoints,
                         (unsigned long long)s->checkpoint_step);
    else if (s->checkpoints)
        (void)buf_printf(out, "  checkpoints  %s (none yet)\n", s->checkpoints);
}
