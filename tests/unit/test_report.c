/* The report names the culprit, the place and the rule, and stays well formed whatever a worker
 * prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/link/page.h"
#include "launcher/record/report.h"
#include "launcher/record/utf8.h"
#include "launcher/super/health.h"

static const struct health_page page = {.step = 41,
                                        .phase = PHASE_BACKWARD,
                                        .waiting = 1,
                                        .coll_group = 2,
                                        .coll_op = 0,
                                        .coll_peer = 5,
                                        .coll_seq = 17};
static const uint32_t victims[] = {1, 5};

static struct failure example(void)
{
    return (struct failure){.job = "demo",
                            .generation = 3,
                            .cause = CAUSE_SIGNAL,
                            .rank = 4,
                            .node = 1,
                            .host = "gpu2",
                            .device = "cpu",
                            .exit_code = -11,
                            .page = &page,
                            .text = "bad \033[31m thing",
                            .victims = victims,
                            .n_victims = 2,
                            .rule = "a rank died",
                            .restarts = true,
                            .restarts_left = 4,
                            .log_path = "/s/logs/g3/4.log",
                            .log_tail = "one\ntw\xffo\nthree\n"};
}

static void text_names_everything(void **state)
{
    static const char *const wanted[] = {
        "generation 3 failed: rank 4 on gpu2 was killed by signal 11 (SIGSEGV) in backward, "
        "after "
        "step 41\n",
        "it said          bad ?[31m thing\n",
        "rank 4, node 1, host gpu2, device cpu\n",
        "last collective  all-reduce number 17 in the data group, waiting for rank 5\n",
        "victims          rank 1, 5 (lost a peer; not at fault)\n",
        "last lines of /s/logs/g3/4.log\n  | one\n  | tw?o\n  | three\n",
        "rule             a rank died\n",
        "next             generation 4, restarts left: 4\n",
    };
    AUTO_BUF struct buf out = BUF(1 << 16);
    struct failure f = example();
    (void)state;
    report_text(&f, &out);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (!strstr(buf_str(&out), wanted[i]))
            fail_msg("no '%s' in:\n%s", wanted[i], buf_str(&out));
}

static void json_says_the_same(void **state)
{
    AUTO_BUF struct buf out = BUF(1 << 16);
    struct failure f = example();
    (void)state;
    report_json(&f, &out);
    json_t *o = json_loads(buf_str(&out), 0, NULL);
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "cause")),
                        job_cause_name(CAUSE_SIGNAL));
    assert_int_equal(json_integer_value(json_object_get(o, "signal")), 11);
    assert_null(json_object_get(o, "exit_code"));
    assert_int_equal(json_integer_value(json_object_get(o, "rank")), 4);
    assert_int_equal(json_array_size(json_object_get(o, "victims")), 2);
    json_t *tail = json_object_get(o, "log_tail");
    assert_int_equal(json_array_size(tail), 3);
    assert_string_equal(json_string_value(json_array_get(tail, 1)), "tw?o");
    json_t *coll = json_object_get(json_object_get(o, "at"), "collective");
    assert_string_equal(json_string_value(json_object_get(coll, "group")), "data");
    json_decref(o);
}

static void a_node_has_no_rank(void **state)
{
    AUTO_BUF struct buf text = BUF(1 << 16), json = BUF(1 << 16);
    struct failure f = {.job = "demo",
                        .generation = 1,
                        .cause = CAUSE_NODE_LOST,
                        .rank = UINT32_MAX,
                        .node = 2,
                        .host = "h",
                        .rule = "budget spent"};
    (void)state;
    report_text(&f, &text);
    assert_non_null(strstr(buf_str(&text), "node 2 on h was lost\n"));
    assert_non_null(strstr(buf_str(&text), "next             the job ends\n"));
    report_json(&f, &json);
    json_t *o = json_loads(buf_str(&json), 0, NULL);
    assert_non_null(o);
    assert_null(json_object_get(o, "rank"));
    json_decref(o);
}

/* Only the last lines go to the screen, all of them to the file. */
static void long_logs_are_cut_on_screen(void **state)
{
    AUTO_BUF struct buf tail = BUF(1 << 16), text = BUF(1 << 16), json = BUF(1 << 16);
    struct failure f = example();
    (void)state;
    for (int i = 1; i <= REPORT_LOG_LINES; i++)
        (void)buf_printf(&tail, "line-%d\n", i);
    f.log_tail = buf_str(&tail);
    report_text(&f, &text);
    assert_null(strstr(buf_str(&text), "line-38\n"));
    assert_non_null(strstr(buf_str(&text), "line-39\n"));
    assert_non_null(strstr(buf_str(&text), "line-50\n"));
    report_json(&f, &json);
    json_t *o = json_loads(buf_str(&json), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(o, "log_tail")), REPORT_LOG_LINES);
    json_decref(o);
}

static void utf8_keeps_good_and_drops_bad(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain\ttab", "plain\ttab"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"\xe2\x82\xac", "\xe2\x82\xac"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"\xc0\xaf", "??"},
        {"\xed\xa0\x80", "???"},
        {"\xf4\x90\x80\x80", "????"},
        {"\xe2\x82", "??"},
        {"\x7f\x1b", "??"},
        {"\xc2\x9b", "?"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        AUTO_BUF struct buf b = BUF(64);
        utf8_clean(cases[i].in, strlen(cases[i].in), &b);
        assert_string_equal(buf_str(&b), cases[i].out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_names_everything),
        cmocka_unit_test(json_says_the_same),
        cmocka_unit_test(a_node_has_no_rank),
        cmocka_unit_test(long_logs_are_cut_on_screen),
        cmocka_unit_test(utf8_keeps_good_and_drops_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
