#include "launcher/record/utf8.h"

#include <stdint.h>

#include "common/base/buf.h"

/* Length of the well-formed sequence at p (RFC 3629: no overlong forms, no surrogates), or 0.
 */
static size_t sequence(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

void utf8_clean(const char *p, size_t n, struct buf *out)
{
    const unsigned char *u = (const unsigned char *)p;
    for (size_t i = 0; i < n;) {
        size_t len = sequence(u + i, n - i);
        bool control = (u[i] < 0x20 && u[i] != '\t' && u[i] != '\n') || u[i] == 0x7f;
        if (len == 2 && u[i] == 0xc2 && u[i + 1] < 0xa0) /* C1 */
            control = true;
        if (len == 0 || control) {
            (void)buf_puts(out, "?");
            i += len ? len : 1;
            continue;
        }
        (void)buf_add(out, p + i, len);
        i += len;
    }
}
