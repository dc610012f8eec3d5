#include "common/link/stepname.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_DIGITS_MIN = 8, STEP_DIGITS_MAX = 18, GENERATION_DIGITS_MAX = 10 };

int step_name_parse(const char *name, uint64_t *ret_step, uint32_t *ret_generation,
                    const char **ret_suffix)
{
    static const char digits[] = "0123456789";
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    const char *step = name + 5;
    size_t n = strspn(step, digits);
    const char *generation = step + n + 2;
    if (n < STEP_DIGITS_MIN || n > STEP_DIGITS_MAX || strncmp(step + n, "-g", 2) != 0)
        return -1;
    size_t k = strspn(generation, digits);
    unsigned long long g = strtoull(generation, NULL, 10);
    if (k == 0 || k > GENERATION_DIGITS_MAX || g > UINT32_MAX)
        return -1;
    *ret_step = strtoull(step, NULL, 10);
    *ret_generation = (uint32_t)g;
    *ret_suffix = generation + k;
    return 0;
}
