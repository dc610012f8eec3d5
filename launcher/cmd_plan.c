/* cmd_plan.c: `dslaunch plan`: what `up` would run, without a connection. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/spec/spec.h"
#include "launcher/cmd.h"
#include "launcher/plan/forecast.h"
#include "launcher/plan/plan.h"

enum { OUTPUT_MAX = 256 << 20, REPORT_MAX = 1 << 20 };

/* The user's environment is left out: it is the controller's to pass on, and may be secret. */
static int render(const struct spec *s, bool json, struct buf *out, struct err *e)
{
    AUTO_FREE uint32_t *slots = xcalloc(s->cluster.n_nodes, sizeof(*slots));
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    plan_slots_local(s, cores > 0 ? (uint32_t)cores : 1, slots);
    AUTO(plan) struct plan *p = plan_new(s, slots, NULL, e);
    if (!p)
        return -1;
    AUTO(forecast) struct forecast *f = forecast_new(s, p, e);
    if (!f)
        return -1;
    if ((json ? forecast_json(f, out) : forecast_text(f, out)) < 0)
        return err_set(e, ERR_MEMORY, "the plan's text is larger than %d bytes", OUTPUT_MAX);
    return 0;
}

static int show(const char *path, char **sets, size_t n_sets, bool json)
{
    struct err e = {0};
    AUTO_BUF struct buf report = BUF(REPORT_MAX), out = BUF(OUTPUT_MAX);
    AUTO(spec) struct spec *s = spec_load(path, sets, n_sets, &report, &e);
    if (!s || render(s, json, &out, &e) < 0)
        return cmd_spec_error("plan", &report, &e);
    if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0) {
        perror("dslaunch: standard output");
        return 1;
    }
    return 0;
}

int cmd_plan(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"set", required_argument, NULL, 's'}, {0}};
    AUTO_FREE char **sets = xcalloc((size_t)argc, sizeof(*sets));
    size_t n_sets = 0;
    bool json = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'j':
            json = true;
            break;
        case 's':
            sets[n_sets++] = optarg;
            break;
        default:
            return cmd_usage("plan");
        }
    }
    if (optind + 1 != argc)
        return cmd_usage("plan");
    return show(argv[optind], sets, n_sets, json);
}
