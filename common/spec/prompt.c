#include "common/spec/prompt.h"

#include <string.h>

#include "common/base/own.h"
#include "common/spec/spec.h"

/* The decimal number at *p, which moves behind it. */
static int number(const char **p, uint32_t below, int32_t *ret)
{
    uint32_t v = 0;
    const char *at = *p;
    for (; *at >= '0' && *at <= '9'; at++) {
        v = 10 * v + (uint32_t)(*at - '0');
        if (v >= below)
            return -1;
    }
    if (at == *p || (*at && *at != ' '))
        return -1;
    *p = at;
    *ret = (int32_t)v;
    return 0;
}

int prompt_ids(const struct spec *s, int32_t **ret, size_t *ret_n)
{
    const char *p = s->train.sample.prompt;
    AUTO_FREE int32_t *ids = xcalloc(strlen(p) + 1, sizeof *ids);
    size_t n = 0;
    for (; *p && s->data.kind == DATA_TEXT; p++)
        ids[n++] = (unsigned char)*p;
    for (p += strspn(p, " "); *p; p += strspn(p, " "))
        if (number(&p, s->model.vocab, &ids[n++]) < 0)
            return -1;
    *ret_n = n;
    *ret = TAKE(ids);
    return 0;
}
