#include "launcher/agent/rank/workenv.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/base/own.h"
#include "launcher/agent/rank/keeper.h"

/* A name that ends in '*' is a prefix.  The sanitizers' are for builds that are instrumented.
 */
static const char *const passed_on[] = {
    "PATH",          "HOME",         "USER", "LOGNAME", "SHELL",           "LANG",
    "LANGUAGE",      "LC_*",         "TZ",   "TMPDIR",  "LD_LIBRARY_PATH", "ASAN_OPTIONS",
    "UBSAN_OPTIONS", "LSAN_OPTIONS",
};

static size_t name_len(const char *s)
{
    return strcspn(s, "=");
}

static bool listed(const char *s)
{
    size_t n = name_len(s);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        size_t k = strlen(passed_on[i]);
        if (passed_on[i][k - 1] == '*' ? n >= k - 1 && strncmp(s, passed_on[i], k - 1) == 0
                                       : n == k && strncmp(s, passed_on[i], k) == 0)
            return true;
    }
    return false;
}

struct list {
    char **at;
    size_t n;
};

static void set(struct list *l, const char *s)
{
    size_t k = name_len(s) + 1; /* with the '=' */
    for (size_t i = 0; i < l->n; i++) {
        if (strncmp(l->at[i], s, k) == 0) {
            free(l->at[i]);
            l->at[i] = xstrdup(s);
            return;
        }
    }
    l->at = xrealloc_array(l->at, l->n + 2, sizeof *l->at);
    l->at[l->n++] = xstrdup(s);
    l->at[l->n] = NULL;
}

char **workenv_new(char *const *plan, size_t n)
{
    struct list l = {0};
    for (char **s = environ; s && *s; s++)
        if (listed(*s))
            set(&l, *s);
    for (size_t i = 0; i < n; i++)
        if (strchr(plan[i], '='))
            set(&l, plan[i]);
    AUTO_FREE char *link = xasprintf("DSLAUNCH_LINK=%d", KEEPER_LINK_FD);
    AUTO_FREE char *page = xasprintf("DSLAUNCH_PAGE=%d", KEEPER_PAGE_FD);
    AUTO_FREE char *snapshot =
        xasprintf("DSLAUNCH_SNAPSHOT=%d,%d", KEEPER_SNAPSHOT_FD, KEEPER_SNAPSHOT_FD + 1);
    set(&l, link);
    set(&l, page);
    set(&l, snapshot);
    return l.at;
}
