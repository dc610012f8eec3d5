/* The resolved spec as text, and what differs between two. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/units.h"
#include "common/spec/spec.h"
#include "common/spec/spec_keys.h"

static void put_string(struct buf *out, const char *s)
{
    (void)buf_puts(out, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            (void)buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            (void)buf_printf(out, "\\x%02x", c);
        else
            (void)buf_add(out, s, 1);
    }
    (void)buf_puts(out, "\"");
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
        (void)buf_puts(out, i ? ", {host: " : "{host: ");
        put_string(out, s->cluster.nodes[i].host);
        if (s->cluster.nodes[i].slots)
            (void)buf_printf(out, ", slots: %u", s->cluster.nodes[i].slots);
        (void)buf_puts(out, "}");
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
        (void)buf_printf(out, "%.17g", *d);
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
        (void)buf_printf(out, "[%.17g, %.17g]", d[0], d[1]);
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

size_t spec_resume_conflicts(const struct spec *was, const struct spec *is, struct buf *out)
{
    size_t n, found = 0;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++) {
        AUTO_BUF struct buf a = BUF(1 << 16), b = BUF(1 << 16);
        if (!keys[i].fixed)
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
