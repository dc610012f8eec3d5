/* complete.c: completions for bash and zsh.  Commands, options and keys are written into them;
 * jobs are the folders of the state folder at the time of asking. */
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/spec/spec_keys.h"
#include "launcher/doc/doc.h"

static const char bash_front[] =
    "# shellcheck shell=bash disable=SC2207\n"
    "# dslaunch.bash: completion, made by `make docs`.\n"
    "_dslaunch_jobs() {\n"
    "    local d root=${DSLAUNCH_HOME:-${XDG_STATE_HOME:-~/.local/state}/dslaunch}\n"
    "    for d in \"$root\"/*/; do\n"
    "        d=${d%/} d=${d##*/}\n"
    "        [[ $d == *[*.]* ]] || echo \"$d\"\n"
    "    done\n"
    "}\n"
    "_dslaunch() {\n"
    "    local cur=$2 command=${COMP_WORDS[1]} before=$3 words='' operand=''\n"
    "    COMPREPLY=()\n"
    "    if ((COMP_CWORD == 1)); then\n";
static const char bash_back[] =
    "    if [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$words --help\" -- \"$cur\"))\n"
    "    elif [[ $before == --set ]]; then\n"
    "        COMPREPLY=($(compgen -S = -W \"$keys\" -- \"$cur\"))\n"
    "        compopt -o nospace 2>/dev/null\n"
    "    elif [[ $operand == JOB ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$(_dslaunch_jobs)\" -- \"$cur\"))\n"
    "    elif [[ $operand == SPEC ]]; then\n"
    "        COMPREPLY=($(compgen -d -- \"$cur\") $(compgen -f -X '!*.y*ml' -- \"$cur\"))\n"
    "        compopt -o filenames 2>/dev/null\n"
    "    fi\n"
    "}\n"
    "complete -F _dslaunch dslaunch\n";

static void add_keys(struct buf *out, const char *before)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    for (size_t i = 0; i < n; i++)
        (void)buf_printf(out, "%s%s", before, keys[i].path);
}

static bool takes_keys(const struct doc_option *o)
{
    return strcmp(o->name, "--set") == 0;
}

/* Behind an option with another argument than a key there is nothing to offer. */
static void bash_command(const struct command *c, struct buf *out)
{
    char operand[32];
    struct doc_option o;
    (void)buf_printf(out, "    %s)\n        operand='%s' words='", c->name,
                     doc_operand(c, operand));
    for (const char *at = c->args, *blank = ""; doc_next_option(c, &at, &o); blank = " ")
        (void)buf_printf(out, "%s%s", blank, o.name);
    (void)buf_puts(out, "'\n");
    for (const char *at = c->args; doc_next_option(c, &at, &o);)
        if (*o.arg && !takes_keys(&o))
            (void)buf_printf(out, "        [[ $before != %s ]] || return\n", o.name);
    (void)buf_puts(out, "        ;;\n");
}

void doc_bash(const struct command *table, struct buf *out)
{
    (void)buf_puts(out, bash_front);
    (void)buf_puts(out, "        COMPREPLY=($(compgen -W '");
    for (const struct command *c = table; c->name; c++)
        if (c->help)
            (void)buf_printf(out, "%s ", c->name);
    (void)buf_puts(out, "--help --version' -- \"$cur\"))\n        return\n    fi\n"
                        "    case $command in\n");
    for (const struct command *c = table; c->name; c++)
        if (c->help)
            bash_command(c, out);
    (void)buf_puts(out, "    *) return ;;\n    esac\n    local keys='");
    add_keys(out, "\n");
    (void)buf_puts(out, "'\n");
    (void)buf_puts(out, bash_back);
}

/* Text inside '...' and inside the brackets of an _arguments spec. */
static void zsh_text(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            (void)buf_puts(out, "'\\''");
        else if (strchr("[]:\\", *text))
            (void)buf_printf(out, "\\%c", *text);
        else
            (void)buf_add(out, text, 1);
    }
}

static void zsh_command(const struct command *c, struct buf *out)
{
    char operand[32];
    struct doc_option o;
    (void)buf_printf(out, "    %s)\n        _arguments \\\n", c->name);
    for (const char *at = c->args; doc_next_option(c, &at, &o);) {
        (void)buf_printf(out, "            '%s%s[", o.repeats ? "*" : "", o.name);
        zsh_text(out, o.help);
        (void)buf_puts(out, "]");
        if (*o.arg)
            (void)buf_printf(out, ":%s:%s", o.arg, takes_keys(&o) ? "_dslaunch_keys" : "");
        (void)buf_puts(out, "' \\\n");
    }
    (void)doc_operand(c, operand);
    if (strcmp(operand, "JOB") == 0)
        (void)buf_puts(out, "            '1:JOB:_dslaunch_jobs' \\\n");
    if (strcmp(operand, "SPEC") == 0)
        (void)buf_puts(out, "            '1:SPEC:_files -g \"*.y(a|)ml\"' \\\n");
    (void)buf_puts(out, "            '--help[say more]'\n        ;;\n");
}

void doc_zsh(const struct command *table, struct buf *out)
{
    (void)buf_puts(out, "#compdef dslaunch\n# _dslaunch: completion, made by `make docs`.\n"
                        "_dslaunch_jobs() {\n    local -a jobs\n"
                        "    jobs=(${DSLAUNCH_HOME:-${XDG_STATE_HOME:-~/.local/state}/dslaunch}"
                        "/[a-z0-9]*~*.*(N/:t))\n    _describe job jobs\n}\n"
                        "_dslaunch_keys() {\n    local -a keys\n    keys=(");
    add_keys(out, "\n        ");
    (void)buf_puts(out, "\n    )\n    compadd -S = -a keys\n}\n"
                        "_dslaunch() {\n    setopt localoptions extendedglob\n"
                        "    local -a commands\n    commands=(\n");
    for (const struct command *c = table; c->name; c++) {
        if (!c->help)
            continue;
        (void)buf_printf(out, "        '%s:", c->name);
        zsh_text(out, c->help);
        (void)buf_puts(out, "'\n");
    }
    (void)buf_puts(out,
                   "    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n"
                   "        return\n    fi\n    shift words\n    ((CURRENT--))\n"
                   "    case $words[1] in\n");
    for (const struct command *c = table; c->name; c++)
        if (c->help)
            zsh_command(c, out);
    (void)buf_puts(out, "    esac\n}\n_dslaunch \"$@\"\n");
}
