/* dsagent: what runs on every node.  `serve` is the agent, `exec` the keeper of one worker;
 * both are started by our own programs, not by hand. */
#include <stdio.h>
#include <string.h>

#include "launcher/agent/rank/keeper.h"
#include "launcher/agent/serve.h"

static int version(int argc, char **argv)
{
    (void)argc, (void)argv;
    (void)puts("dsagent " DS_VERSION);
    return 0;
}

static const struct command {
    const char *name, *help;
    int (*main)(int argc, char **argv);
} commands[] = {
    {"serve", "the agent of one node", serve_main},
    {"exec", "the keeper of one worker", keeper_main},
    {"--version", "the version", version},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].main(argc - 1, argv + 1);
    (void)fputs("usage: dsagent serve | exec | --version (dslaunch starts it)\n", stderr);
    return 2;
}
