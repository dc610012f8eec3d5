/* The YAML tree: what is kept of a document, where it stands, and the caps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/spec/yaml.h"

static struct ynode *parse(const char *text)
{
    int line, column;
    struct err e;
    struct ynode *n = ynode_parse(text, strlen(text), &line, &column, &e);
    if (!n)
        print_error("%d:%d: %s\n", line, column, e.text);
    return n;
}

static void refuse(const char *text, size_t len, int line, int column, const char *why)
{
    int at_line = 0, at_column = 0;
    struct err e = {0};
    assert_null(ynode_parse(text, len, &at_line, &at_column, &e));
    assert_int_equal(e.kind, ERR_SPEC);
    if (!strstr(e.text, why))
        fail_msg("\"%s\" lacks \"%s\"", e.text, why);
    assert_int_equal(at_line, line);
    assert_int_equal(at_column, column);
}

static void test_tree(void **state)
{
    (void)state;
    AUTO(ynode)
    struct ynode *n = parse("# a comment\n"
                            "a: 1\n"
                            "b:\n"
                            "  - x\n"
                            "  - {c: 'y z', d: }\n"
                            "e: |\n"
                            "  two\n"
                            "  lines\n");
    const struct ynode *key = NULL;
    assert_non_null(n);
    assert_int_equal(n->kind, YNODE_MAP);
    assert_int_equal(n->n, 3);
    const struct ynode *a = ynode_get(n, "a", NULL), *b = ynode_get(n, "b", &key),
                       *e = ynode_get(n, "e", NULL);
    assert_string_equal(a->text, "1");
    assert_false(a->quoted);
    assert_int_equal(a->line, 2);
    assert_int_equal(a->column, 4);
    assert_int_equal(key->line, 3);
    assert_int_equal(key->column, 1);
    assert_int_equal(b->kind, YNODE_LIST);
    assert_int_equal(b->n, 2);
    const struct ynode *c = ynode_get(b->kids[1], "c", NULL),
                       *d = ynode_get(b->kids[1], "d", NULL);
    assert_string_equal(c->text, "y z");
    assert_true(c->quoted);
    assert_int_equal(c->line, 5);
    assert_int_equal(c->column, 9);
    assert_true(ynode_is_null(d));
    assert_string_equal(e->text, "two\nlines\n");
    assert_true(e->quoted);
    AUTO(ynode) struct ynode *wide = parse("{\xc3\xa4: x}");
    assert_int_equal(ynode_get(wide, "\xc3\xa4", NULL)->column, 5); /* characters, not bytes */
    assert_null(ynode_get(n, "z", NULL));
    assert_null(ynode_get(a, "z", NULL));
    assert_null(ynode_get(NULL, "z", NULL));
}

static void test_null(void **state)
{
    static const char *const nulls[] = {"", "   \n", "# x\n", "~", "null", "---\n"},
                             *const values[] = {"''",  "\"~\"", "'null'", "0",
                                                "nul", "[]",    "{}"};
    (void)state;
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++) {
        AUTO(ynode) struct ynode *n = parse(nulls[i]);
        assert_true(n && ynode_is_null(n));
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        AUTO(ynode) struct ynode *n = parse(values[i]);
        assert_true(n && !ynode_is_null(n));
    }
}

static void test_refused(void **state)
{
    (void)state;
#define REFUSE(text, line, column, why) refuse(text, strlen(text), line, column, why)
    REFUSE("a: 1\nb: 2\na: 3\n", 3, 1, "twice, first in line 1");
    REFUSE("a: &x 1\nb: *x\n", 2, 4, "aliases");
    REFUSE("a: !!int 1\n", 1, 4, "tags");
    REFUSE("a: !x [1]\n", 1, 4, "tags");
    REFUSE("a: !x {b: 1}\n", 1, 4, "tags");
    REFUSE("a: 1\n---\nb: 2\n", 2, 1, "second document");
    REFUSE("? [a]\n: b\n", 1, 3, "plain word");
    REFUSE("{[a]: b}\n", 1, 2, "plain word");
    REFUSE("a: \"\\0\"\n", 1, 4, "NUL");
    REFUSE("a: [b\n", 2, 1, "did not find expected");
    REFUSE("a: b\n\xff\n", 2, 1, "not UTF-8");
    REFUSE("a: \xc3", 1, 4, "not UTF-8");
    REFUSE("a: \xc3\xa4\xff", 1, 5, "not UTF-8"); /* columns are characters */
    REFUSE("a: \xed\xa0\x80", 1, 4, "not UTF-8"); /* a surrogate */
    REFUSE("a: &a [*a]\n", 1, 8, "aliases");      /* a list in itself */
    REFUSE("a: \x01", 1, 4, "not UTF-8 text: control characters");
#undef REFUSE
}

static void test_caps(void **state)
{
    AUTO_BUF struct buf deep = BUF(1 << 10), many = BUF(1 << 20), keys = BUF(1 << 20);
    AUTO_FREE char *big = xcalloc(1, YAML_TEXT_MAX + 2);
    int line, column;
    (void)state;
    /* As deep as allowed, and one more. */
    for (int i = 0; i < YAML_DEPTH_MAX; i++)
        (void)buf_puts(&deep, "[");
    for (int i = 0; i < YAML_DEPTH_MAX; i++)
        (void)buf_puts(&deep, "]");
    AUTO(ynode) struct ynode *n = parse(buf_str(&deep));
    assert_non_null(n);
    AUTO_FREE char *deeper = xasprintf("[%s]", buf_str(&deep));
    refuse(deeper, strlen(deeper), 1, YAML_DEPTH_MAX + 1, "deeper");
    /* A scalar. */
    memset(big, 'a', YAML_SCALAR_MAX + 1);
    refuse(big, YAML_SCALAR_MAX + 1, 1, 1, "too long");
    AUTO(ynode) struct ynode *s = ynode_parse(big, YAML_SCALAR_MAX, &line, &column, NULL);
    assert_non_null(s);
    assert_int_equal(strlen(s->text), YAML_SCALAR_MAX);
    /* Nodes: the list and its items. */
    (void)buf_puts(&many, "[");
    for (int i = 0; i < YAML_NODES_MAX - 1; i++)
        (void)buf_puts(&many, "1, ");
    (void)buf_puts(&many, "]");
    AUTO(ynode) struct ynode *m = parse(buf_str(&many));
    assert_non_null(m);
    assert_int_equal(m->n, YAML_NODES_MAX - 1);
    many.len--;
    (void)buf_puts(&many, "1]");
    refuse(many.data, many.len, 1, 3 * (YAML_NODES_MAX - 1) + 2, "too many nodes");
    /* Keys of one map. */
    for (int i = 0; i < YAML_KEYS_MAX; i++)
        (void)buf_printf(&keys, "k%d: 1\n", i);
    AUTO(ynode) struct ynode *k = parse(buf_str(&keys));
    assert_non_null(k);
    assert_int_equal(k->n, YAML_KEYS_MAX);
    (void)buf_puts(&keys, "more: 1\n");
    refuse(keys.data, keys.len, YAML_KEYS_MAX + 1, 1, "too many keys");
    /* The text. */
    memset(big, ' ', YAML_TEXT_MAX + 1);
    refuse(big, YAML_TEXT_MAX + 1, 1, 1, "larger than");
    AUTO(ynode) struct ynode *t = ynode_parse(big, YAML_TEXT_MAX, &line, &column, NULL);
    assert_non_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_caps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
