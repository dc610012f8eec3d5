#include "common/base/units.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit times[] = {
    {"d", 86400000000000}, {"h", 3600000000000}, {"m", 60000000000}, {"s", 1000000000},
    {"ms", 1000000},       {"us", 1000},         {"ns", 1},          {0},
};

static const struct unit sizes[] = {
    {"TiB", 1LL << 40},
    {"TB", 1000000000000},
    {"GiB", 1 << 30},
    {"GB", 1000000000},
    {"MiB", 1 << 20},
    {"MB", 1000000},
    {"KiB", 1 << 10},
    {"kB", 1000},
    {"B", 1},
    {"", 1},
    {0},
};

/* The unit that the letters at *p spell, among `units`. */
static const struct unit *find_unit(const char *p, const struct unit *units)
{
    size_t n = 0;
    while (isalpha((unsigned char)p[n]))
        n++;
    for (; units->name; units++)
        if (strlen(units->name) == n && memcmp(p, units->name, n) == 0)
            return units;
    return NULL;
}

/* "12.5ms" at *p is added to *sum; returns the unit, NULL if it is none of `units` or not
 * exact.
 */
static const struct unit *add_term(const char **p, const struct unit *units, int64_t *sum)
{
    int64_t mantissa = 0, scale = 1, value;
    const char *s = *p;
    if (!isdigit((unsigned char)*s))
        return NULL;
    for (bool point = false; isdigit((unsigned char)*s) || (*s == '.' && !point); s++) {
        if (*s == '.') {
            point = true;
            if (!isdigit((unsigned char)s[1]))
                return NULL;
        } else if (__builtin_mul_overflow(mantissa, 10, &mantissa) ||
                   __builtin_add_overflow(mantissa, *s - '0', &mantissa) ||
                   (point && __builtin_mul_overflow(scale, 10, &scale))) {
            return NULL;
        }
    }
    const struct unit *u = find_unit(s, units);
    if (!u)
        return NULL;
    __extension__ __int128 product = (__int128)mantissa * u->factor;
    if (product % scale || product / scale > INT64_MAX)
        return NULL;
    value = (int64_t)(product / scale);
    if (__builtin_add_overflow(*sum, value, sum))
        return NULL;
    *p = s + strlen(u->name);
    return u;
}

int units_duration(const char *text, int64_t *ret_ns)
{
    int64_t sum = 0;
    const struct unit *units = times;
    if (strcmp(text, "never") == 0) {
        *ret_ns = INT64_MAX;
        return 0;
    }
    if (strcmp(text, "0") == 0) {
        *ret_ns = 0;
        return 0;
    }
    do {
        const struct unit *u = add_term(&text, units, &sum);
        if (!u)
            return -1;
        units = u + 1; /* smaller ones only */
    } while (*text);
    if (sum == INT64_MAX) /* never */
        return -1;
    *ret_ns = sum;
    return 0;
}

const char *units_duration_text(int64_t ns, char *buf)
{
    const struct unit *u = times;
    if (ns == INT64_MAX)
        return memcpy(buf, "never", sizeof "never");
    if (!ns)
        return memcpy(buf, "0s", sizeof "0s");
    while (ns % u->factor)
        u++;
    (void)snprintf(buf, 32, "%lld%s", (long long)(ns / u->factor), u->name);
    return buf;
}

int units_size(const char *text, int64_t *ret_bytes)
{
    int64_t sum = 0;
    if (!add_term(&text, sizes, &sum) || *text)
        return -1;
    *ret_bytes = sum;
    return 0;
}
