#include "common/spec/hosts.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/own.h"

struct names {
    char **name;
    size_t n;
};

void hosts_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

static void names_done(struct names *v)
{
    hosts_free(v->name, v->n);
}

static int add(struct names *v, const char *head, size_t head_n, const char *tail,
               struct err *e)
{
    if (v->n == HOSTS_MAX)
        return err_set(e, ERR_SPEC, "more than %d hosts", HOSTS_MAX);
    if (head_n + strlen(tail) > HOSTS_NAME_MAX)
        return err_set(e, ERR_SPEC, "a host name longer than %d characters", HOSTS_NAME_MAX);
    if ((v->n & (v->n - 1)) == 0)
        v->name = xrealloc_array(v->name, v->n ? 2 * v->n : 1, sizeof *v->name);
    v->name[v->n++] = xasprintf("%.*s%s", (int)head_n, head, tail);
    return 0;
}

/* Each of `v` with `text` behind it. */
static int extend(struct names *v, const char *text, size_t n, struct err *e)
{
    for (size_t i = 0; i < v->n; i++) {
        if (strlen(v->name[i]) + n > HOSTS_NAME_MAX)
            return err_set(e, ERR_SPEC, "a host name longer than %d characters",
                           HOSTS_NAME_MAX);
        char *longer = xasprintf("%s%.*s", v->name[i], (int)n, text);
        free(v->name[i]);
        v->name[i] = longer;
    }
    return 0;
}

static int number(const char **p, uint64_t *ret, int *ret_width)
{
    const char *s = *p;
    uint64_t v = 0;
    while (isdigit((unsigned char)**p) && *p - s < 12)
        v = v * 10 + (uint64_t)(*(*p)++ - '0');
    *ret = v;
    *ret_width = (int)(*p - s);
    return *p > s && !isdigit((unsigned char)**p) ? 0 : -1;
}

/* "7" or "01-16" at *p, as text. */
static int range(struct names *out, const char *list, const char **p, struct err *e)
{
    uint64_t lo, hi;
    int width, hi_width;
    if (number(p, &lo, &width) < 0)
        return err_set(e, ERR_SPEC, "character %td of \"%.64s\": expected a number",
                       *p - list + 1, list);
    hi = lo;
    if (**p == '-') {
        (*p)++;
        if (number(p, &hi, &hi_width) < 0 || hi < lo)
            return err_set(e, ERR_SPEC,
                           "character %td of \"%.64s\": expected a number not below %llu",
                           *p - list + 1, list, (unsigned long long)lo);
    }
    if (hi - lo >= HOSTS_MAX)
        return err_set(e, ERR_SPEC, "more than %d hosts", HOSTS_MAX);
    for (; lo <= hi; lo++) {
        char digits[32];
        (void)snprintf(digits, sizeof digits, "%0*llu", width, (unsigned long long)lo);
        if (add(out, "", 0, digits, e) < 0)
            return -1;
    }
    return 0;
}

/* "[a-b,c]" at *p: `v` times its numbers, the last bracket running fastest. */
static int bracket(struct names *v, const char *list, const char **p, struct err *e)
{
    __attribute__((cleanup(names_done))) struct names out = {0}, numbers = {0};
    const char *open = (*p)++;
    do {
        if (range(&numbers, list, p, e) < 0)
            return -1;
    } while (*(*p)++ == ',');
    if (!(*p)[-1])
        return err_set(e, ERR_SPEC, "character %td of \"%.64s\": the [ is never closed",
                       open - list + 1, list);
    if ((*p)[-1] != ']')
        return err_set(e, ERR_SPEC, "character %td of \"%.64s\": expected a comma or ]",
                       *p - list, list);
    for (size_t i = 0; i < v->n; i++)
        for (size_t k = 0; k < numbers.n; k++)
            if (add(&out, v->name[i], strlen(v->name[i]), numbers.name[k], e) < 0)
                return -1;
    struct names old = *v;
    *v = out;
    out = old;
    return 0;
}

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.' || c == ':';
}

int hosts_expand(const char *list, char ***ret, size_t *ret_n, struct err *e)
{
    __attribute__((cleanup(names_done))) struct names all = {0};
    const char *p = list;
    do {
        __attribute__((cleanup(names_done))) struct names one = {0};
        while (*p == ' ')
            p++;
        if (add(&one, "", 0, "", e) < 0)
            return -1;
        const char *start = p;
        if (*p == '-' || *p == '.')
            return err_set(e, ERR_SPEC,
                           "character %td of \"%.64s\": a host name does not begin with %c",
                           p - list + 1, list, *p);
        while (*p && *p != ',' && *p != ' ') {
            const char *s = p;
            while (name_char(*p))
                p++;
            if (p > s && extend(&one, s, (size_t)(p - s), e) < 0)
                return -1;
            if (*p == '[' && bracket(&one, list, &p, e) < 0)
                return -1;
            if (*p && *p != ',' && *p != ' ' && *p != '[' && !name_char(*p))
                return err_set(e, ERR_SPEC,
                               "character %td of \"%.64s\": '%c' is not part of a host name",
                               p - list + 1, list, *p);
        }
        if (p == start)
            return err_set(e, ERR_SPEC, "character %td of \"%.64s\": a host name is missing",
                           p - list + 1, list);
        for (size_t i = 0; i < one.n; i++)
            if (add(&all, one.name[i], strlen(one.name[i]), "", e) < 0)
                return -1;
        while (*p == ' ')
            p++;
    } while (*p++ == ',');
    if (p[-1])
        return err_set(e, ERR_SPEC, "character %td of \"%.64s\": expected a comma", p - list,
                       list);
    *ret = TAKE(all.name);
    *ret_n = all.n;
    all.n = 0;
    return 0;
}
