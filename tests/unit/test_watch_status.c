/* The status document as people read it: all that is known, nothing that is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "launcher/watch/status.h"

static void live(void **state)
{
    static const char json[] =
        "{\"job\":\"demo\",\"live\":true,\"state\":\"running\",\"generation\":2,\"step\":120,"
        "\"steps\":400,\"loss\":2.5,\"lr\":0.0003,\"tokens_per_s\":45600,\"restarts\":1,"
        "\"restarts_left\":4,\"seconds\":187,\"failure\":\"rank 3 on h exited with code 1\","
        "\"last_checkpoint\":{\"step\":100,\"path\":\"/ck/step-00000100-g1\"},"
        "\"nodes\":[{\"node\":0,\"host\":\"h\",\"pid\":77,\"state\":\"up\",\"ranks\":[0]}],"
        "\"ranks\":[{\"rank\":0,\"node\":0,\"pid\":78,\"step\":120,\"phase\":\"forward\","
        "\"rss_bytes\":1048576}],\"logs\":\"/l\",\"checkpoints\":\"/ck\"}";
    static const char want[] = "demo: running, generation 2, step 120/400\n"
                               "  loss 2.5000  lr 3.00e-04  45.6k tok/s\n"
                               "  restarts 1 (left 4), time 3m07s\n"
                               "  last checkpoint: step 100, /ck/step-00000100-g1\n"
                               "  last failure: rank 3 on h exited with code 1\n"
                               "\n  node  host              agent     state\n"
                               "     0  h                 77        up\n"
                               "\n  rank  node  pid       step      phase       memory\n"
                               "     0     0  78        120       forward     1.0 MiB\n"
                               "\n  logs         /l\n  checkpoints  /ck\n";
    AUTO_BUF struct buf out = BUF(1 << 16);
    struct err e;
    (void)state;
    assert_int_equal(status_text(json, &out, &e), 0);
    assert_string_equal(buf_str(&out), want);
}

static void ended(void **state)
{
    static const char json[] = "{\"job\":\"demo\",\"state\":\"ended\",\"outcome\":\"failed\","
                               "\"exit_code\":1,\"generation\":3,\"step\":0,\"steps\":9,"
                               "\"restarts\":2,\"logs\":\"/l\",\"checkpoints\":\"/ck\","
                               "\"nodes\":[],\"ranks\":[]}";
    AUTO_BUF struct buf out = BUF(1 << 16);
    struct err e;
    (void)state;
    assert_int_equal(status_text(json, &out, &e), 0);
    assert_string_equal(buf_str(&out),
                        "demo: ended (failed, exit code 1), generation 3, step 0/9\n"
                        "  restarts 2\n"
                        "\n  logs         /l\n  checkpoints  /ck\n");
}

static void lost(void **state)
{
    static const char json[] =
        "{\"job\":\"demo\",\"state\":\"lost\",\"generation\":3,\"step\":5,"
        "\"steps\":9,\"logs\":\"/l\",\"checkpoints\":\"/ck\"}";
    AUTO_BUF struct buf out = BUF(1 << 16);
    struct err e;
    (void)state;
    assert_int_equal(status_text(json, &out, &e), 0);
    assert_string_equal(buf_str(&out),
                        "demo: lost, generation 3, step 5/9\n"
                        "  its controller died; its workers go on for "
                        "cluster.timeouts.orphan, then save and stop\n"
                        "  `dslaunch up` the same spec to go on with them, or `dslaunch down "
                        "demo`\n"
                        "  restarts 0\n"
                        "\n  logs         /l\n  checkpoints  /ck\n");
}

static void nonsense(void **state)
{
    AUTO_BUF struct buf out = BUF(1 << 16);
    struct err e;
    (void)state;
    assert_int_equal(status_text("{", &out, &e), -1);
    assert_int_equal(e.kind, ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live),
        cmocka_unit_test(ended),
        cmocka_unit_test(lost),
        cmocka_unit_test(nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
