/* Did you mean ...? */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/spec/spec_read.h"

enum { WORD_MAX = 63 };

/* Edits that make `a` into the first m bytes of `b`; WORD_MAX bytes of each are looked at. */
static size_t distance(const char *a, const char *b, size_t m)
{
    size_t row[WORD_MAX + 1], n = strnlen(a, WORD_MAX);
    m = m < WORD_MAX ? m : WORD_MAX;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[m];
}

static size_t limit(const char *word)
{
    return strlen(word) / 3 + 1;
}

const char *spec_closest(const char *word, const char *words, char *buf)
{
    size_t best = limit(word) + 1;
    for (const char *p = words; *p;) {
        size_t len = strcspn(p, " "), d = distance(word, p, len);
        if (d < best && len <= WORD_MAX) {
            best = d;
            (void)snprintf(buf, WORD_MAX + 1, "%.*s", (int)len, p);
        }
        p += len + (p[len] == ' ');
    }
    return best <= limit(word) ? buf : NULL;
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

const char *spec_similar(const char *path, char *buf)
{
    const char *tail = last_part(path);
    size_t n, prefix = (size_t)(tail - path), best = SIZE_MAX;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++) {
        const char *p = keys[i].path;
        if (strncmp(p, path, prefix) == 0) {
            size_t len = strcspn(p + prefix, "."), d = distance(tail, p + prefix, len);
            if (d <= limit(tail) && 2 * d < best) {
                best = 2 * d;
                (void)snprintf(buf, WORD_MAX + 1, "%.*s", (int)(prefix + len), p);
            }
        }
        /* "lr" is the section of train.lr.peak, and "peak" its last word. */
        for (const char *part = p, *end = p; best > 1 && *end; part = end + 1) {
            end = part + strcspn(part, ".");
            if (strncmp(tail, part, (size_t)(end - part)) == 0 && !tail[end - part]) {
                best = 1;
                (void)snprintf(buf, WORD_MAX + 1, "%.*s", (int)(end - p), p);
            }
        }
    }
    return best < SIZE_MAX ? buf : NULL;
}
