#include "common/base/own.h"

#include <stdarg.h>
#include <string.h>

static void *must(void *p)
{
    if (!p) {
        static const char msg[] = "out of memory\n";
        (void)!write(2, msg, sizeof msg - 1);
        abort();
    }
    return p;
}

void *xmalloc(size_t n)
{
    return must(malloc(n ? n : 1));
}

void *xcalloc(size_t n, size_t size)
{
    return must(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n)
{
    return must(realloc(p, n ? n : 1));
}

void *xrealloc_array(void *p, size_t n, size_t size)
{
    return must(reallocarray(p, n ? n : 1, size ? size : 1));
}

char *xstrdup(const char *s)
{
    return must(strdup(s));
}

char *xstrndup(const char *s, size_t n)
{
    return must(strndup(s, n));
}

char *xasprintf(const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;
    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0)
        s = NULL;
    va_end(ap);
    return must(s);
}
