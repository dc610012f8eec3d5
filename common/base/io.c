#include "common/base/io.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/own.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>

int io_write_full(int fd, const void *p, size_t n, struct err *e)
{
    const char *c = p;
    while (n) {
        ssize_t k = write(fd, c, n);
        if (k < 0) {
            if (errno == EINTR)
                continue;
            return err_sys(e, "write");
        }
        c += k;
        n -= (size_t)k;
    }
    return 0;
}

int io_append(int fd, const void *p, size_t n, struct err *e)
{
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return err_sys_kind(e, ERR_STORAGE, "lseek");
    const char *c = p;
    for (size_t done = 0; done < n;) {
        ssize_t k = write(fd, c + done, n - done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            int why = errno;
            (void)!ftruncate(fd, end);
            errno = why;
            return err_sys_kind(e, ERR_STORAGE, "write");
        }
        done += (size_t)k;
    }
    return 0;
}

int io_read_full(int fd, void *p, size_t n, struct err *e)
{
    char *c = p;
    while (n) {
        ssize_t k = read(fd, c, n);
        if (k < 0) {
            if (errno == EINTR)
                continue;
            return err_sys(e, "read");
        }
        if (k == 0)
            return err_set(e, ERR_SYSTEM, "read: early end, %zu bytes missing", n);
        c += k;
        n -= (size_t)k;
    }
    return 0;
}

int io_pread_full(int fd, void *p, size_t n, off_t off, struct err *e)
{
    char *c = p;
    while (n) {
        ssize_t k = pread(fd, c, n, off);
        if (k < 0) {
            if (errno == EINTR)
                continue;
            return err_sys_kind(e, ERR_STORAGE, "read");
        }
        if (k == 0)
            return err_set(e, ERR_STORAGE, "read: the file ends %zu bytes early", n);
        c += k;
        off += k;
        n -= (size_t)k;
    }
    return 0;
}

int io_read_file(const char *path, struct buf *b, struct err *e)
{
    struct stat st;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    if (fstat(fd, &st) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_STORAGE, "%s: not a regular file", path);
    for (;;) {
        char chunk[65536];
        ssize_t k = read(fd, chunk, sizeof chunk);
        if (k < 0) {
            if (errno == EINTR)
                continue;
            return err_sys_kind(e, ERR_STORAGE, "%s", path);
        }
        if (k == 0)
            return 0;
        if (buf_add(b, chunk, (size_t)k) < 0)
            return err_set(e, ERR_STORAGE, "%s: larger than the limit of %zu bytes", path,
                           b->cap);
    }
}

int io_fsync_dir(const char *path, struct err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    return 0;
}

static int write_new(const char *path, const void *p, size_t n, struct err *e)
{
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    if (io_write_full(fd, p, n, e) < 0) {
        if (e)
            e->kind = ERR_STORAGE;
        return err_wrap(e, "%s", path);
    }
    return fsync(fd) < 0 ? err_sys_kind(e, ERR_STORAGE, "%s", path) : 0;
}

int io_replace_file(const char *path, const void *p, size_t n, struct err *e)
{
    AUTO_FREE char *tmp = xasprintf("%s.tmp", path);
    AUTO_FREE char *dir = xstrdup(path);
    char *slash = strrchr(dir, '/');
    int r = write_new(tmp, p, n, e);
    if (r == 0 && rename(tmp, path) < 0)
        r = err_sys_kind(e, ERR_STORAGE, "%s", path);
    if (r < 0) {
        (void)unlink(tmp);
        return -1;
    }
    if (!slash)
        return io_fsync_dir(".", e);
    slash[slash == dir ? 1 : 0] = 0;
    return io_fsync_dir(dir, e);
}

int io_mkdirs(const char *path, mode_t mode, struct err *e)
{
    AUTO_FREE char *p = xstrdup(path);
    for (char *s = p + (*p != 0);; s++) {
        char c = *s;
        if (c != '/' && c != 0)
            continue;
        *s = 0;
        if (mkdir(p, mode) < 0 && errno != EEXIST)
            return err_sys_kind(e, ERR_STORAGE, "%s", p);
        *s = c;
        if (!c)
            break;
    }
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    return S_ISDIR(st.st_mode) ? 0 : err_set(e, ERR_STORAGE, "%s: not a folder", path);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *f)
{
    (void)st;
    (void)flag;
    (void)f;
    return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

int io_remove_tree(const char *path, struct err *e)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    return 0;
}
