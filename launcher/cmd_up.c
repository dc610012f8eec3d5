/* cmd_up.c: `dslaunch up`, and the hidden command that it starts, `controller`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/own.h"
#include "common/spec/spec.h"
#include "launcher/cmd.h"
#include "launcher/control/control.h"
#include "launcher/control/spawn.h"
#include "launcher/watch/up.h"

int cmd_up(int argc, char **argv)
{
    AUTO_FREE char **sets = xcalloc((size_t)argc, sizeof(*sets));
    AUTO_BUF struct buf report = BUF(1 << 20);
    const char *path = NULL;
    size_t n_sets = 0;
    bool detach = false, fresh = false;
    struct err e;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-d") == 0)
            detach = true;
        else if (strcmp(argv[i], "--fresh") == 0)
            fresh = true;
        else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc)
            sets[n_sets++] = argv[++i];
        else if (strncmp(argv[i], "--set=", 6) == 0)
            sets[n_sets++] = argv[i] + 6;
        else if (argv[i][0] == '-' || path)
            return cmd_usage("up");
        else
            path = argv[i];
    }
    if (!path)
        return cmd_usage("up");
    AUTO(spec) struct spec *spec = spec_load(path, sets, n_sets, &report, &e);
    if (!spec)
        return cmd_spec_error("up", &report, &e);
    int rc = up_job(spec, fresh, detach, &e);
    return rc < 0 ? cmd_error("up", &e) : rc;
}

int cmd_controller(int argc, char **argv)
{
    struct control_params p;
    struct err e;
    log_init("controller", LOG_INFO);
    if (spawn_parse(argc, argv, &p, &e) < 0)
        return cmd_error("controller", &e);
    int rc = control_run(&p, &e);
    return rc < 0 ? cmd_error("controller", &e) : rc;
}
