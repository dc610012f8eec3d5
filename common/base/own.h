/* own.h: who frees what, said where the variable is declared.
 *
 *     AUTO_FREE char *s = xstrdup(...);      freed at the end of the scope
 *     AUTO_CLOSE int fd = open(...);         closed there, if >= 0
 *     AUTO(plan) struct plan *p = ...;       plan_free(p) there
 *     return TAKE(p);                        ownership leaves the scope
 *
 * A type takes part by OWN(type), next to its prototype of type_free, which must take NULL.
 * Small bounded allocations end the program when there is no memory (xmalloc and friends);
 * sizes that come from a file, the wire or a device are capped and checked by the caller first.
 */
#ifndef DS_BASE_OWN_H
#define DS_BASE_OWN_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OWN(type)                                  \
    static inline void own_##type(struct type **p) \
    {                                              \
        type##_free(*p);                           \
    }                                              \
    struct own_##type##_needs_semicolon
#define AUTO(type) __attribute__((cleanup(own_##type), unused))
#define AUTO_FREE __attribute__((cleanup(own_mem), unused))
#define AUTO_CLOSE __attribute__((cleanup(own_fd), unused))
#define AUTO_FCLOSE __attribute__((cleanup(own_file), unused))

/* The value, leaving NULL (or -1 in an fd) behind. */
#define TAKE(p)                    \
    __extension__({                \
        __typeof__(p) take_ = (p); \
        (p) = NULL;                \
        take_;                     \
    })
#define TAKE_FD(fd)       \
    __extension__({       \
        int take_ = (fd); \
        (fd) = -1;        \
        take_;            \
    })

static inline void own_mem(void *p)
{
    free(*(void **)p);
}

static inline void own_fd(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

static inline void own_file(FILE **f)
{
    if (*f)
        (void)fclose(*f);
}

void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
void *xrealloc_array(void *p, size_t n, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
