#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "launcher/cmd.h"
#include "launcher/record/jobdir.h"
#include "launcher/watch/logs.h"

/* The number behind the option at argv[*i]; false if there is none. */
static bool number(int argc, char **argv, int *i, int64_t *ret)
{
    char *end;
    if (*i + 1 >= argc || argv[*i + 1][0] < '0' || argv[*i + 1][0] > '9')
        return false;
    long long v = strtoll(argv[++*i], &end, 10);
    *ret = v;
    return *end == 0 && v <= 1000000000;
}

int cmd_logs(int argc, char **argv)
{
    struct logs_params p = {.rank = -1, .node = -1, .tail = -1};
    const char *job = NULL;
    struct err e;
    for (int i = 1; i < argc; i++) {
        bool ok = true;
        if (strcmp(argv[i], "-f") == 0)
            p.follow = true;
        else if (strcmp(argv[i], "--rank") == 0)
            ok = number(argc, argv, &i, &p.rank);
        else if (strcmp(argv[i], "--node") == 0)
            ok = number(argc, argv, &i, &p.node);
        else if (strcmp(argv[i], "--tail") == 0)
            ok = number(argc, argv, &i, &p.tail);
        else if (argv[i][0] == '-' || job)
            ok = false;
        else
            job = argv[i];
        if (!ok)
            return cmd_usage("logs");
    }
    AUTO(jobdir) struct jobdir *dir = jobdir_find(job, NULL, &e);
    p.dir = dir;
    if (!dir || logs_show(&p, &e) < 0)
        return cmd_error("logs", &e);
    return 0;
}
