/* dsworker: one rank of the trainer.  Started by an agent it takes its identity and spec from
 * the link (common/link/linkline.h); by hand, `dsworker SPEC` is a world of one that writes its
 * own checkpoints. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/blas_core.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/spec/spec.h"
#include "worker/link.h"
#include "worker/train.h"

enum { REPORT_MAX = 1 << 20 };

static struct spec *load_spec(const char *path, const char *text, struct err *e)
{
    AUTO_BUF struct buf report = BUF(REPORT_MAX);
    struct spec *s = path ? spec_load(path, NULL, 0, &report, e)
                          : spec_parse("spec.yaml", text, strlen(text), NULL, 0, &report, e);
    if (!s)
        (void)fputs(buf_str(&report), stderr);
    return s;
}

/* What a keeper does for the ranks it starts: once again, with OpenBLAS's kernels chosen.  If
 * that fails the run is right but slow, and has other bits than one under `dslaunch up`. */
static void choose_blas_core(char **argv)
{
    const char *core = blas_core();
    if (!core || getenv(BLAS_CORE_ENV))
        return;
    if (setenv(BLAS_CORE_ENV, core, 1) == 0)
        (void)execv("/proc/self/exe", argv);
    log_warn("OpenBLAS chooses its kernels by itself: exec: %s", strerror(errno));
}

static int by_hand(const char *path, char **argv, struct err *e)
{
    AUTO(spec) struct spec *s = load_spec(path, NULL, e);
    AUTO_BUF struct buf yaml = BUF(REPORT_MAX);
    struct link_identity id;
    if (!s)
        return -1;
    choose_blas_core(argv);
    if (spec_world(s) != 1)
        return err_set(e, ERR_USAGE, "the spec wants %u ranks: use `dslaunch up %s`",
                       spec_world(s), path);
    if (spec_to_yaml(s, &yaml) < 0)
        return err_set(e, ERR_SPEC, "the resolved spec is too long");
    AUTO(link) struct link *l = link_open_solo(buf_str(&yaml), &id, e);
    return l ? train_run(s, l, &id, e) : -1;
}

static int by_link(struct err *e)
{
    struct link_identity id;
    AUTO(link) struct link *l = link_open(&id, e);
    if (!l)
        return -1;
    AUTO(spec) struct spec *s = load_spec(NULL, id.spec, e);
    if (s)
        return train_run(s, l, &id, e);
    link_failed(l, e, -1);
    return -1;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    log_init("dsworker", LOG_INFO);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("dsworker " DS_VERSION);
        return 0;
    }
    int r = getenv("DSLAUNCH_LINK") && argc == 1 ? by_link(&e)
            : argc == 2
                ? by_hand(argv[1], argv, &e)
                : err_set(&e, ERR_USAGE, "usage: dsworker SPEC (or started by an agent)");
    if (r < 0) {
        log_error("%s", e.text);
        return err_worker_exit(e.kind);
    }
    return 0;
}
