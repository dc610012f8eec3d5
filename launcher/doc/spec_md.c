/* spec_md.c: docs/spec.md, every key of the spec in one table per section. */
#include <string.h>

#include "common/base/buf.h"
#include "common/spec/spec_keys.h"
#include "launcher/doc/doc.h"

static const char front[] =
    "# The spec\n\n"
    "All keys of the YAML file that `dslaunch up` reads; made from the table in "
    "common/spec/spec_keys.c\nby `make docs`.  docs/spec.schema.json is the same for editors: "
    "a "
    "first line\n`# yaml-language-server: $schema=PATH` lets VS Code's YAML extension complete "
    "and "
    "check.\n\n"
    "A time is a number and a unit (`500ms`, `30s`, `1h30m`).  A list of texts may be one "
    "text.  "
    "Hosts are\nhost lists, `\"gpu[001-004]\"`, or maps, `{host: gpu005, slots: 4}`.  A key "
    "that is "
    "marked * must stay\nas it is for a job to resume.  `--set train.steps=100` sets a key for "
    "one "
    "run.\n";

static void row(const struct spec_key *k, struct buf *out)
{
    char type[DOC_TEXT_MAX];
    const char *def = doc_default(k), *tick = def && strcmp(def, "required") != 0 ? "`" : "";
    (void)buf_printf(out, "| `%s`%s | %s | %s%s%s | %s |\n", k->path, k->fixed ? " *" : "",
                     doc_type(k, type), tick, def ? def : "", tick, k->help);
}

static void preset(struct buf *out, const char *name, const char *set)
{
    (void)buf_printf(out, "| `%s` | %s |\n", name, set);
}

void doc_spec_md(const struct command *table, struct buf *out)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n), *before = NULL;
    (void)table;
    (void)buf_puts(out, front);
    for (size_t i = 0; i < n; before = &keys[i++]) {
        size_t len = doc_section(&keys[i]);
        if (!before || len != doc_section(before) ||
            memcmp(before->path, keys[i].path, len) != 0)
            (void)buf_printf(out, "\n%s%.*s%s| key | value | default | |\n|---|---|---|---|\n",
                             len ? "## " : "", (int)len, keys[i].path, len ? "\n\n" : "");
        row(&keys[i], out);
    }
    (void)buf_puts(out, "\n## Presets\n\n| `model.preset` | sets, of `model` |\n|---|---|\n");
    doc_presets(out, preset);
}
