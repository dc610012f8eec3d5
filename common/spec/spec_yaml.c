/* The resolved spec as text, and what differs between two. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/units.h"
#include "common/spec/spec.h"
#include "common/spec/spec_keys.h"

/* The character at *p, which is UTF-8 because libyaml read it; *p moves behind it. */
static uint32_t next_char(const char **p)
{
    const unsigned char *u = (const unsigned char *)*p;
    uint32_t c = u[0] < 0x80   ? u[0]
                 : u[0] < 0xe0 ? u[0] & 0x1f
                 : u[0] < 0xf0 ? u[0] & 15
                               : u[0] & 7;
    size_t n = 1;
    for (; (u[n] & 0xc0) == 0x80; n++)
        c = c << 6 | (u[n] & 0x3f);
    *p += n;
    return c;
}

/* In quotes, with escapes for what YAML would not read back: controls, line breaks of Unicode,
 * byte order marks. */
static void put_string(struct buf *out, const char *s)
{
    (void)buf_puts(out, "\"");
    while (*s) {
        const char *at = s;
        uint32_t c = next_char(&s);
        if (c == '"' || c == '\\')
            (void)buf_printf(out, "\\%c", (int)c);
        else if (c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0x2028 || c == 0x2029 ||
                 c == 0xfeff || c == 0xfffe || c == 0xffff)
            (void)buf_printf(out, "\\u%04x", c);
        else
            (void)buf_add(out, at, (size_t)(s - at));
    }
    (void)buf_puts(out, "\"");
}

/* The shortest of the texts that read back the same. */
static void put_real(struct buf *out, double v)
{
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    (void)buf_puts(out, text);
}

static void put_word(struct buf *out, const char *words, unsigned i)
{
    for (; i; i--)
        words += strcspn(words, " ") + 1;
    (void)buf_add(out, words, strcspn(words, " "));
}

static void put_strings(struct buf *out, char *const *list)
{
    (void)buf_puts(out, "[");
    for (size_t i = 0; list && list[i]; i++) {
        if (i)
            (void)buf_puts(out, ", ");
        put_string(out, list[i]);
    }
    (void)buf_puts(out, "]");
}

static void put_env(struct buf *out, char *const *list)
{
    (void)buf_puts(out, "{");
    for (size_t i = 0; list && list[i]; i++) {
        const char *eq = strchr(list[i], '=');
        (void)buf_printf(out, "%s%.*s: ", i ? ", " : "", (int)(eq - list[i]), list[i]);
        put_string(out, eq + 1);
    }
    (void)buf_puts(out, "}");
}

static void put_nodes(struct buf *out, const struct spec *s)
{
    (void)buf_puts(out, "[");
    for (size_t i = 0; i < s->cluster.n_nodes; i++) {
        uint32_t slots = s->cluster.nodes[i].slots;
        (void)buf_puts(out, i ? ", " : "");
        (void)buf_puts(out, slots ? "{host: " : "");
        put_string(out, s->cluster.nodes[i].host);
        if (slots)
            (void)buf_printf(out, ", slots: %u}", slots);
    }
    (void)buf_puts(out, "]");
}

static void put_value(struct buf *out, const struct spec *s, const struct spec_key *k)
{
    const char *at = (const char *)s + k->offset;
    char text[32];
    const double *d = (const void *)at;
    switch (k->kind) {
    case KEY_STRING:
        put_string(out,
                   *(char *const *)(const void *)at ? *(char *const *)(const void *)at : "");
        break;
    case KEY_U32:
        (void)buf_printf(out, "%" PRIu32, *(const uint32_t *)(const void *)at);
        break;
    case KEY_U64:
        (void)buf_printf(out, "%" PRIu64, *(const uint64_t *)(const void *)at);
        break;
    case KEY_REAL:
        put_real(out, *d);
        break;
    case KEY_BOOL:
        (void)buf_puts(out, *(const bool *)(const void *)at ? "true" : "false");
        break;
    case KEY_DURATION:
        (void)buf_puts(out, units_duration_text(*(const int64_t *)(const void *)at, text));
        break;
    case KEY_WORD:
        put_word(out, k->words, *(const unsigned *)(const void *)at);
        break;
    case KEY_STRINGS:
        put_strings(out, *(char **const *)(const void *)at);
        break;
    case KEY_COUNTS:
        (void)buf_puts(out, s->parallel.stages ? "[" : "null");
        for (size_t i = 0; i < s->parallel.n_stages; i++)
            (void)buf_printf(out, "%s%u", i ? ", " : "", s->parallel.stages[i]);
        (void)buf_puts(out, s->parallel.stages ? "]" : "");
        break;
    case KEY_PAIR:
        (void)buf_puts(out, "[");
        put_real(out, d[0]);
        (void)buf_puts(out, ", ");
        put_real(out, d[1]);
        (void)buf_puts(out, "]");
        break;
    case KEY_ENV:
        put_env(out, *(char **const *)(const void *)at);
        break;
    case KEY_NODES:
        put_nodes(out, s);
        break;
    }
}

int spec_to_yaml(const struct spec *s, struct buf *out)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    const char *before = "";
    for (size_t i = 0; i < n; i++) {
        const char *path = keys[i].path, *part = path;
        int depth = 0;
        /* Section heads that the key before did not share. */
        for (const char *dot; (dot = strchr(part, '.')); part = dot + 1, depth++)
            if (strncmp(before, path, (size_t)(dot - path) + 1) != 0)
                (void)buf_printf(out, "%*s%.*s:\n", 2 * depth, "", (int)(dot - part), part);
        (void)buf_printf(out, "%*s%s: ", 2 * depth, "", part);
        put_value(out, s, &keys[i]);
        (void)buf_puts(out, "\n");
        before = path;
    }
    return out->full ? -1 : 0;
}

static size_t differences(const struct spec *was, const struct spec *is, bool fixed_only,
                          struct buf *out)
{
    size_t n, found = 0;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++) {
        AUTO_BUF struct buf a = BUF(1 << 16), b = BUF(1 << 16);
        if (fixed_only && !keys[i].fixed)
            continue;
        put_value(&a, was, &keys[i]);
        put_value(&b, is, &keys[i]);
        if (strcmp(buf_str(&a), buf_str(&b)) == 0)
            continue;
        (void)buf_printf(out, "%s: was %s, is %s\n", keys[i].path, buf_str(&a), buf_str(&b));
        found++;
    }
    return found;
}

size_t spec_resume_conflicts(const struct spec *was, const struct spec *is, struct buf *out)
{
    return differences(was, is, true, out);
}

size_t spec_differences(const struct spec *was, const struct spec *is, struct buf *out)
{
    return differences(was, is, false, out);
}
