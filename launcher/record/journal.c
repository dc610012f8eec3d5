/* journal.c: append and fold.  The writers and the table of readers stand side by side, so that
 * a field's name is never spelled in a third place. */
#include "launcher/record/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/io.h"

enum { JOURNAL_BYTES_MAX = 64 << 20, JOURNAL_NODES_MAX = 1 << 16 };

struct journal {
    int fd;
    char *path;
};

/* Cuts off what follows the last newline: the line that a crash tore. */
static int cut_torn_line(int fd, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    off_t end = st.st_size;
    char chunk[4096];
    while (end > 0) {
        size_t n = end < (off_t)sizeof(chunk) ? (size_t)end : sizeof(chunk);
        if (io_pread_full(fd, chunk, n, end - (off_t)n, e) < 0)
            return err_wrap(e, "%s", path);
        const char *nl = memrchr(chunk, '\n', n);
        if (nl) {
            end = end - (off_t)n + (nl - chunk) + 1;
            break;
        }
        end -= (off_t)n;
    }
    if (end < st.st_size && ftruncate(fd, end) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", path);
    return 0;
}

struct journal *journal_open(const char *path, struct err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        err_sys_kind(e, ERR_STORAGE, "%s", path);
        return NULL;
    }
    if (cut_torn_line(fd, path, e) < 0)
        return NULL;
    struct journal *j = xcalloc(1, sizeof(*j));
    j->fd = TAKE_FD(fd);
    j->path = xstrdup(path);
    return j;
}

void journal_free(struct journal *j)
{
    if (!j)
        return;
    (void)close(j->fd);
    free(j->path);
    free(j);
}

/* `fmt` and what follows are json_pack's: an object of the kind's fields. */
static int record(struct journal *j, const char *kind, struct err *e, const char *fmt, ...)
{
    json_error_t je;
    va_list ap;
    va_start(ap, fmt);
    json_t *fields = json_vpack_ex(&je, 0, fmt, ap);
    va_end(ap);
    if (!fields)
        return err_set(e, ERR_STORAGE, "%s: %s: %s", j->path, kind, je.text);
    json_t *all = json_pack("{s:I, s:s}", "at_ms", (json_int_t)clock_wall_ms(), "kind", kind);
    json_object_update(all, fields);
    json_decref(fields);
    AUTO_FREE char *text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    AUTO_FREE char *line = xasprintf("%s\n", text ? text : "");
    if (io_append(j->fd, line, strlen(line), e) < 0)
        return err_wrap(e, "%s", j->path);
    if (fsync(j->fd) < 0)
        return err_sys_kind(e, ERR_STORAGE, "%s", j->path);
    return 0;
}

int journal_started(struct journal *j, const struct journal_start *s, struct err *e)
{
    return record(j, "started", e, "{s:s, s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:I}", "host",
                  s->host, "boot_id", s->boot_id, "pid", s->pid, "secret", s->secret, "run_dir",
                  s->run_dir, "checkpoint_dir", s->checkpoint_dir, "nodes",
                  (json_int_t)s->n_nodes, "world", (json_int_t)s->world, "steps",
                  (json_int_t)s->steps);
}

int journal_took_over(struct journal *j, const struct journal_start *s, struct err *e)
{
    return record(j, "took_over", e, "{s:s, s:s, s:i}", "host", s->host, "boot_id", s->boot_id,
                  "pid", s->pid);
}

int journal_agent(struct journal *j, uint32_t node, const char *host, uint32_t pid,
                  struct err *e)
{
    return record(j, "agent", e, "{s:I, s:s, s:I}", "node", (json_int_t)node, "host", host,
                  "pid", (json_int_t)pid);
}

int journal_agent_gone(struct journal *j, uint32_t node, const char *why, struct err *e)
{
    return record(j, "agent_gone", e, "{s:I, s:s}", "node", (json_int_t)node, "why", why);
}

