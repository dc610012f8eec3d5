#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[ERR_KIND_COUNT] = {
    [ERR_NONE] = "none",     [ERR_USAGE] = "usage",     [ERR_SPEC] = "spec",
    [ERR_SYSTEM] = "system", [ERR_NETWORK] = "network", [ERR_PROTOCOL] = "protocol",
    [ERR_RANK] = "rank",     [ERR_NUMERIC] = "numeric", [ERR_STORAGE] = "storage",
    [ERR_MEMORY] = "memory", [ERR_STOPPED] = "stopped",
};

const char *err_kind_name(enum err_kind kind)
{
    return kind < ERR_KIND_COUNT ? kind_names[kind] : "unknown";
}

int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
{
    if (!e)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    e->kind = kind;
    (void)vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    return -1;
}

static int set_errno(struct err *e, enum err_kind kind, const char *fmt, va_list ap)
{
    int saved = errno;
    if (!e)
        return -1;
    e->kind = kind;
    int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
    if (n >= 0 && (size_t)n < sizeof e->text)
        (void)snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s", strerror(saved));
    errno = saved;
    return -1;
}

int err_sys(struct err *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int r = set_errno(e, ERR_SYSTEM, fmt, ap);
    va_end(ap);
    return r;
}

int err_sys_kind(struct err *e, enum err_kind kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int r = set_errno(e, kind, fmt, ap);
    va_end(ap);
    return r;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e)
        return -1;
    char old[ERR_TEXT_MAX];
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->text)
        (void)snprintf(e->text + n, sizeof e->text - (size_t)n, ": %.*s",
                       (int)(sizeof e->text - (size_t)n), old);
    return -1;
}

int err_worker_exit(enum err_kind kind)
{
    switch (kind) {
    case ERR_NONE:
    case ERR_STOPPED:
        return WORKER_EXIT_OK;
    case ERR_USAGE:
    case ERR_SPEC:
        return WORKER_EXIT_SPEC;
    case ERR_NETWORK:
    case ERR_PROTOCOL:
    case ERR_RANK:
        return WORKER_EXIT_PEER_LOST;
    case ERR_NUMERIC:
        return WORKER_EXIT_NUMERIC;
    case ERR_STORAGE:
        return WORKER_EXIT_STORAGE;
    case ERR_MEMORY:
        return WORKER_EXIT_MEMORY;
    case ERR_SYSTEM:
    case ERR_KIND_COUNT:
        break;
    }
    return 1;
}
