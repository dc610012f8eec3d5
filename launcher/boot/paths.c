#include "launcher/boot/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/own.h"

enum { JOB_NAME_MAX = 32, RUN_ROOT_MAX = 40 }; /* root + job + agent-4294967295.sock < 108 */

static int check_job(const char *job, struct err *e)
{
    size_t n = strspn(job, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    if (n == 0 || n > JOB_NAME_MAX || job[n] || job[0] == '-' || job[0] == '_')
        return err_set(e, ERR_USAGE, "'%.64s' is no job name", job);
    return 0;
}

/* The folder above all jobs' run-time folders. */
static char *run_root(void)
{
    const char *x = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    if (x && *x == '/' && strlen(x) + sizeof "/dslaunch" <= RUN_ROOT_MAX && stat(x, &st) == 0 &&
        S_ISDIR(st.st_mode) && st.st_uid == geteuid())
        return xasprintf("%s/dslaunch", x);
    return xasprintf("/tmp/dslaunch-%u", (unsigned)geteuid());
}

static char *run_dir(const char *job, struct err *e)
{
    if (check_job(job, e) < 0)
        return NULL;
    AUTO_FREE char *root = run_root();
    return xasprintf("%s/%s", root, job);
}

/* 0700 and ours, whoever made it.  *gone: it was removed meanwhile (a job ended). */
static int private_dir(const char *path, bool *gone, struct err *e)
{
    struct stat st;
    *gone = false;
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        *gone = errno == ENOENT;
        return err_sys(e, "%s", path);
    }
    if (lstat(path, &st) < 0) {
        *gone = errno == ENOENT;
        return err_sys(e, "%s", path);
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return err_set(e, ERR_SYSTEM, "%s: not a folder of this user; remove it", path);
    if ((st.st_mode & 077) && chmod(path, 0700) < 0)
        return err_sys(e, "%s", path);
    return 0;
}

char *paths_run_dir(const char *job, struct err *e)
{
    AUTO_FREE char *dir = run_dir(job, e);
    AUTO_FREE char *root = run_root();
    if (!dir)
        return NULL;
    for (int tries = 0;; tries++) { /* another job's end may remove the root between the two */
        bool gone;
        if (private_dir(root, &gone, e) == 0 && private_dir(dir, &gone, e) == 0)
            return TAKE(dir);
        if (!gone || tries == 100)
            return NULL;
    }
}

char *paths_agent_socket(const char *job, uint32_t node, struct err *e)
{
    AUTO_FREE char *dir = run_dir(job, e);
    return dir ? xasprintf("%s/agent-%u.sock", dir, node) : NULL;
}

char *paths_control_socket(const char *job, struct err *e)
{
    AUTO_FREE char *dir = run_dir(job, e);
    return dir ? xasprintf("%s/control.sock", dir) : NULL;
}

char *paths_state_root(struct err *e)
{
    const char *home = getenv("DSLAUNCH_HOME");
    if (home && *home == '/')
        return xstrdup(home);
    if (home && *home) {
        (void)err_set(e, ERR_USAGE, "DSLAUNCH_HOME must be an absolute path, not '%s'", home);
        return NULL;
    }
    const char *xdg = getenv("XDG_STATE_HOME");
    if (xdg && *xdg == '/')
        return xasprintf("%s/dslaunch", xdg);
    home = getenv("HOME");
    if (!home || *home != '/') {
        (void)err_set(e, ERR_USAGE, "neither DSLAUNCH_HOME nor HOME is set");
        return NULL;
    }
    return xasprintf("%s/.local/state/dslaunch", home);
}

char *paths_state_dir(const char *job, struct err *e)
{
    if (check_job(job, e) < 0)
        return NULL;
    AUTO_FREE char *root = paths_state_root(e);
    return root ? xasprintf("%s/%s", root, job) : NULL;
}

static int unix_socket(const char *path, struct sockaddr_un *a, struct err *e)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n >= sizeof a->sun_path)
        return err_set(e, ERR_USAGE, "%s: too long for a socket", path);
    memcpy(a->sun_path, path, n + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? err_sys(e, "socket") : fd;
}

int paths_connect(const char *socket_path, struct err *e)
{
    struct sockaddr_un a;
    AUTO_CLOSE int fd = unix_socket(socket_path, &a, e);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) < 0)
        return err_sys_kind(e, ERR_NETWORK, "%s", socket_path);
    return TAKE_FD(fd);
}

/* The folder's lock makes look, unlink and bind one step, so that two starters cannot both win.
 */
static int lock_folder_of(const char *path, struct err *e)
{
    AUTO_FREE char *dir = xstrdup(path);
    char *slash = strrchr(dir, '/');
    if (slash)
        *slash = 0;
    AUTO_CLOSE int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return err_sys(e, "%s", dir);
    return TAKE_FD(fd);
}

int paths_listen(const char *socket_path, struct err *e)
{
    struct sockaddr_un a;
    AUTO_CLOSE int lock = lock_folder_of(socket_path, e);
    if (lock < 0)
        return -1;
    AUTO_CLOSE int other = paths_connect(socket_path, NULL);
    if (other >= 0)
        return err_set(e, ERR_USAGE, "%s: someone listens there already", socket_path);
    if (unlink(socket_path) < 0 && errno != ENOENT)
        return err_sys(e, "%s", socket_path);
    AUTO_CLOSE int fd = unix_socket(socket_path, &a, e);
    if (fd < 0)
        return -1;
    if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 ||
        chmod(socket_path, 0600) < 0 || listen(fd, 64) < 0)
        return err_sys(e, "%s", socket_path);
    return TAKE_FD(fd);
}

void paths_sweep(const char *job)
{
    AUTO_FREE char *dir = run_dir(job, NULL);
    AUTO_FREE char *any = dir ? xasprintf("%s/x", dir) : NULL;
    AUTO_CLOSE int lock = any ? lock_folder_of(any, NULL) : -1;
    DIR *d = lock < 0 ? NULL : opendir(dir);
    if (!d)
        return;
    for (const struct dirent *f; (f = readdir(d));) {
        size_t n = strlen(f->d_name);
        if (n < 5 || strcmp(f->d_name + n - 5, ".sock") != 0)
            continue;
        AUTO_FREE char *path = xasprintf("%s/%s", dir, f->d_name);
        AUTO_CLOSE int live = paths_connect(path, NULL);
        if (live < 0 && errno == ECONNREFUSED)
            (void)unlink(path);
    }
    (void)closedir(d);
    paths_leave(job);
}

void paths_leave(const char *job)
{
    AUTO_FREE char *dir = run_dir(job, NULL);
    AUTO_FREE char *root = run_root();
    if (dir && rmdir(dir) == 0)
        (void)rmdir(root);
}
