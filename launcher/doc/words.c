/* words.c: keys and commands, read from their tables and put into words. */
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/spec/spec_keys.h"
#include "launcher/doc/doc.h"

const struct doc_file doc_files[] = {
    {"docs/spec.md", doc_spec_md},
    {"docs/spec.schema.json", doc_schema},
    {"docs/man/dslaunch.1", doc_man_command},
    {"docs/man/dslaunch.yaml.5", doc_man_spec},
    {"contrib/completion/dslaunch.bash", doc_bash},
    {"contrib/completion/_dslaunch", doc_zsh},
    {0},
};

/* "gpipe 1f1b" as "gpipe, 1f1b" behind what is there. */
static void add_words(const char *words, char *text)
{
    size_t at = strlen(text);
    for (; *words && at + 3 < DOC_TEXT_MAX; words++) {
        if (*words == ' ')
            text[at++] = ',';
        text[at++] = *words;
    }
    text[at] = 0;
}

const char *doc_type(const struct spec_key *k, char *text)
{
    static const char *const names[] = {
        [KEY_STRING] = "text",
        [KEY_U32] = "whole number",
        [KEY_U64] = "whole number",
        [KEY_REAL] = "number",
        [KEY_BOOL] = "true or false",
        [KEY_DURATION] = "time",
        [KEY_WORD] = "",
        [KEY_STRINGS] = "list of texts",
        [KEY_COUNTS] = "list of whole numbers, each",
        [KEY_PAIR] = "two numbers, each",
        [KEY_ENV] = "map of NAME: value",
        [KEY_NODES] = "list of hosts",
    };
    const char *name = names[k->kind], *unit = k->kind == KEY_DURATION ? "s" : "";
    const char *comma = name[strlen(name) - 1] == 'h' ? "" : ",";
    (void)snprintf(text, DOC_TEXT_MAX, "%s", name);
    if (k->kind == KEY_WORD)
        add_words(k->words, text);
    else if (k->kind == KEY_DURATION && k->max >= 1e9)
        (void)snprintf(text, DOC_TEXT_MAX, "time, at least %.12gs, or never", k->min);
    else if (k->max > k->min)
        (void)snprintf(text, DOC_TEXT_MAX, "%s%s %.12g%s to %.12g%s", name, comma, k->min, unit,
                       k->max, unit);
    return text;
}

const char *doc_default(const struct spec_key *k)
{
    if (!k->def || strstr(k->help, "default: "))
        return NULL;
    return strcmp(k->def, "!") == 0 ? "required" : k->def;
}

size_t doc_section(const struct spec_key *k)
{
    return strchr(k->path, '.') ? strcspn(k->path, ".") : 0;
}

void doc_presets(struct buf *out,
                 void (*fn)(struct buf *out, const char *name, const char *set))
{
    enum { SET_MAX = 1024 };
    AUTO_BUF struct buf set = BUF(SET_MAX);
    char name[64];
    for (const char *p = spec_preset_names(); *p;) {
        size_t n = strcspn(p, " ");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, p);
        p += n + (p[n] == ' ');
        buf_clear(&set);
        for (const char *const *s = spec_preset(name); *s; s++)
            (void)buf_printf(&set, "%s%s", set.len ? " " : "", *s);
        fn(out, name, buf_str(&set));
    }
}

/* What `more` says of the option, from the first letter behind its name and argument. */
static void find_help(const char *more, struct doc_option *o)
{
    char front[80];
    size_t n =
        (size_t)snprintf(front, sizeof front, "  %s%s%s ", o->name, *o->arg ? " " : "", o->arg);
    for (const char *line = more; line && *line; line = strchr(line, '\n') + 1) {
        size_t len = strcspn(line, "\n");
        if (len > n && memcmp(line, front, n) == 0) {
            n += strspn(line + n, " ");
            (void)snprintf(o->help, sizeof o->help, "%.*s", (int)(len - n), line + n);
            return;
        }
        if (!line[len])
            return;
    }
}

/* Copies a word, up to a blank or bracket, and returns what is behind it. */
static const char *word(const char *at, char *ret, size_t size)
{
    size_t n = strcspn(at, " []");
    (void)snprintf(ret, size, "%.*s", (int)n, at);
    return at + n;
}

bool doc_next_option(const struct command *c, const char **at, struct doc_option *ret)
{
    const char *p = *at;
    while (*p && *p != '-')
        p++;
    *at = p;
    if (!*p)
        return false;
    *ret = (struct doc_option){0};
    p = word(p, ret->name, sizeof ret->name);
    if (*p == ' ' && p[1] >= 'A' && p[1] <= 'Z')
        p = word(p + 1, ret->arg, sizeof ret->arg);
    ret->repeats = strncmp(p, "]...", 4) == 0;
    find_help(c->more, ret);
    *at = p;
    return true;
}

const char *doc_operand(const struct command *c, char name[32])
{
    const char *p = c->args + (*c->args == '[');
    *name = 0;
    if (*p >= 'A' && *p <= 'Z')
        (void)word(p, name, 32);
    return name;
}
