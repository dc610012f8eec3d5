#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *log_who = "dslaunch";
static enum log_level log_max = LOG_INFO;

void log_init(const char *who, enum log_level level)
{
    log_who = who;
    log_max = level;
}

void log_at(enum log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    char line[4096];
    struct timespec ts;
    struct tm tm;
    if (level > log_max)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)localtime_r(&ts.tv_sec, &tm);
    int n = snprintf(line, sizeof line, "%02d:%02d:%02d.%03ld %s: %s", tm.tm_hour, tm.tm_min,
                     tm.tm_sec, ts.tv_nsec / 1000000, log_who, names[level]);
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    size_t len = strnlen(line, sizeof line - 2);
    (void)m;
    line[len++] = '\n';
    (void)!write(2, line, len);
}
