/* The spec's folder is the default workdir; folders have names that no one expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/spec/spec.h"

static const char text[] = "name: a\n"
                           "model: {layers: 2, hidden: 64, heads: 4}\n"
                           "train: {steps: 10, batch: 8, seq_len: 32}\n"
                           "data: {files: [a.txt]}\n";

static struct spec *parse_in(const char *folder, struct buf *report)
{
    AUTO_FREE char *path = xasprintf("%s/x.yaml", folder);
    struct err e;
    return spec_parse(path, text, strlen(text), NULL, 0, report, &e);
}

/* The resolved text, which is read elsewhere, names the same folder. */
static void test_kept(void **state)
{
    static const char *const folders[] = {
        "/a b",
        "/\"q\" \\ 'r'",
        "/new\nline\ttab\x7f",
        "/\xc3\xa4\xe2\x82\xac",
        "/\xc2\x85\xe2\x80\xa8\xef\xbb\xbf",
        "/\xf0\x9f\x98\x80",
        "/\xef\xbf\xbf\xef\xbf\xbe",
        "/~",
        "/: #[x]{y}&*!|",
        "/\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf",
    };
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        AUTO_BUF struct buf report = BUF(4096), out = BUF(65536);
        struct err e;
        AUTO(spec) struct spec *s = parse_in(folders[i], &report);
        if (!s)
            fail_msg("%s", buf_str(&report));
        assert_string_equal(s->cluster.workdir, folders[i]);
        assert_int_equal(spec_to_yaml(s, &out), 0);
        AUTO(spec)
        struct spec *there = spec_parse("/y", out.data, out.len, NULL, 0, &report, &e);
        if (!there)
            fail_msg("%s", buf_str(&report));
        assert_string_equal(there->cluster.workdir, folders[i]);
    }
}

/* A name that YAML cannot carry would arrive as another one. */
static void test_refused(void **state)
{
    static const char *const folders[] = {
        "/\xff",     "/a\xffz",           "/\x80",         "/\xc3",
        "/\xc0\x80", "/\xe0\x9f\xbf",     "/\xed\xa0\x80", "/\xf0\x8f\xbf\xbf",
        "/\xf5",     "/\xf4\x90\x80\x80", "/\xe2\x82",     "/\xe2\x82z",
    };
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        AUTO_BUF struct buf report = BUF(4096);
        AUTO(spec) struct spec *s = parse_in(folders[i], &report);
        assert_null(s);
        assert_non_null(strstr(buf_str(&report), "cluster.workdir: is not UTF-8 text"));
    }
}

static void test_root(void **state)
{
    AUTO_BUF struct buf report = BUF(4096);
    (void)state;
    AUTO(spec) struct spec *s = parse_in("", &report);
    assert_non_null(s);
    assert_string_equal(s->cluster.workdir, "/");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
