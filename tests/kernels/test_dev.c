/* test_dev.c: the host as a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/err.h"
#include "kernels/dev.h"

static void memory(void **state)
{
    struct dev *d = *state;
    struct err e = {0};
    struct dev_mem mem;
    assert_int_equal(d->mem_info(d, &mem, &e), 0);
    assert_true(mem.total_bytes >= mem.free_bytes && mem.free_bytes > 0);
    static const size_t sizes[] = {0, 1, 255, 257, 1 << 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *p = NULL;
        assert_int_equal(d->alloc(d, sizes[i], (void **)&p, &e), 0);
        assert_int_equal((uintptr_t)p % 256, 0);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(p[j], 0);
        memset(p, 1, sizes[i]);
        d->free(d, p);
        assert_int_equal(d->host_alloc(d, sizes[i], (void **)&p, &e), 0);
        d->host_free(d, p);
    }
    d->free(d, NULL);
}

static void too_much_is_an_error(void **state)
{
    struct dev *d = *state;
    struct err e = {0};
    void *p = &e;
    assert_int_equal(d->alloc(d, (size_t)1 << 60, &p, &e), -1);
    assert_int_equal(e.kind, ERR_MEMORY);
    assert_non_null(strstr(e.text, "1152921504606846976"));
    assert_int_equal(d->alloc(d, SIZE_MAX, &p, &e), -1);
    assert_ptr_equal(p, &e); /* untouched */
}

static void streams_run_at_once(void **state)
{
    struct dev *d = *state;
    struct err e = {0};
    struct dev_stream *s = d->stream_new(d, &e), *s2 = d->stream_new(d, &e);
    struct dev_event *v = d->event_new(d, &e);
    int a[4] = {1, 2, 3, 4}, b[4] = {0};
    assert_true(s && s2 && v);
    assert_int_equal(d->copy_async(d, b, a, sizeof(a), s, &e), 0);
    assert_int_equal(d->event_record(d, v, s, &e), 0);
    assert_int_equal(d->stream_wait(d, s2, v, &e), 0);
    assert_true(d->event_done(d, v));
    assert_int_equal(d->event_wait(d, v, 0, &e), 0); /* done: a deadline in the past is met */
    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(d->zero_async(d, b, sizeof(b) - sizeof(b[0]), s, &e), 0);
    assert_true(b[0] == 0 && b[2] == 0 && b[3] == 4);
    assert_int_equal(d->copy_async(d, NULL, NULL, 0, s, &e), 0);
    d->event_free(d, v);
    d->stream_free(d, s);
    d->stream_free(d, s2);
}

static void there_are_no_graphs(void **state)
{
    struct dev *d = *state;
    struct err e = {0};
    struct dev_stream *s = d->stream_new(d, &e);
    assert_false(d->graphs);
    assert_int_equal(d->graph_begin(d, s, &e), 0);
    assert_null(d->graph_end(d, s, &e));
    assert_int_equal(e.kind, ERR_NONE);
    assert_int_equal(d->graph_launch(d, NULL, s, &e), -1);
    d->graph_free(d, NULL);
    d->stream_free(d, s);
}

static int setup(void **state)
{
    struct dev *d = dev_cpu_open(NULL);
    *state = d;
    return d && d->host_memory && strcmp(d->name, "cpu") == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    dev_close(*state);
    dev_close(NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory),
        cmocka_unit_test(too_much_is_an_error),
        cmocka_unit_test(streams_run_at_once),
        cmocka_unit_test(there_are_no_graphs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
