/* What a user reads: each tests/golden/spec/NN-what.yaml is a spec with faults, NN-what.set the
 * --set options it is read with, if any, one a line, and NN-what.err the exact words.
 * `make golden` (UPDATE_GOLDEN=1) writes the .err files anew, to be looked at in a diff. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <glob.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/spec/spec.h"

#define FOLDER "tests/golden/spec"
enum { SPECS_MIN = 40, SETS_MAX = 16, TEXT_MAX = 1 << 20 };

/* The lines of `text`, which is cut up. */
static size_t lines_of(struct buf *text, char *ret[SETS_MAX])
{
    size_t n = 0;
    if (!text->data)
        return 0;
    for (char *save, *p = strtok_r(text->data, "\n", &save); p;
         p = strtok_r(NULL, "\n", &save)) {
        assert_true(n < SETS_MAX);
        ret[n++] = p;
    }
    return n;
}

/* What reading the spec says, and the line that dslaunch puts below. */
static void complain(const char *path, struct buf *ret)
{
    AUTO_BUF struct buf sets_text = BUF(TEXT_MAX);
    AUTO_FREE char *sets_path = xasprintf("%.*s.set", (int)strlen(path) - 5, path);
    char *sets[SETS_MAX];
    struct err e = {0};
    if (access(sets_path, F_OK) == 0)
        assert_int_equal(io_read_file(sets_path, &sets_text, &e), 0);
    size_t n = lines_of(&sets_text, sets);
    AUTO(spec) struct spec *s = spec_load(path, sets, n, ret, &e);
    assert_null(s);
    assert_int_equal(e.kind, ERR_SPEC);
    assert_int_equal(buf_printf(ret, "dslaunch: %s\n", e.text), 0);
}

static void test_golden(void **state)
{
    glob_t found = {0};
    struct err e;
    char cwd[4096];
    (void)state;
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(FOLDER), 0); /* names in errors are as given */
    assert_int_equal(glob("*.yaml", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= SPECS_MIN);
    int wrong = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        AUTO_BUF struct buf is = BUF(TEXT_MAX), want = BUF(TEXT_MAX);
        const char *path = found.gl_pathv[i];
        AUTO_FREE char *err_path = xasprintf("%.*s.err", (int)strlen(path) - 5, path);
        complain(path, &is);
        if (getenv("UPDATE_GOLDEN"))
            assert_int_equal(io_replace_file(err_path, is.data, is.len, &e), 0);
        if (io_read_file(err_path, &want, &e) < 0 ||
            strcmp(buf_str(&is), buf_str(&want)) != 0) {
            print_error("# %s: is\n%s# should be\n%s", path, buf_str(&is), buf_str(&want));
            wrong++;
        }
    }
    globfree(&found);
    assert_int_equal(chdir(cwd), 0);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