int journal_generation(struct journal *j, uint32_t generation, struct err *e)
{
    return record(j, "generation", e, "{s:I}", "generation", (json_int_t)generation);
}

int journal_barrier(struct journal *j, uint32_t generation, struct err *e)
{
    return record(j, "barrier", e, "{s:I}", "generation", (json_int_t)generation);
}

int journal_checkpoint(struct journal *j, uint32_t generation, uint64_t step, const char *path,
                       struct err *e)
{
    return record(j, "checkpoint", e, "{s:I, s:I, s:s}", "generation", (json_int_t)generation,
                  "step", (json_int_t)step, "path", path);
}

int journal_failure(struct journal *j, uint32_t generation, const char *cause, const char *text,
                    bool restarts, struct err *e)
{
    return record(j, "failure", e, "{s:I, s:s, s:s, s:b}", "generation", (json_int_t)generation,
                  "cause", cause, "text", text, "restarts", (int)restarts);
}

int journal_stop_asked(struct journal *j, bool at_once, struct err *e)
{
    return record(j, "stop_asked", e, "{s:b}", "at_once", (int)at_once);
}

int journal_restart_asked(struct journal *j, struct err *e)
{
    return record(j, "restart_asked", e, "{}");
}

int journal_ended(struct journal *j, const char *outcome, int exit_code, uint64_t step,
                  struct err *e)
{
    return record(j, "ended", e, "{s:s, s:i, s:I}", "outcome", outcome, "exit_code", exit_code,
                  "step", (json_int_t)step);
}

/* Reading. */

