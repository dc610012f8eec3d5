#include "launcher/record/joblock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"

enum { LOCK_BYTES_MAX = 4096 };

static struct flock whole_file(short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET};
}

void joblock_host(char *ret_host, size_t host_size, char *ret_boot_id, size_t id_size)
{
    if (gethostname(ret_host, host_size) < 0)
        (void)snprintf(ret_host, host_size, "localhost");
    ret_host[host_size - 1] = 0;
    ret_boot_id[0] = 0;
    AUTO_CLOSE int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret_boot_id, id_size - 1);
    ret_boot_id[n < 0 ? 0 : n] = 0;
    ret_boot_id[strcspn(ret_boot_id, "\n")] = 0;
}

static void copy(char *dst, size_t size, json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    (void)snprintf(dst, size, "%s", s ? s : "");
}

static void read_holder(int fd, struct joblock_holder *h)
{
    char text[LOCK_BYTES_MAX];
    *h = (struct joblock_holder){0};
    ssize_t n = pread(fd, text, sizeof(text), 0);
    json_t *o = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
    copy(h->host, sizeof(h->host), o, "host");
    copy(h->boot_id, sizeof(h->boot_id), o, "boot_id");
    copy(h->control, sizeof(h->control), o, "control");
    h->pid = (int)json_integer_value(json_object_get(o, "pid"));
    json_decref(o);
}

/* The lock is free, yet the file names a holder: dead if it ran here. */
static bool dead(const struct joblock_holder *h)
{
    char host[256], boot_id[64];
    joblock_host(host, sizeof(host), boot_id, sizeof(boot_id));
    return h->pid == 0 || strcmp(h->host, host) == 0;
}

static enum joblock_state elsewhere(const char *path, const struct joblock_holder *h,
                                    struct err *e)
{
    (void)err_set(e, ERR_USAGE,
                  "the job's controller ran on %s (pid %d) and did not end there; use dslaunch "
                  "on that host, or, if it is gone for good, remove %s",
                  h->host, h->pid, path);
    return JOBLOCK_ERROR;
}

enum joblock_state joblock_take(const char *path, int *ret_fd,
                                struct joblock_holder *ret_holder, struct err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        (void)err_sys_kind(e, ERR_STORAGE, "%s", path);
        return JOBLOCK_ERROR;
    }
    struct flock l = whole_file(F_WRLCK);
    bool taken = fcntl(fd, F_OFD_SETLK, &l) == 0;
    if (!taken && errno != EAGAIN && errno != EACCES) {
        (void)err_sys_kind(e, ERR_STORAGE, "%s: lock", path);
        return JOBLOCK_ERROR;
    }
    read_holder(fd, ret_holder);
    if (!taken)
        return JOBLOCK_HELD;
    if (!dead(ret_holder))
        return elsewhere(path, ret_holder, e);
    if (ftruncate(fd, 0) < 0) {
        (void)err_sys_kind(e, ERR_STORAGE, "%s", path);
        return JOBLOCK_ERROR;
    }
    *ret_fd = TAKE_FD(fd);
    return JOBLOCK_FREE;
}

enum joblock_state joblock_look(const char *path, struct joblock_holder *ret_holder,
                                struct err *e)
{
    *ret_holder = (struct joblock_holder){0};
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return JOBLOCK_FREE;
    struct flock l = whole_file(F_WRLCK);
    if (fd < 0 || fcntl(fd, F_OFD_GETLK, &l) < 0) {
        (void)err_sys_kind(e, ERR_STORAGE, "%s", path);
        return JOBLOCK_ERROR;
    }
    read_holder(fd, ret_holder);
    if (l.l_type != F_UNLCK)
        return JOBLOCK_HELD;
    return dead(ret_holder) ? JOBLOCK_FREE : elsewhere(path, ret_holder, e);
}

int joblock_say(int fd, const char *control, struct err *e)
{
    char host[256], boot_id[64];
    joblock_host(host, sizeof(host), boot_id, sizeof(boot_id));
    json_t *o = json_pack("{s:s, s:i, s:s, s:s}", "host", host, "pid", (int)getpid(), "boot_id",
                          boot_id, "control", control);
    AUTO_FREE char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    if (!text)
        return err_set(e, ERR_STORAGE, "lock: a name is not UTF-8");
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return err_sys_kind(e, ERR_STORAGE, "lock");
    return io_write_full(fd, text, strlen(text), e);
}

void joblock_clear(int fd)
{
    (void)!ftruncate(fd, 0);
}
