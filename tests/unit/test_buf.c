/* Buffers with caps, and hex. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/own.h"

static void test_grow(void **state)
{
    AUTO_BUF struct buf b = BUF(1 << 20);
    (void)state;
    assert_string_equal(buf_str(&b), "");
    for (int i = 0; i < 10000; i++)
        assert_int_equal(buf_printf(&b, "%d,", i % 10), 0);
    assert_int_equal(b.len, 20000);
    assert_int_equal(strlen(b.data), 20000);
    assert_memory_equal(b.data + 19990, "5,6,7,8,9,", 10);
    buf_consume(&b, 19998);
    assert_string_equal(buf_str(&b), "9,");
    buf_consume(&b, 0);
    buf_consume(&b, 2);
    assert_string_equal(buf_str(&b), "");
    assert_int_equal(buf_add(&b, "a\0b", 3), 0);
    assert_int_equal(b.len, 3);
    assert_int_equal(b.data[3], 0);
    buf_clear(&b);
    assert_string_equal(buf_str(&b), "");
}

/* What does not fit fails as a whole, is remembered, and hurts nothing. */
static void test_cap(void **state)
{
    AUTO_BUF struct buf b = BUF(8);
    (void)state;
    assert_int_equal(buf_add(&b, "", 0), 0);
    assert_int_equal(buf_puts(&b, "12345678"), 0);
    assert_false(b.full);
    assert_int_equal(buf_puts(&b, "9"), -1);
    assert_true(b.full);
    assert_string_equal(buf_str(&b), "12345678");
    assert_int_equal(buf_add(&b, "", 0), 0);
    buf_consume(&b, 4);
    assert_int_equal(buf_printf(&b, "%s", "abcde"), -1);
    assert_int_equal(buf_printf(&b, "%s", "abcd"), 0);
    assert_string_equal(buf_str(&b), "5678abcd");
    assert_true(b.full); /* until cleared */
    buf_clear(&b);
    assert_false(b.full);
    assert_int_equal(buf_add(&b, "x", SIZE_MAX), -1);
    assert_int_equal(buf_hex(&b, "12345", 5), -1);
    assert_int_equal(buf_hex(&b, "x", SIZE_MAX / 2 + 1), -1);
    assert_string_equal(buf_str(&b), "");
    AUTO_BUF struct buf none = BUF(0);
    assert_int_equal(buf_puts(&none, ""), 0);
    assert_int_equal(buf_puts(&none, "x"), -1);
}

static void test_take(void **state)
{
    AUTO_BUF struct buf b = BUF(8);
    (void)state;
    AUTO_FREE char *nothing = buf_take(&b);
    assert_string_equal(nothing, "");
    assert_int_equal(buf_puts(&b, "abc"), 0);
    AUTO_FREE char *abc = buf_take(&b);
    assert_string_equal(abc, "abc");
    assert_string_equal(buf_str(&b), "");
    assert_int_equal(buf_puts(&b, "12345678"), 0); /* the cap stays */
    assert_int_equal(buf_puts(&b, "9"), -1);
}

static void test_hex(void **state)
{
    AUTO_BUF struct buf b = BUF(1 << 10);
    unsigned char bytes[256], back[256];
    (void)state;
    for (int i = 0; i < 256; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(buf_hex(&b, bytes, sizeof bytes), 0);
    assert_int_equal(b.len, 512);
    assert_memory_equal(b.data, "000102", 6);
    assert_string_equal(b.data + 506, "fdfeff");
    assert_int_equal(hex_decode(buf_str(&b), back, sizeof back), 256);
    assert_memory_equal(bytes, back, sizeof back);
    assert_int_equal(hex_decode("", back, 0), 0);
    assert_int_equal(hex_decode("aB", back, 1), 1);
    assert_int_equal(back[0], 0xab);
    assert_int_equal(hex_decode("a", back, 8), -1);
    assert_int_equal(hex_decode("0g", back, 8), -1);
    assert_int_equal(hex_decode("0x10", back, 8), -1);
    assert_int_equal(hex_decode(" 10", back, 8), -1);
    assert_int_equal(hex_decode("\xff\xff", back, 8), -1);
    assert_int_equal(hex_decode("0000", back, 1), -1); /* too long for `cap` */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_cap),
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_hex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
