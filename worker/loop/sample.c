#include "worker/loop/sample.h"

#include <math.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/shape/params.h"
#include "common/spec/prompt.h"
#include "common/spec/spec.h"
#include "worker/comm.h"
#include "worker/link.h"
#include "worker/loop/groups.h"
#include "worker/loop/pipeline.h"
#include "worker/model/stage.h"

/* Of text: what the byte tokenizer can write. */
enum { N_BYTES = 256, TEXT_MAX = 8192 };

struct sampler {
    const struct spec *s;
    const struct params *params;
    struct groups *g;
    struct pipeline p;
    int32_t *text; /* [n]: the prompt, and what was chosen */
    size_t n;
    int32_t *ids, *targets; /* [micro_batch * seq_len]; no target counts */
    float *logits;          /* [tensor * vocab_local]: by id */
    double loss;
};

uint32_t sample_choose(const float *logits, uint32_t n, double temperature, double u)
{
    uint32_t best = 0, i;
    double sum = 0, upto = 0;
    for (i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    if (temperature == 0)
        return best;
    for (i = 0; i < n; i++)
        sum += exp(((double)logits[i] - logits[best]) / temperature);
    for (i = 0; i < n; i++) {
        upto += exp(((double)logits[i] - logits[best]) / temperature);
        if (upto > u * sum)
            return i;
    }
    return best;
}

/* In [0, 1): SplitMix64's nth number. */
static double draw(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static int input(void *ctx, uint32_t micro, struct pipeline_input *ret, struct err *e)
{
    struct sampler *x = ctx;
    (void)micro, (void)e;
    *ret = (struct pipeline_input){x->ids, x->targets, 0};
    return 0;
}

/* The next token by this rank's logits, which are those of the last stage. */
static int choose(struct sampler *x, int64_t row, int32_t *ret, struct err *e)
{
    const struct spec *s = x->s;
    struct comm *c = x->g->of[GROUP_TENSOR];
    const size_t n = (size_t)x->params->vocab_local;
    float *mine = x->logits + (c ? c->rank * n : 0);
    if (stage_logits(x->p.stage, 0, row, mine, e) < 0 ||
        (c && c->ops->all_gather(c, mine, x->logits, n, DT_F32, x->p.stream, e) < 0))
        return -1;
    *ret =
        (int32_t)sample_choose(x->logits, s->data.kind == DATA_TEXT ? N_BYTES : s->model.vocab,
                               s->train.sample.temperature, draw(s->train.seed, x->n));
    return 0;
}

static int next(struct sampler *x, struct err *e)
{
    struct comm *w = x->g->of[GROUP_WORLD];
    const size_t seq_len = x->s->train.seq_len, used = x->n < seq_len ? x->n : seq_len;
    const uint32_t last = x->p.n_stages - 1;
    int32_t id = 0;
    memcpy(x->ids, x->text + (x->n - used), used * sizeof *x->ids);
    if (pipeline_forward(&x->p, 0, e) < 0 ||
        (x->p.index == last && choose(x, (int64_t)used - 1, &id, e) < 0))
        return -1;
    if (w &&
        w->ops->broadcast(w, &id, 1, DT_I32, topo_rank(&x->g->topo, (struct coord){.pp = last}),
                          x->p.stream, e) < 0)
        return -1;
    x->text[x->n++] = id;
    return 0;
}

/* In quotes; what is not UTF-8 is left to who shows it. */
static void put_text(struct buf *out, const int32_t *ids, size_t n)
{
    (void)buf_puts(out, "\"");
    for (size_t i = 0; i < n; i++) {
        const char c = (char)ids[i];
        if (c == '\n')
            (void)buf_puts(out, "\\n");
        else if (c == '"' || c == '\\')
            (void)buf_printf(out, "\\%c", c);
        else if (ids[i] < 0x20 || ids[i] == 0x7f)
            (void)buf_printf(out, "\\x%02x", (unsigned)ids[i]);
        else
            (void)buf_add(out, &c, 1);
    }
    (void)buf_puts(out, "\"");
}

static void put_ids(struct buf *out, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)buf_printf(out, "%s%d", i ? " " : "", ids[i]);
}

static void say(const struct sampler *x, size_t n_prompt)
{
    AUTO_BUF struct buf text = BUF(TEXT_MAX);
    void (*put)(struct buf *, const int32_t *, size_t) =
        x->s->data.kind == DATA_TEXT ? put_text : put_ids;
    put(&text, x->text, n_prompt);
    (void)buf_puts(&text, " -> ");
    put(&text, x->text + n_prompt, x->n - n_prompt);
    link_event(x->p.link, "sample: %s", buf_str(&text));
}

int sample_run(const struct spec *s, const struct params *params, struct groups *g,
               const struct pipeline *p, struct err *e)
{
    const size_t rows = (size_t)s->train.micro_batch * s->train.seq_len;
    const size_t n_logits = (size_t)s->parallel.tensor * (size_t)params->vocab_local;
    AUTO_FREE int32_t *prompt = NULL;
    size_t n_prompt;
    if (prompt_ids(s, &prompt, &n_prompt) < 0)
        return err_set(e, ERR_SPEC, "train.sample.prompt: not ids of the model");
    AUTO_FREE int32_t *text = xcalloc(n_prompt + s->train.sample.tokens, sizeof *text);
    AUTO_FREE int32_t *ids = xcalloc(rows, sizeof *ids);
    AUTO_FREE int32_t *targets = xcalloc(rows, sizeof *targets);
    AUTO_FREE float *logits = xcalloc(n_logits, sizeof *logits);
    struct sampler x = {s, params, g, *p, text, n_prompt, ids, targets, logits, 0};
    memcpy(text, prompt, n_prompt * sizeof *text);
    memset(targets, -1, rows * sizeof *targets);
    x.p.input = input;
    x.p.ctx = &x;
    x.p.losses = &x.loss;
    for (uint32_t i = 0; i < s->train.sample.tokens; i++)
        if (next(&x, e) < 0)
            return err_wrap(e, "train.sample");
    if (g->rank == 0)
        say(&x, n_prompt);
    return 0;
}
