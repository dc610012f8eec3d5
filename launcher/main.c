/* main.c: dslaunch, the program that a person runs.  The table is all there is to dispatch and
 * help. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/spec/spec_read.h"
#include "launcher/cmd.h"

const struct command commands[] = {
    {"up", "SPEC [-d] [--set KEY=VALUE]... [--fresh]", "start a job, or attach to it", cmd_up,
     "  -d               come back once the job runs\n"
     "  --set KEY=VALUE  set a key of the spec, as in --set parallel.tensor=4\n"
     "  --fresh          begin anew; old state and checkpoints are moved aside\n\n"
     "  Ctrl-C: finish the step, save and stop; twice: stop now.  A lost terminal stops "
     "nothing.\n"
     "  An ended job resumes from its newest checkpoint, in any layout.\n"},
    {"down", "[JOB] [--now]", "finish the step, save, and take a job down", cmd_down,
     "  --now            stop at once; what came after the last checkpoint is lost\n"},
    {"restart", "[JOB]", "finish the step, save, and go on in a new generation", cmd_restart,
     "  Not counted against restart.max.  Comes back once the new generation runs.\n"},
    {"ps", "", "all jobs, live and ended", cmd_ps, NULL},
    {"status", "[JOB] [--json] [--watch]", "how a job is", cmd_status,
     "  --json           the same and more, for programs; a line each time with --watch\n"
     "  --watch          again every second, and when something happens, until the job ends\n"},
    {"logs", "[JOB] [-f] [--rank R] [--node N] [--tail N]",
     "what its workers printed in the newest generation", cmd_logs,
     "  -f               follow: the last lines, then those that come, until the job ends\n"
     "  --rank R         of one rank only\n"
     "  --node N         of one node's ranks only\n"
     "  --tail N         the last N lines of each rank\n"},
    {"plan", "SPEC [--json] [--set KEY=VALUE]...",
     "ranks, memory and schedule of a job, without starting it", cmd_plan,
     "  --json           the same, for programs\n"
     "  --set KEY=VALUE  set a key of the spec, as in --set parallel.tensor=4\n"},
    {"schema", "", "the JSON Schema of the spec, for editors", cmd_schema, NULL},
    {"doc", "DIR", NULL, cmd_doc, NULL},
    {"controller", "", NULL, cmd_controller, NULL},
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

int cmd_spec_error(const char *name, struct buf *report, const struct err *e)
{
    (void)fputs(buf_str(report), stderr);
    return cmd_error(name, e);
}

static void help(FILE *to)
{
    (void)fprintf(to, "usage: dslaunch COMMAND [ARGUMENTS]\n\n");
    for (const struct command *c = commands; c->name; c++)
        if (c->help)
            (void)fprintf(to, "  %s %s\n      %s\n", c->name, c->args, c->help);
    (void)fprintf(to, "\n  --help, --version\n"
                      "  COMMAND --help says more; JOB may be left out where it is clear\n");
}

static bool asks_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

static int help_on(const struct command *c)
{
    (void)printf("usage: dslaunch %s %s\n  %s\n\n%s", c->name, c->args, c->help,
                 c->more ? c->more : "");
    return 0;
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

/* What we open must not become a standard stream that is closed. */
static void open_standard_streams(void)
{
    for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
        if (fd > STDERR_FILENO) {
            (void)close(fd);
            return;
        }
    }
}

/* What was said and cannot be written is an error, if nothing else was. */
static int finish(int rc)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return rc;
    perror("dslaunch: standard output");
    return rc ? rc : 1;
}

int main(int argc, char **argv)
{
    open_standard_streams();
    log_init("dslaunch", LOG_INFO);
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (asks_help(name) || strcmp(name, "help") == 0) {
        help(stdout);
        return finish(0);
    }
    if (strcmp(name, "--version") == 0) {
        (void)printf("dslaunch %s\n", DS_VERSION);
        return 0;
    }
    const struct command *c = find(name);
    if (!c)
        return unknown(name);
    if (argc > 2 && c->help && asks_help(argv[argc - 1]))
        return finish(help_on(c));
    return finish(c->run(argc - 1, argv + 1));
}
