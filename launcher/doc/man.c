/* man.c: dslaunch(1) from the command table, dslaunch.yaml(5) from the key table. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/spec/spec_keys.h"
#include "launcher/doc/doc.h"

static const struct {
    const char *what, *text;
} exits[] =
    {
        {"0", "done: the job completed, or was stopped and has saved"},
        {"1", "the job failed; what was blamed, and why, was printed"},
        {"2", "the command line or the spec is wrong; nothing was started"},
        {"3", "the machines: a node or a job's controller cannot be reached or used"},
        {"130", "stopped at once, by a second Ctrl-C"},
},
  variables[] =
      {
          {"DSLAUNCH_HOME", "where jobs keep their state; absolute"},
          {"XDG_STATE_HOME", "without DSLAUNCH_HOME, state is in its folder dslaunch"},
          {"XDG_RUNTIME_DIR", "where sockets are; else /tmp/dslaunch-UID"},
          {"NO_COLOR", "set: no colours, and no line that changes in place"},
},
  paths[] = {
      {"~/.local/state/dslaunch/JOB/", "the state of a job, by default"},
      {"spec.yaml", "there: the spec with every default filled in"},
      {"journal.jsonl", "there: what happened, for a controller that is started again"},
      {"metrics.jsonl", "there: one object per step"},
      {"logs/gG/R.log", "there: what rank R printed in generation G"},
      {"failure.json", "there: the report of the last failure"},
};

/* Text that roff takes as it is, also at the start of a line. */
static void escape(struct buf *out, const char *text, size_t n)
{
    if (n && (*text == '.' || *text == '\''))
        (void)buf_puts(out, "\\&");
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\')
            (void)buf_puts(out, "\\e");
        else if (text[i] == '~' || text[i] == '^')
            (void)buf_puts(out, text[i] == '~' ? "\\(ti" : "\\(ha");
        else if (text[i] == '-')
            (void)buf_puts(out, "\\-");
        else
            (void)buf_add(out, text + i, 1);
    }
}

static void line(struct buf *out, const char *text)
{
    escape(out, text, strlen(text));
    (void)buf_puts(out, "\n");
}

/* A tagged paragraph: the tag in bold, what is behind it plain. */
static void tag(struct buf *out, const char *bold, const char *plain)
{
    (void)buf_puts(out, ".TP\n\\fB");
    escape(out, bold, strlen(bold));
    (void)buf_puts(out, "\\fR");
    if (*plain) {
        (void)buf_puts(out, " ");
        escape(out, plain, strlen(plain));
    }
    (void)buf_puts(out, "\n");
}

static void head(struct buf *out, const char *title, const char *section, const char *name,
                 const char *what)
{
    (void)buf_printf(out,
                     ".\\\" made by `make docs`\n.TH %s %s \"\" \"dslaunch %s\"\n.SH NAME\n",
                     title, section, DS_VERSION);
    (void)buf_printf(out, "%s \\- %s\n", name, what);
}

/* The lines of `more` that are about no option. */
static void notes(struct buf *out, const char *more)
{
    bool any = false;
    while (more && *more) {
        size_t n = strcspn(more, "\n");
        assert(n == 0 || (n > 2 && memcmp(more, "  ", 2) == 0 && more[2] != ' '));
        if (n && more[2] != '-') {
            if (!any)
                (void)buf_puts(out, ".PP\n");
            any = true;
            escape(out, more + 2, n - 2);
            (void)buf_puts(out, "\n");
        }
        more += n + (more[n] == '\n');
    }
}

static void command(struct buf *out, const struct command *c)
{
    struct doc_option o;
    tag(out, c->name, c->args);
    line(out, c->help);
    (void)buf_puts(out, ".RS\n");
    for (const char *at = c->args; doc_next_option(c, &at, &o);) {
        tag(out, o.name, o.arg);
        line(out, o.help);
    }
    notes(out, c->more);
    (void)buf_puts(out, ".RE\n");
}

#define SECTION(out, name, list)                                  \
    do {                                                          \
        (void)buf_puts(out, ".SH " name "\n");                    \
        for (size_t i = 0; i < sizeof list / sizeof *list; i++) { \
            tag(out, list[i].what, "");                           \
            line(out, list[i].text);                              \
        }                                                         \
    } while (0)

void doc_man_command(const struct command *table, struct buf *out)
{
    head(out, "DSLAUNCH", "1", "dslaunch",
         "start a training run on machines, and keep it going");
    (void)buf_puts(out, ".SH SYNOPSIS\n.B dslaunch\n.I COMMAND\n.RI [ ARGUMENTS ]\n"
                        ".SH DESCRIPTION\nReads a YAML file, see\n.BR dslaunch.yaml (5),\n"
                        "starts workers, watches them, restarts them from checkpoints when "
                        "something breaks, and leaves\nnothing behind when the job is taken "
                        "down.\nJOB may be left out where it is clear.\n.SH COMMANDS\n");
    for (const struct command *c = table; c->name; c++)
        if (c->help)
            command(out, c);
    SECTION(out, "EXIT STATUS", exits);
    SECTION(out, "ENVIRONMENT", variables);
    SECTION(out, "FILES", paths);
    (void)buf_puts(out, ".SH SEE ALSO\n.BR dslaunch.yaml (5)\n");
}

static void key(struct buf *out, const struct spec_key *k)
{
    char type[DOC_TEXT_MAX];
    const char *def = doc_default(k);
    tag(out, k->path, k->fixed ? "*" : "");
    line(out, k->help);
    (void)buf_puts(out, ".br\n(");
    line(out, doc_type(k, type));
    out->len--; /* the line goes on */
    if (def) {
        (void)buf_puts(out, strcmp(def, "required") == 0 ? "; " : "; default ");
        escape(out, def, strlen(def));
    }
    (void)buf_puts(out, ")\n");
}

static void preset(struct buf *out, const char *name, const char *set)
{
    tag(out, name, "");
    line(out, set);
}

void doc_man_spec(const struct command *table, struct buf *out)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    (void)table;
    head(out, "DSLAUNCH.YAML", "5", "dslaunch.yaml", "the spec of a training run");
    (void)buf_puts(
        out,
        ".SH DESCRIPTION\nThe YAML file that\n.BR dslaunch (1)\nreads.\nA key is written here "
        "with the sections it is in: train.steps is steps in the map train.\nA time is a "
        "number "
        "and a unit: 500ms, 30s, 1h30m.\nA list of texts may be one text.\nHosts are host "
        "lists, "
        "\\(dqgpu[001\\-004]\\(dq, or maps, {host: gpu005, slots: 4}.\nA key that is marked * "
        "must stay as it is for a job to resume.\n.SH KEYS\n");
    for (size_t i = 0; i < n; i++)
        key(out, &keys[i]);
    (void)buf_puts(out, ".SH PRESETS\nWhat model.preset sets in model.\n");
    doc_presets(out, preset);
    (void)buf_puts(out, ".SH EXAMPLE\n.EX\nname: small\nmodel: {preset: gpt2\\-tiny}\n"
                        "train: {steps: 100, batch: 8, seq_len: 128}\n"
                        "data: {files: [\\(dq/usr/share/common\\-licenses/*\\(dq]}\n.EE\n"
                        ".SH SEE ALSO\n.BR dslaunch (1)\n");
}
