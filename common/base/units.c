#include "common/base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    int64_t ns;
};

/* Longest first where one is the beginning of another. */
static const struct unit units[] = {
    {"ns", 1},          {"us", 1000},         {"ms", 1000000},       {"s", 1000000000},
    {"m", 60000000000}, {"h", 3600000000000}, {"d", 86400000000000},
};

static const struct unit *find_unit(const char *p)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].name);
        if (strncmp(p, units[i].name, n) == 0 && !isalpha((unsigned char)p[n]))
            return &units[i];
    }
    return NULL;
}

int units_duration(const char *text, int64_t *ret_ns)
{
    double total = 0;
    const char *p = text;
    if (strcmp(text, "never") == 0) {
        *ret_ns = INT64_MAX;
        return 0;
    }
    if (strcmp(text, "0") == 0) {
        *ret_ns = 0;
        return 0;
    }
    if (!*p)
        return -1;
    while (*p) {
        char *end;
        if (!isdigit((unsigned char)*p))
            return -1;
        double v = strtod(p, &end);
        const struct unit *u = find_unit(end);
        if (!u || end - p > 20 || memchr(p, 'x', (size_t)(end - p)))
            return -1;
        total += v * (double)u->ns;
        p = end + strlen(u->name);
    }
    if (!(total < 9e18))
        return -1;
    *ret_ns = (int64_t)llround(total);
    return 0;
}

const char *units_duration_text(int64_t ns, char *buf)
{
    if (ns == INT64_MAX)
        return memcpy(buf, "never", sizeof "never");
    for (size_t i = sizeof units / sizeof *units; i-- > 0;)
        if (ns % units[i].ns == 0) {
            (void)snprintf(buf, 32, "%lld%s", (long long)(ns / units[i].ns),
                           ns ? units[i].name : "s");
            break;
        }
    return buf;
}
