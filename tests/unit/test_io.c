/* Whole reads and writes, files that are old or new, and trees that are removed without a step
 * outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"

struct place {
    char dir[64];
};

static int setup(void **state)
{
    struct place *p = xcalloc(1, sizeof *p);
    memcpy(p->dir, "/tmp/test_io.XXXXXX", 20);
    assert_non_null(mkdtemp(p->dir));
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    struct err e;
    assert_int_equal(io_remove_tree(p->dir, &e), 0);
    assert_int_equal(access(p->dir, F_OK), -1);
    free(p);
    return 0;
}

static char *in(void **state, const char *name)
{
    const struct place *p = *state;
    return xasprintf("%s/%s", p->dir, name);
}

static void holds(const char *path, const char *want)
{
    AUTO_BUF struct buf b = BUF(1 << 20);
    struct err e = {0};
    if (io_read_file(path, &b, &e) < 0)
        fail_msg("%s", e.text);
    assert_string_equal(buf_str(&b), want);
}

static void test_replace(void **state)
{
    struct err e = {0};
    AUTO_FREE char *file = in(state, "file"), *tmp = in(state, "file.tmp"),
                   *none = in(state, "none/file"), *folder = in(state, "folder"),
                   *folder_tmp = in(state, "folder.tmp");
    assert_int_equal(io_replace_file(file, "old", 3, &e), 0);
    holds(file, "old");
    assert_int_equal(io_replace_file(file, "newer", 5, &e), 0);
    holds(file, "newer");
    assert_int_equal(io_replace_file(file, "", 0, &e), 0);
    holds(file, "");
    assert_int_equal(access(tmp, F_OK), -1); /* nothing is left beside it */
    assert_int_equal(io_replace_file(none, "x", 1, &e), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_non_null(strstr(e.text, "none/file"));
    /* A folder in the way stays, and so does nothing else. */
    assert_int_equal(io_mkdirs(folder, 0755, &e), 0);
    assert_int_equal(io_replace_file(folder, "x", 1, &e), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_int_equal(access(folder_tmp, F_OK), -1);
    assert_int_equal(chdir(((struct place *)*state)->dir), 0);
    assert_int_equal(io_replace_file("bare", "x", 1, &e), 0); /* without a folder in its name */
    holds("bare", "x");
    assert_int_equal(chdir("/"), 0);
}

/* A reader sees the old or the new text at every moment. */
static void test_never_torn(void **state)
{
    enum { SIZE = 20000, ROUNDS = 50 };
    struct err e;
    AUTO_FREE char *file = in(state, "file"), *text = xcalloc(1, SIZE);
    memset(text, 'a', SIZE);
    assert_int_equal(io_replace_file(file, text, SIZE, &e), 0);
    pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        for (int i = 0; i < ROUNDS; i++) {
            memset(text, 'a' + i % 26, SIZE);
            if (io_replace_file(file, text, SIZE, &e) < 0)
                _exit(1);
        }
        _exit(0);
    }
    int status = 0;
    for (size_t reads = 0; waitpid(writer, &status, WNOHANG) == 0; reads++) {
        AUTO_BUF struct buf b = BUF(SIZE);
        assert_int_equal(io_read_file(file, &b, &e), 0);
        assert_int_equal(b.len, SIZE);
        assert_int_equal(strspn(b.data, (char[]){b.data[0], 0}), SIZE);
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_read(void **state)
{
    struct err e = {0};
    AUTO_FREE char *file = in(state, "file"), *fifo = in(state, "fifo");
    AUTO_BUF struct buf fits = BUF(5), small = BUF(4), twice = BUF(64);
    assert_int_equal(io_replace_file(file, "12345", 5, &e), 0);
    assert_int_equal(io_read_file(file, &fits, &e), 0);
    assert_string_equal(buf_str(&fits), "12345");
    assert_int_equal(io_read_file(file, &small, &e), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_non_null(strstr(e.text, "limit of 4 bytes"));
    assert_int_equal(buf_puts(&twice, ">"), 0);
    assert_int_equal(io_read_file(file, &twice, &e), 0); /* appends */
    assert_string_equal(buf_str(&twice), ">12345");
    /* None of these blocks, and each names what it was. */
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *const others[] = {((struct place *)*state)->dir, "/dev/zero", fifo, "/nowhere"};
    for (size_t i = 0; i < 4; i++) {
        AUTO_BUF struct buf b = BUF(64);
        assert_int_equal(io_read_file(others[i], &b, &e), -1);
        assert_int_equal(e.kind, ERR_STORAGE);
        assert_non_null(strstr(e.text, others[i]));
        assert_int_equal(b.len, 0);
    }
}

static void test_full(void **state)
{
    int fds[2];
    char got[8];
    struct err e = {0};
    AUTO_FREE char *file = in(state, "file");
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(io_write_full(fds[1], "abcdef", 6, &e), 0);
    assert_int_equal(io_read_full(fds[0], got, 4, &e), 0);
    assert_memory_equal(got, "abcd", 4);
    assert_int_equal(close(fds[1]), 0);
    assert_int_equal(io_read_full(fds[0], got, 4, &e), -1); /* two of four, then the end */
    assert_non_null(strstr(e.text, "2 bytes missing"));
    assert_int_equal(io_read_full(fds[0], got, 0, &e), 0);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(io_write_full(-1, "x", 1, &e), -1);
    assert_int_equal(e.kind, ERR_SYSTEM);
    assert_int_equal(io_replace_file(file, "0123456789", 10, &e), 0);
    AUTO_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
    assert_int_equal(io_pread_full(fd, got, 4, 6, &e), 0);
    assert_memory_equal(got, "6789", 4);
    assert_int_equal(io_pread_full(fd, got, 5, 6, &e), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_non_null(strstr(e.text, "1 bytes early"));
}

static void test_mkdirs(void **state)
{
    struct err e = {0};
    struct stat st;
    AUTO_FREE char *deep = in(state, "a/b//c/"), *c = in(state, "a/b/c"),
                   *file = in(state, "f"), *below = in(state, "f/g");
    assert_int_equal(io_mkdirs(deep, 0700, &e), 0);
    assert_int_equal(stat(c, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(io_mkdirs(deep, 0755, &e), 0); /* there already: left as it is */
    assert_int_equal(stat(c, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(io_replace_file(file, "", 0, &e), 0);
    assert_int_equal(io_mkdirs("", 0700, &e), -1);
    assert_int_equal(io_mkdirs(below, 0700, &e), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_int_equal(io_mkdirs(file, 0700, &e), -1); /* a file is no folder */
    assert_int_equal(e.kind, ERR_STORAGE);
}

/* Links are removed, what they lead to is not. */
static void test_remove_tree(void **state)
{
    struct err e = {0};
    AUTO_FREE char *tree = in(state, "tree"), *sub = in(state, "tree/x/y"),
                   *file = in(state, "tree/x/f"), *outside = in(state, "outside"),
                   *kept = in(state, "outside/kept"), *link = in(state, "tree/x/link"),
                   *dangling = in(state, "tree/dangling"), *top = in(state, "top");
    assert_int_equal(io_mkdirs(sub, 0755, &e), 0);
    assert_int_equal(io_mkdirs(outside, 0755, &e), 0);
    assert_int_equal(io_replace_file(file, "x", 1, &e), 0);
    assert_int_equal(io_replace_file(kept, "kept", 4, &e), 0);
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(symlink("/nowhere", dangling), 0);
    assert_int_equal(symlink(outside, top), 0);
    assert_int_equal(io_remove_tree(tree, &e), 0);
    assert_int_equal(access(tree, F_OK), -1);
    holds(kept, "kept");
    assert_int_equal(io_remove_tree(top, &e), 0); /* the link itself */
    assert_int_equal(readlink(top, (char[8]){0}, 8), -1);
    holds(kept, "kept");
    assert_int_equal(io_remove_tree(tree, &e), 0); /* missing is fine */
    assert_int_equal(io_remove_tree(kept, &e), 0); /* a file too */
    assert_int_equal(access(kept, F_OK), -1);
}

/* A disk that is full in the middle of a line: the line before it stays the last. */
static void test_append(void **state)
{
    struct place *p = *state;
    struct err e;
    AUTO_BUF struct buf text = BUF(64);
    AUTO_FREE char *path = xasprintf("%s/lines", p->dir);
    struct rlimit was, is;
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(io_append(fd, "one\n", 4, &e), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    is = (struct rlimit){.rlim_cur = 6, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &is), 0);
    assert_int_equal(io_append(fd, "two\n", 4, &e), -1);
    assert_int_equal(e.kind, ERR_STORAGE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(io_append(fd, "three\n", 6, &e), 0);
    assert_int_equal(io_read_file(path, &text, &e), 0);
    assert_string_equal(buf_str(&text), "one\nthree\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_replace), TEST(test_never_torn),  TEST(test_read),   TEST(test_full),
        TEST(test_mkdirs),  TEST(test_remove_tree), TEST(test_append),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
