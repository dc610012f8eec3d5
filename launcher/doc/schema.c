/* schema.c: the spec as JSON Schema (draft 07), so that an editor completes, explains and
 * checks it.
 *
 * The schema is of one mind with the parser in names, types, ranges and what must be given.  It
 * says less in two places, where only `dslaunch plan` tells: ranges of times, and rules between
 * keys.  It says more in one: a key without a value is refused.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/own.h"
#include "common/spec/spec_keys.h"
#include "launcher/doc/doc.h"

/* As common/base/units.c reads them. */
#define NUMBER "[0-9]+(\\.[0-9]+)?"
#define TERM(unit) "(" NUMBER unit ")?"
#define TIME \
    "(?=[0-9])" TERM("d") TERM("h") TERM("m") TERM("s") TERM("ms") TERM("us") TERM("ns")

static void put(json_t *o, const char *name, json_t *v)
{
    (void)json_object_set_new(o, name, v);
}

static json_t *number(double v)
{
    return v == (double)(json_int_t)v ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *numbers(const struct spec_key *k, const char *type)
{
    json_t *o = json_pack("{s:s}", "type", type);
    put(o, "minimum", number(k->min));
    put(o, "maximum", number(k->max));
    return o;
}

/* Blank-separated words as an array. */
static json_t *words(const char *text)
{
    json_t *a = json_array();
    while (*text) {
        size_t n = strcspn(text, " ");
        (void)json_array_append_new(a, json_stringn(text, n));
        text += n + (text[n] == ' ');
    }
    return a;
}

static json_t *list_of(json_t *item)
{
    return json_pack("{s:s, s:o}", "type", "array", "items", item);
}

static json_t *duration(const struct spec_key *k)
{
    json_t *o = json_object();
    put(o, "type", k->min > 0 ? json_string("string") : words("string integer"));
    put(o, "pattern", json_string(k->max >= 1e9 ? "^(never|" TIME ")$" : "^" TIME "$"));
    if (!(k->min > 0)) { /* a bare 0 is the only number */
        put(o, "minimum", json_integer(0));
        put(o, "maximum", json_integer(0));
    }
    return o;
}

static json_t *nodes(void)
{
    return json_loads("{\"type\": [\"string\", \"array\"], \"minItems\": 1, \"items\": {"
                      " \"type\": [\"string\", \"object\"],"
                      " \"properties\": {"
                      "  \"host\": {\"type\": \"string\", \"description\": \"a host list\"},"
                      "  \"slots\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 1024,"
                      "   \"description\": \"workers on each\"}},"
                      " \"required\": [\"host\"], \"additionalProperties\": false}}",
                      0, NULL);
}

static json_t *pair(const struct spec_key *k)
{
    json_t *o = list_of(numbers(k, "number"));
    put(o, "minItems", json_integer(2));
    put(o, "maxItems", json_integer(2));
    return o;
}

static json_t *type_of(const struct spec_key *k)
{
    switch (k->kind) {
    case KEY_STRING:
        if (strcmp(k->path, "model.preset") == 0)
            return json_pack("{s:s, s:o}", "type", "string", "enum",
                             words(spec_preset_names()));
        return json_pack("{s:s}", "type", "string");
    case KEY_U32:
    case KEY_U64:
        return numbers(k, "integer");
    case KEY_REAL:
        return numbers(k, "number");
    case KEY_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case KEY_DURATION:
        return duration(k);
    case KEY_WORD:
        return json_pack("{s:s, s:o}", "type", "string", "enum", words(k->words));
    case KEY_STRINGS: /* one word counts as a list of one */
        return json_pack("{s:o, s:{s:s, s:i}}", "type", words("string array"), "items", "type",
                         "string", "minLength", 1);
    case KEY_COUNTS:
        return list_of(numbers(k, "integer"));
    case KEY_PAIR:
        return pair(k);
    case KEY_ENV:
        return json_pack("{s:s, s:{s:s}, s:{s:o}}", "type", "object", "propertyNames",
                         "pattern", "^[A-Za-z_][A-Za-z0-9_]*$", "additionalProperties", "type",
                         words("string number boolean"));
    case KEY_NODES:
        return nodes();
    }
    return NULL;
}

/* A default is YAML; where that is no JSON it is a bare word. */
static void put_default(json_t *o, const struct spec_key *k)
{
    const char *def = doc_default(k);
    if (!def || strcmp(def, "required") == 0 || strcmp(k->path, "model.preset") == 0)
        return;
    json_t *v = json_loads(def, JSON_DECODE_ANY, NULL);
    put(o, "default", v ? v : json_string(def));
}

static json_t *property(const struct spec_key *k)
{
    char type[DOC_TEXT_MAX];
    json_t *o = json_object(), *checks = type_of(k);
    bool range = k->max > k->min;
    AUTO_FREE char *text =
        xasprintf("%s%s%s%s%s", k->help, range ? " (" : "", range ? doc_type(k, type) : "",
                  range ? ")" : "", k->fixed ? "; a resume refuses another" : "");
    put(o, "description", json_string(text));
    (void)json_object_update(o, checks);
    json_decref(checks);
    put_default(o, k);
    return o;
}

static json_t *section(void)
{
    return json_pack("{s:s, s:b, s:{}}", "type", "object", "additionalProperties", 0,
                     "properties");
}

static void require(json_t *in, const char *name, size_t len)
{
    json_t *a = json_object_get(in, "required");
    if (!a)
        put(in, "required", a = json_array());
    for (size_t i = 0; i < json_array_size(a); i++)
        if (json_string_length(json_array_get(a, i)) == len &&
            memcmp(json_string_value(json_array_get(a, i)), name, len) == 0)
            return;
    (void)json_array_append_new(a, json_stringn(name, len));
}

/* Puts the key where its path leads, making sections on the way; what holds a required key is
 * itself required. */
static void add_key(json_t *root, const struct spec_key *k)
{
    bool needed = k->def && strcmp(k->def, "!") == 0;
    const char *name = k->path;
    for (const char *dot; (dot = strchr(name, '.')); name = dot + 1) {
        AUTO_FREE char *part = xstrndup(name, (size_t)(dot - name));
        json_t *all = json_object_get(root, "properties");
        if (!json_object_get(all, part))
            put(all, part, section());
        if (needed)
            require(root, part, strlen(part));
        root = json_object_get(all, part);
    }
    put(json_object_get(root, "properties"), name, property(k));
    if (needed)
        require(root, name, strlen(name));
}

/* A preset gives what a model needs. */
static void preset_or_all(json_t *root)
{
    json_t *model = json_object_get(json_object_get(root, "properties"), "model");
    json_t *all = json_incref(json_object_get(model, "required"));
    (void)json_object_del(model, "required");
    put(model, "anyOf", json_pack("[{s:[s]}, {s:o}]", "required", "preset", "required", all));
}

void doc_schema(const struct command *table, struct buf *out)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);
    json_t *root = json_pack("{s:s, s:s}", "$schema", "http://json-schema.org/draft-07/schema#",
                             "title", "the spec of a job for dslaunch");
    json_t *top = section();
    (void)table;
    (void)json_object_update(root, top);
    json_decref(top);
    for (size_t i = 0; i < n; i++)
        add_key(root, &keys[i]);
    preset_or_all(root);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    (void)buf_printf(out, "%s\n", text);
    free(text);
    json_decref(root);
}
