/* What `up` means for a job, by its past. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/spec/spec.h"
#include "launcher/control/resume.h"
#include "launcher/record/journal.h"

static const char yaml[] =
    "name: job\n"
    "model: {arch: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn: 48, vocab: 259}\n"
    "train: {steps: 10, batch: 4, micro_batch: 1, seq_len: 32, lr: {peak: 1e-3, min: 1e-4, "
    "warmup: 2}}\n"
    "data: {files: [/nowhere/*]}\n"
    "checkpoint: {dir: ckpt}\n";

static struct spec *make(const char *set)
{
    AUTO_BUF struct buf report = BUF(1 << 16);
    struct err e;
    char *sets[] = {(char *)(uintptr_t)set};
    struct spec *s =
        spec_parse("/x/spec.yaml", yaml, sizeof(yaml) - 1, sets, set ? 1 : 0, &report, &e);
    if (!s)
        fail_msg("%s", buf_str(&report));
    return s;
}

static const struct journal_state
    nothing = {0},
    live = {.started = true},
    stopped = {.started = true, .ended = true, .outcome = "stopped", .step = 4},
    completed = {.started = true, .ended = true, .outcome = "completed", .step = 10},
    failed = {.started = true, .ended = true, .outcome = "failed", .exit_code = 1, .step = 10};

enum { REFUSED = -1 };

static void decisions(void **state)
{
    static const struct {
        const struct journal_state *past;
        const char *set; /* of the new spec */
        bool had_spec, fresh;
        int want;
        enum err_kind kind;
    } cases[] = {
        {&nothing, NULL, false, false, RESUME_NEW, 0},
        {&nothing, NULL, false, true, RESUME_NEW, 0},
        {&live, NULL, true, false, RESUME_TAKE_OVER, 0},
        {&live, "monitor.log_every=3", true, false, REFUSED, ERR_SPEC},
        {&live, NULL, true, true, REFUSED, ERR_USAGE},
        {&stopped, NULL, true, false, RESUME_AGAIN, 0},
        {&stopped, "train.lr.peak=0.01", true, false, RESUME_AGAIN, 0},
        {&stopped, "train.batch=8", true, false, REFUSED, ERR_SPEC},
        {&stopped, "train.batch=8", true, true, RESUME_NEW, 0},
        {&failed, NULL, true, false, RESUME_AGAIN, 0},
        {&completed, NULL, true, false, RESUME_DONE, 0},
        {&completed, "train.steps=5", true, false, RESUME_DONE, 0},
        {&completed, "train.steps=11", true, false, RESUME_AGAIN, 0},
        {&completed, NULL, true, true, RESUME_NEW, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        AUTO(spec) struct spec *was = make(NULL);
        AUTO(spec) struct spec *is = make(cases[i].set);
        enum resume got;
        struct err e = {0};
        int rc = resume_decide(cases[i].past, cases[i].had_spec ? was : NULL, is,
                               cases[i].fresh, &got, &e);
        int result = rc < 0 ? REFUSED : (int)got;
        if (result != cases[i].want || (rc < 0 && e.kind != cases[i].kind))
            fail_msg("case %zu: %d, kind %d, %s", i, result, (int)e.kind, e.text);
    }
}

static void a_refusal_shows_the_keys(void **state)
{
    AUTO(spec) struct spec *was = make(NULL);
    AUTO(spec) struct spec *is = make("train.batch=8");
    enum resume got;
    struct err e;
    (void)state;
    assert_int_equal(resume_decide(&stopped, was, is, false, &got, &e), -1);
    assert_non_null(strstr(e.text, "train.batch: was 4, is 8\n"));
    assert_non_null(strstr(e.text, "hint: --fresh"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions),
        cmocka_unit_test(a_refusal_shows_the_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
