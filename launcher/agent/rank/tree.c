#include "launcher/agent/rank/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/own.h"

enum { DEPTH_MAX = 4096 };

struct entry {
    pid_t pid, parent;
    char state;
};

struct table {
    struct entry *at;
    size_t n, room;
};

struct tree_stat tree_stat(pid_t pid)
{
    char path[32], text[1024];
    struct tree_stat s = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return s;
    text[n] = 0;
    /* pid (comm) state ppid ...: comm may hold anything, so the last ')' counts. */
    const char *p = strrchr(text, ')');
    int parent = 0;
    long rss_pages = 0;
    if (!p || sscanf(p + 1,
                     " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                     "%*d %*u %*u %ld",
                     &s.state, &parent, &rss_pages) < 2)
        return (struct tree_stat){0};
    s.parent = parent;
    s.rss_bytes = rss_pages > 0 ? (uint64_t)rss_pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    return s;
}

static int by_pid(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static int scan(struct table *t, struct err *e)
{
    DIR *d = opendir("/proc");
    if (!d)
        return err_sys(e, "/proc");
    for (const struct dirent *f; (f = readdir(d));) {
        char *end;
        if (f->d_name[0] < '1' || f->d_name[0] > '9')
            continue;
        long pid = strtol(f->d_name, &end, 10);
        struct tree_stat s = *end ? (struct tree_stat){0} : tree_stat((pid_t)pid);
        if (!s.state)
            continue;
        if (t->n == t->room)
            t->at = xrealloc_array(t->at, t->room = t->room ? 2 * t->room : 256, sizeof *t->at);
        t->at[t->n++] = (struct entry){(pid_t)pid, s.parent, s.state};
    }
    (void)closedir(d);
    if (t->n)
        qsort(t->at, t->n, sizeof *t->at, by_pid);
    return 0;
}

static bool spared(pid_t pid, const pid_t *spare, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (spare[i] == pid)
            return true;
    return false;
}

/* Is `root` above this entry, with none of `spare` in it or between? */
static bool below(const struct table *t, const struct entry *x, pid_t root, const pid_t *spare,
                  size_t n)
{
    for (int depth = 0; x && depth < DEPTH_MAX; depth++) {
        if (x->pid == root || spared(x->pid, spare, n))
            return false;
        if (x->parent == root)
            return true;
        struct entry key = {.pid = x->parent};
        x = bsearch(&key, t->at, t->n, sizeof *t->at, by_pid);
    }
    return false;
}

int tree_kill(pid_t root, const pid_t *spare, size_t n, struct err *e)
{
    struct table t = {0};
    int killed = 0;
    if (scan(&t, e) < 0)
        return -1;
    for (size_t i = 0; i < t.n; i++)
        if (t.at[i].state != 'Z' && below(&t, &t.at[i], root, spare, n) &&
            kill(t.at[i].pid, SIGKILL) == 0)
            killed++;
    free(t.at);
    return killed;
}

pid_t tree_stuck(pid_t root)
{
    struct table t = {0};
    pid_t stuck = 0;
    if (scan(&t, NULL) < 0)
        return 0;
    for (size_t i = 0; i < t.n && !stuck; i++)
        if (t.at[i].state == 'D' && below(&t, &t.at[i], root, NULL, 0))
            stuck = t.at[i].pid;
    free(t.at);
    return stuck;
}
