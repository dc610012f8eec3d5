#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "launcher/cmd.h"
#include "launcher/record/jobdir.h"
#include "launcher/watch/up.h"

int cmd_down(int argc, char **argv)
{
    const char *job = NULL;
    bool now = false;
    struct err e;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--now") == 0)
            now = true;
        else if (argv[i][0] == '-' || job)
            return cmd_usage("down");
        else
            job = argv[i];
    }
    bool none;
    AUTO(jobdir) struct jobdir *dir = jobdir_find(job, &none, &e);
    if (!dir && none) { /* nothing runs: that is what was wanted */
        (void)printf("%s\n", e.text);
        return 0;
    }
    int rc = dir ? down_job(dir, now, &e) : -1;
    return rc < 0 ? cmd_error("down", &e) : rc;
}
