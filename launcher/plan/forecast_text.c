/* forecast_text.c: the tables that `dslaunch plan` prints. */
#include "launcher/plan/forecast.h"

#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/spec/spec.h"
#include "launcher/plan/plan.h"

/* Largest pipeline that is drawn. */
enum { PICTURE_STAGES = 8, PICTURE_MICROS = 16 };

struct text {
    char s[32];
};

static struct text bytes(size_t n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct text t;
    double v = (double)n;
    size_t u = 0;
    while (v >= 1024 && u + 1 < sizeof(units) / sizeof(units[0])) {
        v /= 1024;
        u++;
    }
    (void)snprintf(t.s, sizeof(t.s), "%.*f %s", u ? 1 : 0, v, units[u]);
    return t;
}

static struct text flops(double v)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    struct text t;
    size_t u = 0;
    while (v >= 1000 && u + 1 < sizeof(units) / sizeof(units[0])) {
        v /= 1000;
        u++;
    }
    (void)snprintf(t.s, sizeof(t.s), "%.2f %sFLOP", v, units[u]);
    return t;
}

/* 1234567 as 1,234,567. */
static struct text grouped(int64_t n)
{
    char digits[24];
    struct text t;
    int len = snprintf(digits, sizeof(digits), "%lld", (long long)n);
    size_t k = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            t.s[k++] = ',';
        t.s[k++] = digits[i];
    }
    t.s[k] = '\0';
    return t;
}

static const char *schedule_name(enum spec_schedule k)
{
    return k == SCHEDULE_GPIPE ? "gpipe" : "1f1b";
}

static void add_summary(const struct forecast *f, struct buf *out)
{
    const struct spec *s = f->spec;
    const struct topo *t = &f->plan->topo;
    (void)buf_printf(
        out, "%s: %s, %u layers, hidden %u, %u heads (%u kv), ffn %u, vocabulary %u%s\n",
        s->name, s->model.arch == ARCH_GPT2 ? "gpt2" : "llama", s->model.layers,
        s->model.hidden, s->model.heads, s->model.kv_heads, s->model.ffn, s->model.vocab,
        s->model.tied ? ", tied" : "");
    (void)buf_printf(out, "  parameters  %s\n", grouped(f->n_params).s);
    (void)buf_printf(out, "  compute     %s a token, %s a step\n", flops(f->flops_per_token).s,
                     flops(f->flops_per_token * (double)f->tokens_per_step).s);
    (void)buf_printf(out, "  workers     %u = data %u x pipeline %u x tensor %u%s\n",
                     f->plan->world, t->data, t->pipeline, t->tensor,
                     s->parallel.sequence && t->tensor > 1 ? ", sequence parallel" : "");
    (void)buf_printf(out,
                     "  batch       %u sequences = data %u x micro-batch %u x accumulation %u; "
                     "%s tokens a step\n",
                     s->train.batch, t->data, s->train.micro_batch, f->accumulation,
                     grouped(f->tokens_per_step).s);
    (void)buf_printf(out, "  schedule    %s, bubble %.1f %%, micro-batches alive: %u\n",
                     schedule_name(s->parallel.schedule), f->report.bubble * 100,
                     f->report.max_slots);
}

static void add_nodes(const struct plan *p, struct buf *out)
{
    (void)buf_puts(out, "\nnode  ranks      slots  host\n");
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const struct plan_node *n = &p->nodes[i];
        char ranks[32] = "-";
        if (n->n_ranks == 1)
            (void)snprintf(ranks, sizeof(ranks), "%u", n->first_rank);
        else if (n->n_ranks)
            (void)snprintf(ranks, sizeof(ranks), "%u-%u", n->first_rank,
                           n->first_rank + n->n_ranks - 1);
        (void)buf_printf(out, "%4u  %-9s  %5u  %s\n", i, ranks, n->slots, n->host);
    }
}

