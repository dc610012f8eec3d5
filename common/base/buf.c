#include "common/base/buf.h"
#include "common/base/own.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_done(struct buf *b)
{
    free(b->data);
    *b = BUF(b->cap);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->full = false;
    if (b->data)
        b->data[0] = 0;
}

static int reserve(struct buf *b, size_t n)
{
    if (n > b->cap || b->len > b->cap - n) {
        b->full = true;
        return -1;
    }
    size_t need = b->len + n + 1;
    if (need > b->room) {
        size_t room = b->room ? b->room : 128;
        while (room < need)
            room *= 2;
        b->data = xrealloc(b->data, room);
        b->room = room;
    }
    return 0;
}

int buf_add(struct buf *b, const void *p, size_t n)
{
    if (reserve(b, n) < 0)
        return -1;
    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
    return 0;
}

int buf_puts(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || reserve(b, (size_t)n) < 0)
        return -1;
    va_start(ap, fmt);
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->len);
    b->len -= n;
    if (n && b->data) {
        memmove(b->data, b->data + n, b->len);
        b->data[b->len] = 0;
    }
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}

char *buf_take(struct buf *b)
{
    char *s = b->data ? b->data : xstrdup("");
    *b = BUF(b->cap);
    return s;
}

int buf_hex(struct buf *b, const void *p, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *u = p;
    if (n > SIZE_MAX / 2 || reserve(b, 2 * n) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        b->data[b->len++] = digits[u[i] >> 4];
        b->data[b->len++] = digits[u[i] & 15];
    }
    b->data[b->len] = 0;
    return 0;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

long hex_decode(const char *hex, void *out, size_t cap)
{
    unsigned char *u = out;
    size_t n = strlen(hex);
    if (n % 2 || n / 2 > cap)
        return -1;
    for (size_t i = 0; i < n / 2; i++) {
        int hi = digit(hex[2 * i]), lo = digit(hex[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return -1;
        u[i] = (unsigned char)(hi << 4 | lo);
    }
    return (long)(n / 2);
}
