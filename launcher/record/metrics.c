#include "launcher/record/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"
#include "common/link/linkline.h"

/* What of a step people are shown. */
static const struct {
    const char *key;
    size_t offset;
} shown[] = {
    {"loss", offsetof(struct metrics, loss)},
    {"validation_loss", offsetof(struct metrics, validation_loss)},
    {"grad_norm", offsetof(struct metrics, grad_norm)},
    {"lr", offsetof(struct metrics, lr)},
    {"tokens_per_s", offsetof(struct metrics, tokens_per_s)},
    {"step_ms", offsetof(struct metrics, step_ms)},
};

static void take(struct metrics *m, json_t *o)
{
    m->step = (uint64_t)json_integer_value(json_object_get(o, "step"));
    m->generation = (uint32_t)json_integer_value(json_object_get(o, "generation"));
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        json_t *v = json_object_get(o, shown[i].key);
        double d = json_is_number(v) ? json_number_value(v) : NAN;
        memcpy((char *)m + shown[i].offset, &d, sizeof(d));
    }
    m->validated = isnan(m->validation_loss) ? 0 : m->step;
}

/* Verbatim, so that no digit is lost or made up; what JSON cannot say (NaN, infinities) is
 * null. NULL: no number. */
static const char *number(const char *s)
{
    char *end;
    json_t *v = json_loads(s, JSON_DECODE_ANY, NULL);
    bool fit = json_is_number(v);
    json_decref(v);
    if (fit)
        return s;
    double d = strtod(s, &end);
    return end == s || *end || isfinite(d) ? NULL : "null";
}

int metrics_from_line(const struct link_line *l, uint32_t generation, struct metrics *ret,
                      struct buf *json, struct err *e)
{
    uint64_t step;
    if (link_line_u64(l, "step", &step, e) < 0)
        return -1;
    size_t at = json->len;
    (void)buf_printf(json, "{\"step\":%" PRIu64 ",\"generation\":%u", step, generation);
    for (size_t i = 0; i < l->n; i++) {
        const char *key = l->pairs[i].key, *value = number(l->pairs[i].value);
        if (!value)
            return err_set(e, ERR_PROTOCOL, "metrics: %s=%.40s is no number", key,
                           l->pairs[i].value);
        if (strcmp(key, "step") != 0)
            (void)buf_printf(json, ",\"%s\":%s", key, value);
    }
    if (buf_puts(json, "}") < 0)
        return err_set(e, ERR_PROTOCOL, "metrics: too long");
    return metrics_from_json(json->data + at, ret, e);
}

int metrics_from_json(const char *text, struct metrics *ret, struct err *e)
{
    json_error_t je;
    json_t *o = json_loads(text, 0, &je);
    if (!json_is_object(o)) {
        json_decref(o);
        return err_set(e, ERR_PROTOCOL, "metrics: %s", je.text);
    }
    take(ret, o);
    json_decref(o);
    return 0;
}

void metrics_follow(struct metrics *last, const struct metrics *m)
{
    const struct metrics was = *last;
    bool validated = !isnan(m->validation_loss);
    if (!isnan(m->loss))
        *last = *m;
    last->validation_loss = validated ? m->validation_loss : was.validation_loss;
    last->validated = validated ? m->step : m->generation == was.generation ? was.validated : 0;
}

bool metrics_known(const struct metrics *last, const struct metrics *m)
{
    if (m->generation != last->generation)
        return false;
    return m->step <= (isnan(m->loss) ? last->validated : last->step);
}

int metrics_last(const char *path, struct metrics *ret, struct err *e)
{
    struct metrics last = {.loss = NAN,
                           .validation_loss = NAN,
                           .grad_norm = NAN,
                           .lr = NAN,
                           .tokens_per_s = NAN,
                           .step_ms = NAN};
    struct stat st;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        *ret = last;
        return 0;
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    size_t n = st.st_size < METRICS_TAIL_BYTES ? (size_t)st.st_size : METRICS_TAIL_BYTES;
    AUTO_FREE char *text = xmalloc(n + 1);
    if (io_pread_full(fd, text, n, st.st_size - (off_t)n, e) < 0)
        return err_wrap(e, "%s", path);
    text[n] = 0;
    for (char *p = text, *nl; (nl = strchr(p, '\n')); p = nl + 1) {
        struct metrics m;
        *nl = 0;
        if (metrics_from_json(p, &m, NULL) < 0)
            continue; /* the first line may be cut */
        metrics_follow(&last, &m);
    }
    *ret = last;
    return 0;
}
