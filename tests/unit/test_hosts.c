/* Host lists as Slurm and pdsh write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/own.h"
#include "common/spec/hosts.h"

static void expands(const char *list, const char *want)
{
    AUTO_BUF struct buf joined = BUF(1 << 20);
    struct err e = {0};
    char **names;
    size_t n;
    if (hosts_expand(list, &names, &n, &e) < 0)
        fail_msg("%s", e.text);
    for (size_t i = 0; i < n; i++)
        (void)buf_printf(&joined, "%s%s", i ? " " : "", names[i]);
    hosts_free(names, n);
    assert_string_equal(buf_str(&joined), want);
}

static void refused(const char *list, const char *why)
{
    struct err e = {0};
    char **names = NULL;
    size_t n = 77;
    if (hosts_expand(list, &names, &n, &e) == 0)
        fail_msg("%s was taken", list);
    assert_int_equal(e.kind, ERR_SPEC);
    if (!strstr(e.text, why))
        fail_msg("\"%s\" lacks \"%s\"", e.text, why);
    assert_null(names); /* untouched */
    assert_int_equal(n, 77);
}

static void test_expand(void **state)
{
    (void)state;
    expands("localhost", "localhost");
    expands("gpu[001-004]", "gpu001 gpu002 gpu003 gpu004");
    expands("gpu[1-3,7]", "gpu1 gpu2 gpu3 gpu7");
    expands("gpu[08-11]", "gpu08 gpu09 gpu10 gpu11");
    expands("gpu[8-11]", "gpu8 gpu9 gpu10 gpu11");
    expands("gpu[098-101]", "gpu098 gpu099 gpu100 gpu101");
    expands("n[1-2]r[1-2]", "n1r1 n1r2 n2r1 n2r2");
    expands("n[1-2]r[1,3]", "n1r1 n1r3 n2r1 n2r3"); /* as scontrol show hostnames */
    expands("a[1,2][1-2,7]", "a11 a12 a17 a21 a22 a27");
    expands("a[1][2][3]", "a123");
    expands("n[1-2]-eth.example.org", "n1-eth.example.org n2-eth.example.org");
    expands("[1-2]", "1 2");
    expands("a,b , c", "a b c");
    expands(" gpu[1-2],login", "gpu1 gpu2 login");
    expands("b[2],a,b[2]", "b2 a b2"); /* order and repeats stay */
    expands("x[5-5]", "x5");
    expands("fe80::1", "fe80::1");
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "character 1 of \"\": a host name is missing");
    refused(",", "character 1 ");
    refused("a,", "character 3 of \"a,\": a host name is missing");
    refused("a,,b", "character 3 ");
    refused("a b", "character 3 of \"a b\": expected a comma");
    refused("gpu[", "character 5 of \"gpu[\": expected a number");
    refused("gpu[]", "character 5 ");
    refused("gpu[1", "character 4 of \"gpu[1\": the [ is never closed");
    refused("gpu[1-", "character 7 ");
    refused("gpu[1-]", "character 7 ");
    refused("gpu[4-1]", "character 8 of \"gpu[4-1]\": expected a number not below 4");
    refused("gpu[1-2-3]", "character 8 of \"gpu[1-2-3]\": expected a comma or ]");
    refused("gpu[1,]", "character 7 ");
    refused("gpu[a-b]", "character 5 ");
    refused("gpu]", "character 4 of \"gpu]\": ']' is not part of a host name");
    refused("a/b", "character 2 ");
    refused("a;b", "character 2 ");
    refused("a\nb", "character 2 ");
    refused("-oProxyCommand=x", "does not begin with -");
    refused("a,-l", "character 3 of \"a,-l\": a host name does not begin with -");
    refused("../../etc", "does not begin with .");
    refused("gpu[99999999999999999999]", "expected a number");
}

static void test_caps(void **state)
{
    struct err e;
    char **names;
    size_t n;
    (void)state;
    AUTO_FREE char *most = xasprintf("n[1-%d]", HOSTS_MAX);
    assert_int_equal(hosts_expand(most, &names, &n, &e), 0);
    assert_int_equal(n, HOSTS_MAX);
    hosts_free(names, n);
    AUTO_FREE char *more = xasprintf("n[1-%d]", HOSTS_MAX + 1);
    refused(more, "more than");
    AUTO_FREE char *and_one = xasprintf("n[1-%d],x", HOSTS_MAX);
    refused(and_one, "more than");
    refused("n[0-999999999999]", "more than");
    refused("a[1-1000]b[1-1000]c[1-1000]", "more than");
    char name[HOSTS_NAME_MAX + 2];
    memset(name, 'a', sizeof name);
    name[HOSTS_NAME_MAX] = 0;
    expands(name, name);
    name[HOSTS_NAME_MAX] = 'a';
    name[HOSTS_NAME_MAX + 1] = 0;
    refused(name, "longer than 253 characters");
    memcpy(name, "[1-9]", 5);
    name[HOSTS_NAME_MAX - 2] = 0;
    assert_int_equal(hosts_expand(name, &names, &n, &e), 0);
    assert_int_equal(n, 9);
    hosts_free(names, n);
    /* A long list is not repeated whole in its error. */
    AUTO_BUF struct buf list = BUF(1 << 20);
    for (int i = 0; i < 5000; i++)
        (void)buf_printf(&list, "host%d,", i);
    refused(buf_str(&list), "a host name is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_caps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
