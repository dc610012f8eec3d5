#include "launcher/record/ranklog.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"

char *ranklog_path(const char *dir, uint32_t generation, uint32_t rank)
{
    return xasprintf("%s/g%u/%u.log", dir, generation, rank);
}

static int open_for_write(const char *dir, uint32_t generation, const char *path, struct err *e)
{
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(path, flags, 0600);
    if (fd < 0 && errno == ENOENT) {
        AUTO_FREE char *folder = xasprintf("%s/g%u", dir, generation);
        if (io_mkdirs(folder, 0700, e) < 0)
            return -1;
        fd = open(path, flags, 0600);
    }
    return fd < 0 ? err_sys_kind(e, ERR_STORAGE, "%s", path) : fd;
}

int ranklog_write(const char *dir, uint32_t generation, uint32_t rank, uint64_t offset,
                  const void *data, size_t n, uint64_t *ret_end, size_t *ret_new, struct err *e)
{
    AUTO_FREE char *path = ranklog_path(dir, generation, rank);
    AUTO_CLOSE int fd = open_for_write(dir, generation, path, e);
    struct stat st;
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    uint64_t have = (uint64_t)st.st_size;
    if (offset > have)
        return err_set(e, ERR_PROTOCOL, "%s: bytes %llu to %llu were never sent", path,
                       (unsigned long long)have, (unsigned long long)offset);
    size_t skip = have - offset < n ? (size_t)(have - offset) : n;
    const char *p = (const char *)data + skip;
    size_t left = n - skip;
    if (left && io_append(fd, p, left, e) < 0)
        return err_wrap(e, "%s", path);
    *ret_end = have + left;
    *ret_new = left;
    return 0;
}

uint64_t ranklog_length(const char *dir, uint32_t generation, uint32_t rank)
{
    AUTO_FREE char *path = ranklog_path(dir, generation, rank);
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* Start of the last `lines` lines of the text. */
static size_t tail_start(const char *p, size_t n, unsigned lines)
{
    size_t at = n;
    if (at && p[at - 1] == '\n')
        at--;
    for (; at > 0; at--)
        if (p[at - 1] == '\n' && --lines == 0)
            return at;
    return 0;
}

int ranklog_tail(const char *dir, uint32_t generation, uint32_t rank, unsigned lines,
                 struct buf *out, struct err *e)
{
    AUTO_FREE char *path = ranklog_path(dir, generation, rank);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    if (lines == 0)
        return 0;
    size_t n = st.st_size < RANKLOG_TAIL_BYTES ? (size_t)st.st_size : RANKLOG_TAIL_BYTES;
    AUTO_FREE char *p = xmalloc(n + 1);
    if (io_pread_full(fd, p, n, st.st_size - (off_t)n, e) < 0)
        return err_wrap(e, "%s", path);
    size_t from = tail_start(p, n, lines);
    if (from == 0 && n == RANKLOG_TAIL_BYTES) { /* began inside a line */
        const char *nl = memchr(p, '\n', n);
        from = nl ? (size_t)(nl - p) + 1 : 0;
    }
    if (buf_add(out, p + from, n - from) < 0)
        return err_set(e, ERR_STORAGE, "%s: the last lines are too long", path);
    return 0;
}
