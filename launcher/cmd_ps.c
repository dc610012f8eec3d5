#include <stdio.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "launcher/cmd.h"
#include "launcher/watch/ps.h"

int cmd_ps(int argc, char **argv)
{
    AUTO_BUF struct buf text = BUF(16 << 20);
    struct err e;
    (void)argv;
    if (argc > 1)
        return cmd_usage("ps");
    if (ps_text(&text, &e) < 0)
        return cmd_error("ps", &e);
    (void)printf("%s", buf_str(&text));
    return 0;
}
