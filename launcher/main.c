/* main.c: dslaunch, the program that a person runs.  The table is all there is to dispatch and
 * help. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/spec/spec_read.h"
#include "launcher/cmd.h"

const struct command commands[] = {
    {"up", "SPEC [-d] [--set KEY=VALUE]... [--fresh]", "start a job, or attach to it", cmd_up},
    {"down", "[JOB] [--now]", "finish the step, save, and take a job down", cmd_down},
    {"status", "[JOB] [--json]", "how a job is", cmd_status},
    {"logs", "[JOB] [-f] [--rank R] [--node N] [--tail N]", "what its workers printed",
     cmd_logs},
    {"plan", "SPEC [--json] [--set KEY=VALUE]...",
     "ranks, memory and schedule of a job, without starting it", cmd_plan},
    {"controller", "", NULL, cmd_controller},
    {0},
};

static const struct command *find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

int cmd_usage(const char *name)
{
    const struct command *c = find(name);
    (void)fprintf(stderr, "usage: dslaunch %s %s\n", c->name, c->args);
    return 2;
}

int cmd_error(const char *name, const struct err *e)
{
    (void)fprintf(stderr, "dslaunch %s: %s\n", name, e->text);
    return e->kind == ERR_USAGE || e->kind == ERR_SPEC ? 2 : 3;
}

static void help(FILE *to)
{
    (void)fprintf(to, "usage: dslaunch COMMAND [ARGUMENTS]\n\n");
    for (const struct command *c = commands; c->name; c++)
        if (c->help)
            (void)fprintf(to, "  %s %s\n      %s\n", c->name, c->args, c->help);
    (void)fprintf(to, "\n  --help, --version\n");
}

static int unknown(const char *name)
{
    enum { WORDS_MAX = 1024 };
    char closest[64];
    AUTO_BUF struct buf words = BUF(WORDS_MAX);
    for (const struct command *c = commands; c->name; c++)
        if (c->help)
            (void)buf_printf(&words, "%s%s", words.len ? " " : "", c->name);
    const char *like = spec_closest(name, buf_str(&words), closest);
    (void)fprintf(stderr, "dslaunch: unknown command \"%.64s\"", name);
    if (like)
        (void)fprintf(stderr, "; did you mean %s?", like);
    (void)fprintf(stderr, "\n`dslaunch --help` lists the commands\n");
    return 2;
}

int main(int argc, char **argv)
{
    log_init("dslaunch", LOG_INFO);
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        (void)printf("dslaunch %s\n", DS_VERSION);
        return 0;
    }
    const struct command *c = find(name);
    if (!c)
        return unknown(name);
    if (argc > 2 && c->help && strcmp(argv[2], "--help") == 0) {
        (void)printf("usage: dslaunch %s %s\n  %s\n", c->name, c->args, c->help);
        return 0;
    }
    return c->run(argc - 1, argv + 1);
}
