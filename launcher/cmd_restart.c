#include "common/base/err.h"
#include "launcher/cmd.h"
#include "launcher/record/jobdir.h"
#include "launcher/watch/up.h"

int cmd_restart(int argc, char **argv)
{
    const char *job = argc > 1 ? argv[1] : NULL;
    struct err e;
    if (argc > 2 || (job && *job == '-'))
        return cmd_usage("restart");
    AUTO(jobdir) struct jobdir *dir = jobdir_find(job, NULL, &e);
    int rc = dir ? restart_job(dir, &e) : -1;
    return rc < 0 ? cmd_error("restart", &e) : rc;
}
