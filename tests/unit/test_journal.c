/* The journal survives a crash at any byte, and folds to what the last run went through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "launcher/record/journal.h"

static char dir[] = "/tmp/dslaunch-test-journal-XXXXXX";
static char path[128];
static const struct journal_start start = {.host = "h1",
                                           .boot_id = "b1",
                                           .pid = 4711,
                                           .secret = "/run/x/secret",
                                           .run_dir = "/run/x",
                                           .checkpoint_dir = "/ck",
                                           .n_nodes = 2,
                                           .world = 8,
                                           .steps = 400};

static int setup(void **state)
{
    (void)state;
    memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/journal.jsonl", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return io_remove_tree(dir, NULL);
}

static void write_run(struct err *e)
{
    AUTO(journal) struct journal *j = journal_open(path, e);
    assert_non_null(j);
    assert_int_equal(journal_started(j, &start, e), 0);
    assert_int_equal(journal_agent(j, 0, "n0", 100, e), 0);
    assert_int_equal(journal_agent(j, 1, "n1", 101, e), 0);
    assert_int_equal(journal_generation(j, 1, e), 0);
    assert_int_equal(journal_barrier(j, 1, e), 0);
    assert_int_equal(journal_checkpoint(j, 1, 100, "/ck/step-00000100-g1", e), 0);
    assert_int_equal(journal_failure(j, 1, "signal", "rank 3 was killed", true, e), 0);
    assert_int_equal(journal_generation(j, 2, e), 0);
    assert_int_equal(journal_agent_gone(j, 1, "channel", e), 0);
}

static void missing_is_empty(void **state)
{
    struct journal_state s;
    struct err e;
    (void)state;
    assert_int_equal(journal_read(path, &s, &e), 0);
    assert_false(s.started);
    journal_state_done(&s);
}

/* A restart that was asked for is done once the next generation begins. */
static void restart_asked(void **state)
{
    struct journal_state s;
    struct err e = {0};
    (void)state;
    write_run(&e);
    for (uint32_t g = 3; g < 5; g++) {
        AUTO(journal) struct journal *j = journal_open(path, &e);
        assert_non_null(j);
        assert_int_equal(journal_restart_asked(j, &e), 0);
        assert_int_equal(journal_read(path, &s, &e), 0);
        assert_true(s.restart_asked);
        journal_state_done(&s);
        assert_int_equal(journal_generation(j, g, &e), 0);
        assert_int_equal(journal_read(path, &s, &e), 0);
        assert_false(s.restart_asked);
        assert_int_equal(s.n_restarts, 1);
        journal_state_done(&s);
    }
}

static void folds_a_run(void **state)
{
    struct journal_state s;
    struct err e = {0};
    (void)state;
    write_run(&e);
    assert_int_equal(journal_read(path, &s, &e), 0);
    assert_true(s.started && !s.ended && s.in_this_run);
    assert_int_equal(s.generation, 2);
    assert_false(s.barrier); /* of generation 1, not of 2 */
    assert_int_equal(s.n_nodes, 2);
    assert_true(s.agent_live[0]);
    assert_false(s.agent_live[1]);
    assert_int_equal(s.agent_pid[0], 100);
    assert_int_equal(s.n_restarts, 1);
    assert_true(s.restart_ms[0] >= s.started_ms);
    assert_int_equal(s.checkpoint_step, 100);
    assert_string_equal(s.checkpoint_path, "/ck/step-00000100-g1");
    assert_string_equal(s.failure, "rank 3 was killed");
    assert_string_equal(s.secret, "/run/x/secret");
    journal_state_done(&s);
}

static void next_run_keeps_generation_and_checkpoint_only(void **state)
{
    struct journal_state s;
    struct err e = {0};
    (void)state;
    write_run(&e);
    AUTO(journal) struct journal *j = journal_open(path, &e);
    assert_int_equal(journal_ended(j, "failed", 1, 120, &e), 0);
    assert_int_equal(journal_read(path, &s, &e), 0);
    assert_true(s.ended);
    assert_int_equal(s.exit_code, 1);
    assert_int_equal(s.step, 120);
    assert_string_equal(s.outcome, "failed");
    journal_state_done(&s);
    assert_int_equal(journal_started(j, &start, &e), 0);
    assert_int_equal(journal_read(path, &s, &e), 0);
    assert_true(s.started && !s.ended && !s.in_this_run);
    assert_int_equal(s.generation, 2);
    assert_int_equal(s.checkpoint_step, 100);
    assert_int_equal(s.n_restarts, 0);
    assert_false(s.agent_live[0]);
    assert_null(s.failure);
    journal_state_done(&s);
    struct journal_start elsewhere = start; /* whose newest checkpoint is not the other's */
    elsewhere.checkpoint_dir = "/ck2";
    assert_int_equal(journal_started(j, &elsewhere, &e), 0);
    assert_int_equal(journal_read(path, &s, &e), 0);
    assert_string_equal(s.checkpoint_dir, "/ck2");
    assert_int_equal(s.checkpoint_step, 0);
    assert_null(s.checkpoint_path);
    journal_state_done(&s);
}

/* Cut after every byte: always readable, and the next writer's record is read back. */
static void torn_anywhere(void **state)
{
    struct err e = {0};
    (void)state;
    write_run(&e);
    AUTO_BUF struct buf b = BUF(1 << 20);
    assert_int_equal(io_read_file(path, &b, &e), 0);
    for (size_t n = 0; n <= b.len; n += n + 200 < b.len ? 7 : 1) {
        struct journal_state s;
        assert_int_equal(io_replace_file(path, b.data, n, &e), 0);
        assert_int_equal(journal_read(path, &s, &e), 0);
        bool started = s.started;
        journal_state_done(&s);
        AUTO(journal) struct journal *j = journal_open(path, &e);
        assert_non_null(j);
        assert_int_equal(journal_ended(j, "stopped", 0, 9, &e), 0);
        assert_int_equal(journal_read(path, &s, &e), 0);
        assert_int_equal(s.ended, started);
        journal_state_done(&s);
    }
}

static void bad_line_inside_is_named(void **state)
{
    static const char text[] = "{\"kind\":\"started\"}\nnonsense\n{\"kind\":\"ended\"}\n";
    struct journal_state s;
    struct err e = {0};
    (void)state;
    assert_int_equal(io_replace_file(path, text, sizeof(text) - 1, &e), 0);
    assert_int_equal(journal_read(path, &s, &e), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_non_null(strstr(e.text, "journal.jsonl:2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(missing_is_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(restart_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(folds_a_run, setup, teardown),
        cmocka_unit_test_setup_teardown(next_run_keeps_generation_and_checkpoint_only, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(torn_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_line_inside_is_named, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
