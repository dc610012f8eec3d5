#include "common/link/linkline.h"

#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/own.h"

/* Bytes of a peer are shown in errors only as far as they are names; the rest is not echoed. */

static size_t name_length(const char *s)
{
    return strspn(s, "abcdefghijklmnopqrstuvwxyz_");
}

static size_t value_length(const char *s)
{
    size_t n = 0;
    while (s[n] > ' ' && s[n] < 0x7f)
        n++;
    return n;
}

int link_line_parse(char *line, struct link_line *ret, struct err *e)
{
    struct link_line l = {.verb = line};
    if (strnlen(line, LINK_LINE_MAX) == LINK_LINE_MAX)
        return err_set(e, ERR_PROTOCOL, "link: a line is longer than %d bytes", LINK_LINE_MAX);
    char *p = line + name_length(line);
    if (p == line)
        return err_set(e, ERR_PROTOCOL, "link: a line without a verb");
    while (*p == ' ') {
        *p++ = 0;
        size_t n = name_length(p);
        if (!n || p[n] != '=')
            return err_set(e, ERR_PROTOCOL, "link: %s: no key=value behind pair %zu", l.verb,
                           l.n);
        if (l.n == LINK_PAIRS_MAX)
            return err_set(e, ERR_PROTOCOL, "link: %s: more than %d pairs", l.verb,
                           LINK_PAIRS_MAX);
        p[n] = 0;
        if (link_line_get(&l, p))
            return err_set(e, ERR_PROTOCOL, "link: %s: %s stands twice", l.verb, p);
        l.pairs[l.n].key = p;
        l.pairs[l.n].value = p + n + 1;
        l.n++;
        p += n + 1;
        p += value_length(p);
    }
    if (*p) {
        unsigned at = (unsigned char)*p;
        *p = 0; /* so that the verb ends */
        return err_set(e, ERR_PROTOCOL, "link: %.32s: byte 0x%02x where none such may be",
                       l.verb, at);
    }
    *ret = l;
    return 0;
}

const char *link_line_get(const struct link_line *l, const char *key)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->pairs[i].key, key) == 0)
            return l->pairs[i].value;
    return NULL;
}

static const char *need(const struct link_line *l, const char *key, struct err *e)
{
    const char *v = link_line_get(l, key);
    if (!v)
        err_set(e, ERR_PROTOCOL, "link: %s: no %s", l->verb, key);
    return v;
}

int link_line_u64(const struct link_line *l, const char *key, uint64_t *ret, struct err *e)
{
    const char *v = need(l, key, e);
    if (!v)
        return -1;
    uint64_t x = 0;
    for (const char *p = v; *p; p++) {
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(x, 10, &x) ||
            __builtin_add_overflow(x, (uint64_t)(*p - '0'), &x))
            return err_set(e, ERR_PROTOCOL, "link: %s: %s is no number of 64 bits", l->verb,
                           key);
    }
    if (!*v)
        return err_set(e, ERR_PROTOCOL, "link: %s: %s is empty", l->verb, key);
    *ret = x;
    return 0;
}

int link_line_hex(const struct link_line *l, const char *key, struct buf *out, struct err *e)
{
    const char *v = need(l, key, e);
    if (!v)
        return -1;
    size_t cap = strlen(v) / 2;
    AUTO_FREE char *bytes = xmalloc(cap + 1);
    long n = hex_decode(v, bytes, cap);
    if (n < 0)
        return err_set(e, ERR_PROTOCOL, "link: %s: %s is not hex", l->verb, key);
    if (buf_add(out, bytes, (size_t)n) < 0)
        return err_set(e, ERR_PROTOCOL, "link: %s: %s is longer than %zu bytes", l->verb, key,
                       out->cap);
    return 0;
}
