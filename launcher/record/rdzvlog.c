/* rdzvlog.c: one line "generation G", then a line "RANK KEY HEX" for each put ("-" for no
 * bytes).  Keys have no blanks: they come out of a link line. */
#include "launcher/record/rdzvlog.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "launcher/rdzv/rdzv.h"

enum { RDZVLOG_BYTES_MAX = 256 << 20 };

struct rdzvlog {
    int fd;
};

struct rdzvlog *rdzvlog_new(const char *path, uint32_t generation, struct err *e)
{
    char head[32];
    int n = snprintf(head, sizeof(head), "generation %u\n", generation);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        (void)err_sys(e, "%s", path);
        return NULL;
    }
    if (io_write_full(fd, head, (size_t)n, e) < 0)
        return NULL;
    struct rdzvlog *l = xcalloc(1, sizeof(*l));
    l->fd = TAKE_FD(fd);
    return l;
}

void rdzvlog_free(struct rdzvlog *l)
{
    if (!l)
        return;
    (void)close(l->fd);
    free(l);
}

int rdzvlog_put(struct rdzvlog *l, uint32_t rank, const char *key, const void *val, size_t len,
                struct err *e)
{
    AUTO_BUF struct buf b = BUF(2 * RDZV_VALUE_MAX + RDZV_KEY_MAX + 64);
    (void)buf_printf(&b, "%u %s ", rank, key);
    (void)(len ? buf_hex(&b, val, len) : buf_puts(&b, "-"));
    (void)buf_puts(&b, "\n");
    if (b.full)
        return err_set(e, ERR_PROTOCOL, "%s: the value is too long", key);
    return io_append(l->fd, b.data, b.len, e);
}

static int replay_line(char *line, rdzvlog_put_fn *put, void *ctx, struct err *e)
{
    char *end, *key, *hex;
    unsigned long rank = strtoul(line, &end, 10);
    if (end == line || *end != ' ' || !(hex = strchr(key = end + 1, ' ')))
        return err_set(e, ERR_PROTOCOL, "not a put: %.60s", line);
    *hex++ = 0;
    AUTO_FREE uint8_t *val = xmalloc(RDZV_VALUE_MAX);
    long n = strcmp(hex, "-") == 0 ? 0 : hex_decode(hex, val, RDZV_VALUE_MAX);
    if (n < 0)
        return err_set(e, ERR_PROTOCOL, "not hex: %.60s", hex);
    return put(ctx, (uint32_t)rank, key, val, (size_t)n, e);
}

struct rdzvlog *rdzvlog_resume(const char *path, uint32_t generation, rdzvlog_put_fn *put,
                               void *ctx, struct err *e)
{
    AUTO_BUF struct buf b = BUF(RDZVLOG_BYTES_MAX);
    char head[32];
    size_t n = (size_t)snprintf(head, sizeof(head), "generation %u\n", generation);
    if (io_read_file(path, &b, e) < 0)
        return NULL;
    if (b.len < n || memcmp(b.data, head, n) != 0) {
        (void)err_set(e, ERR_PROTOCOL, "%s: not of generation %u", path, generation);
        return NULL;
    }
    char *p = b.data + n;
    for (char *nl; (nl = strchr(p, '\n')); p = nl + 1) {
        *nl = 0;
        if (replay_line(p, put, ctx, e) < 0) {
            (void)err_wrap(e, "%s", path);
            return NULL;
        }
    }
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, p - b.data) < 0) { /* a torn last line */
        (void)err_sys(e, "%s", path);
        return NULL;
    }
    struct rdzvlog *l = xcalloc(1, sizeof(*l));
    l->fd = TAKE_FD(fd);
    return l;
}
