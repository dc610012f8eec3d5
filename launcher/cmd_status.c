#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "launcher/cmd.h"
#include "launcher/record/jobdir.h"
#include "launcher/watch/status.h"
#include "launcher/watch/status_watch.h"

int cmd_status(int argc, char **argv)
{
    AUTO_BUF struct buf json = BUF(16 << 20), text = BUF(16 << 20);
    const char *job = NULL;
    bool as_json = false, watch = false;
    struct err e;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (strcmp(argv[i], "--watch") == 0)
            watch = true;
        else if (argv[i][0] == '-' || job)
            return cmd_usage("status");
        else
            job = argv[i];
    }
    AUTO(jobdir) struct jobdir *dir = jobdir_find(job, NULL, &e);
    if (dir && watch)
        return status_watch(dir, as_json, &e) < 0 ? cmd_error("status", &e) : 0;
    if (!dir || status_of(dir, &json, &e) < 0)
        return cmd_error("status", &e);
    if (!as_json && status_text(buf_str(&json), &text, &e) < 0)
        return cmd_error("status", &e);
    (void)printf("%s%s", buf_str(as_json ? &json : &text), as_json ? "\n" : "");
    return 0;
}