/* "4-7", or "0,2,4". */
static void add_members(const uint32_t *r, uint32_t n, struct buf *out)
{
    if (n > 2 && r[n - 1] - r[0] == n - 1) {
        (void)buf_printf(out, "%u-%u", r[0], r[n - 1]);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        (void)buf_printf(out, "%s%u", i ? "," : "", r[i]);
}

static void add_groups(const struct forecast *f, struct buf *out)
{
    const struct plan *p = f->plan;
    AUTO_FREE uint32_t *r = xcalloc(p->world, sizeof(*r));
    bool first = true;
    for (enum group_kind k = GROUP_TENSOR; k < GROUP_KIND_COUNT; k++) {
        if (k == GROUP_EMBEDDING && !f->spec->model.tied)
            continue;
        bool any = false;
        for (uint32_t i = 0; i < p->world; i++) {
            uint32_t n = topo_group(&p->topo, k, i, f->spec->model.kv_heads, r);
            if (n < 2 || r[0] != i)
                continue;
            if (!any)
                (void)buf_printf(out, "%s%-10s ", first ? "\ngroups\n  " : "  ",
                                 group_kind_name(k));
            any = true;
            first = false;
            (void)buf_puts(out, " ");
            add_members(r, n, out);
        }
        if (any)
            (void)buf_puts(out, "\n");
    }
}

static void add_ranks(const struct forecast *f, struct buf *out)
{
    (void)buf_puts(out, "\nrank  node  pp  dp  tp  layers ");
    for (enum mem_class c = 0; c < MEM_CLASS_COUNT; c++)
        (void)buf_printf(out, " %11s", mem_class_name(c));
    (void)buf_printf(out, " %11s\n", "total");
    for (uint32_t i = 0; i < f->plan->world; i++) {
        const struct plan_rank *r = &f->plan->ranks[i];
        char layers[32];
        (void)snprintf(layers, sizeof(layers), "%u-%u", r->layer0, r->layer0 + r->n_layers - 1);
        (void)buf_printf(out, "%4u  %4u  %2u  %2u  %2u  %-7s", i, r->node, r->at.pp, r->at.dp,
                         r->at.tp, layers);
        for (enum mem_class c = 0; c < MEM_CLASS_COUNT; c++)
            (void)buf_printf(out, " %11s", bytes(f->ranks[i].class_bytes[c]).s);
        (void)buf_printf(out, " %11s\n", bytes(f->ranks[i].arena_bytes).s);
    }
}

/* One row a stage, one character a forward's time: "3" is the forward of micro-batch 3, "<3"
 * its backward. */
static void add_picture(const struct forecast *f, struct buf *out)
{
    enum { COLS = (PICTURE_STAGES - 1 + PICTURE_MICROS) * 3 };
    static const char digit[] = "0123456789abcdef";
    const struct sched *s = f->sched;
    if (s->n_stages < 2 || s->n_stages > PICTURE_STAGES || s->n_micro > PICTURE_MICROS)
        return;
    (void)buf_puts(out, "\npipeline (n: forward of micro-batch n, <n: its backward)\n");
    for (uint32_t i = 0; i < s->n_stages; i++) {
        char row[COLS + 1];
        memset(row, '.', COLS);
        row[(size_t)f->report.makespan] = '\0';
        for (size_t k = 0; k < s->lanes[i].n; k++) {
            const struct sched_item *it = &s->lanes[i].items[k];
            const uint32_t at = it->tick / FORECAST_TICKS_F;
            if (it->op == SCHED_F)
                row[at] = digit[it->micro];
            if (it->op == SCHED_B) {
                row[at] = '<';
                row[at + 1] = digit[it->micro];
            }
        }
        (void)buf_printf(out, "  stage %u  %s\n", i, row);
    }
}

int forecast_text(const struct forecast *f, struct buf *out)
{
    add_summary(f, out);
    add_nodes(f->plan, out);
    add_groups(f, out);
    add_ranks(f, out);
    add_picture(f, out);
    return out->full ? -1 : 0;
}
