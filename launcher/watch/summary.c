#include "launcher/watch/summary.h"

#include <math.h>
#include <string.h>

#include "launcher/watch/progress.h"

static double number_of(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static uint64_t count_of(json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static const char *text_of(json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

void summary_show(struct progress *p, json_t *o, struct buf *out)
{
    const char *job = text_of(o, "job"), *outcome = text_of(o, "outcome");
    const struct progress_summary s = {
        .job = job ? job : "the job",
        .outcome = !outcome                          ? "ended"
                   : strcmp(outcome, "cluster") == 0 ? "failed (cluster)"
                                                     : outcome,
        .step = count_of(o, "step"),
        .steps = count_of(o, "steps"),
        .loss = number_of(o, "loss"),
        .validation_loss = number_of(o, "validation_loss"),
        .tokens_per_s = number_of(o, "mean_tokens_per_s"),
        .seconds = number_of(o, "seconds"),
        .restarts = (uint32_t)count_of(o, "restarts"),
        .logs = text_of(o, "logs"),
        .checkpoints = text_of(o, "checkpoints"),
        .checkpoint_step = count_of(json_object_get(o, "last_checkpoint"), "step"),
    };
    progress_summary(p, &s, out);
}
