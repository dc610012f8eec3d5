/* buf.h: a byte buffer that grows up to a stated cap, and hex.
 *
 * Initialise with BUF(cap).  An append that would pass the cap fails as a whole and sets
 * `full`; the bytes before it stay, so a writer may append a whole record and look at `full`
 * once.  `data` is always NUL-terminated behind `len` once anything was appended.  Data may be
 * consumed from the front.  Owner: whoever declared it; buf_done frees.
 */
#ifndef DS_BASE_BUF_H
#define DS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;
    size_t len;
    size_t room; /* allocated */
    size_t cap;
    bool full;
};

#define BUF(cap_) ((struct buf){.cap = (cap_)})
#define AUTO_BUF __attribute__((cleanup(buf_done)))

void buf_done(struct buf *b);
void buf_clear(struct buf *b); /* empty, memory kept */
int buf_add(struct buf *b, const void *p, size_t n);
int buf_puts(struct buf *b, const char *s);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(struct buf *b, size_t n); /* n <= len */
/* The text, never NULL; borrowed. */
const char *buf_str(const struct buf *b);
/* The text, owned by the caller; the buffer is empty after. */
char *buf_take(struct buf *b);

int buf_hex(struct buf *b, const void *p, size_t n);
/* Decodes all of `hex` into out; returns the byte count, or -1 on odd length, a bad digit, or
 * more than `cap` bytes. */
long hex_decode(const char *hex, void *out, size_t cap);

#endif