static const char *str_of(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static int64_t int_of(json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static uint32_t u32_of(json_t *o, const char *key)
{
    int64_t v = int_of(o, key);
    return v < 0 || v > UINT32_MAX ? 0 : (uint32_t)v;
}

static void set_str(char **dst, const char *s)
{
    free(*dst);
    *dst = xstrdup(s);
}

static void fold_controller(struct journal_state *s, json_t *o)
{
    (void)snprintf(s->host, sizeof(s->host), "%s", str_of(o, "host"));
    (void)snprintf(s->boot_id, sizeof(s->boot_id), "%s", str_of(o, "boot_id"));
    s->pid = (int)int_of(o, "pid");
}

static void fold_started(struct journal_state *s, json_t *o)
{
    struct journal_state was = *s;
    *s = (struct journal_state){.started = true, .generation = was.generation};
    s->checkpoint_dir = xstrdup(str_of(o, "checkpoint_dir"));
    if (was.checkpoint_dir && strcmp(was.checkpoint_dir, s->checkpoint_dir) == 0) {
        s->checkpoint_step = was.checkpoint_step;
        s->checkpoint_path = TAKE(was.checkpoint_path);
    }
    journal_state_done(&was);
    s->started_ms = int_of(o, "at_ms");
    s->secret = xstrdup(str_of(o, "secret"));
    s->run_dir = xstrdup(str_of(o, "run_dir"));
    s->n_nodes = u32_of(o, "nodes");
    if (s->n_nodes > JOURNAL_NODES_MAX)
        s->n_nodes = 0;
    s->world = u32_of(o, "world");
    s->steps = u32_of(o, "steps");
    s->agent_live = xcalloc(s->n_nodes + 1, sizeof(*s->agent_live));
    s->agent_pid = xcalloc(s->n_nodes + 1, sizeof(*s->agent_pid));
    fold_controller(s, o);
}

static void fold_took_over(struct journal_state *s, json_t *o)
{
    fold_controller(s, o);
    s->stop_asked = s->stop_at_once = false;
}

static void fold_agent(struct journal_state *s, json_t *o)
{
    uint32_t node = u32_of(o, "node");
    if (node >= s->n_nodes)
        return;
    s->agent_live[node] = true;
    s->agent_pid[node] = u32_of(o, "pid");
}

static void fold_agent_gone(struct journal_state *s, json_t *o)
{
    uint32_t node = u32_of(o, "node");
    if (node < s->n_nodes)
        s->agent_live[node] = false;
}

static void fold_generation(struct journal_state *s, json_t *o)
{
    s->generation = u32_of(o, "generation");
    s->in_this_run = true;
    s->barrier = false;
    s->restart_asked = false;
}

static void fold_barrier(struct journal_state *s, json_t *o)
{
    if (u32_of(o, "generation") == s->generation)
        s->barrier = true;
}

static void fold_checkpoint(struct journal_state *s, json_t *o)
{
    s->checkpoint_step = (uint64_t)int_of(o, "step");
    set_str(&s->checkpoint_path, str_of(o, "path"));
}

static void fold_failure(struct journal_state *s, json_t *o)
{
    set_str(&s->failure, str_of(o, "text"));
    if (!json_is_true(json_object_get(o, "restarts")))
        return;
    s->restart_ms = xrealloc_array(s->restart_ms, s->n_restarts + 1, sizeof(*s->restart_ms));
    s->restart_ms[s->n_restarts++] = int_of(o, "at_ms");
}

static void fold_stop_asked(struct journal_state *s, json_t *o)
{
    s->stop_asked = true;
    s->stop_at_once |= json_is_true(json_object_get(o, "at_once"));
}

static void fold_restart_asked(struct journal_state *s, json_t *o)
{
    (void)o;
    s->restart_asked = true;
}

static void fold_ended(struct journal_state *s, json_t *o)
{
    s->ended = true;
    s->ended_ms = int_of(o, "at_ms");
    s->exit_code = (int)int_of(o, "exit_code");
    (void)snprintf(s->outcome, sizeof(s->outcome), "%s", str_of(o, "outcome"));
    s->step = (uint64_t)int_of(o, "step");
}

static const struct {
    const char *kind;
    void (*fold)(struct journal_state *s, json_t *o);
} folds[] = {
    {"started", fold_started},       {"took_over", fold_took_over},
    {"agent", fold_agent},           {"agent_gone", fold_agent_gone},
    {"generation", fold_generation}, {"barrier", fold_barrier},
    {"checkpoint", fold_checkpoint}, {"failure", fold_failure},
    {"stop_asked", fold_stop_asked}, {"restart_asked", fold_restart_asked},
    {"ended", fold_ended},
};

/* Kinds of a newer program are passed over. */
static void fold_record(struct journal_state *s, json_t *o)
{
    const char *kind = str_of(o, "kind");
    if (!s->started && strcmp(kind, "started") != 0)
        return;
    for (size_t i = 0; i < sizeof(folds) / sizeof(folds[0]); i++)
        if (strcmp(kind, folds[i].kind) == 0)
            folds[i].fold(s, o);
}

int journal_read(const char *path, struct journal_state *s, struct err *e)
{
    struct journal_state st = {0};
    if (access(path, F_OK) < 0 && errno == ENOENT) {
        *s = st;
        return 0;
    }
    AUTO_BUF struct buf b = BUF(JOURNAL_BYTES_MAX);
    if (io_read_file(path, &b, e) < 0)
        return -1;
    const char *p = b.data, *end = b.data + b.len;
    for (unsigned line = 1; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl)
            break; /* torn by a crash: never acted on */
        json_t *o = json_loadb(p, (size_t)(nl - p), 0, NULL);
        if (!json_is_object(o)) {
            json_decref(o);
            journal_state_done(&st);
            return err_set(e, ERR_STORAGE, "%s:%u: not a JSON object", path, line);
        }
        fold_record(&st, o);
        json_decref(o);
        p = nl + 1;
    }
    *s = st;
    return 0;
}

void journal_state_done(struct journal_state *s)
{
    free(s->secret);
    free(s->run_dir);
    free(s->checkpoint_dir);
    free(s->agent_live);
    free(s->agent_pid);
    free(s->restart_ms);
    free(s->checkpoint_path);
    free(s->failure);
    *s = (struct journal_state){0};
}
