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
#include "common/base/log.h"
#include "common/base/own.h"

enum { JOB_NAME_MAX = 32, RUN_ROOT_MAX = 40 }; /* root + job + agent-4294967295.sock < 108 */
enum { MAKE_TRIES = 100 };

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

char *paths_run_dir(const char *job, struct err *e)
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

static char *in_run_dir(const char *job, const char *name, struct err *e)
{
    AUTO_FREE char *dir = paths_run_dir(job, e);
    return dir ? xasprintf("%s/%s", dir, name) : NULL;
}

char *paths_agent_socket(const char *job, uint32_t node, struct err *e)
{
    AUTO_FREE char *name = xasprintf("agent-%u.sock", node);
    return in_run_dir(job, name, e);
}

char *paths_control_socket(const char *job, struct err *e)
{
    return in_run_dir(job, "control.sock", e);
}

char *paths_secret(const char *job, struct err *e)
{
    return in_run_dir(job, "secret", e);
}

char *paths_rdzv(const char *job, struct err *e)
{
    return in_run_dir(job, "rdzv", e);
}

char *paths_program(const char *variable, const char *name, struct err *e)
{
    const char *given = getenv(variable);
    char self[4096];
    if (given && *given == '/')
        return xstrdup(given);
    if (given && *given) {
        (void)err_set(e, ERR_USAGE, "%s must be an absolute path, not '%s'", variable, given);
        return NULL;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) {
        (void)err_sys(e, "/proc/self/exe");
        return NULL;
    }
    self[n] = 0;
    *strrchr(self, '/') = 0;
    return xasprintf("%s/%s", self, name);
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
static int lock_folder(const char *dir, struct err *e)
{
    AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return err_sys(e, "%s", dir);
    return TAKE_FD(fd);
}

static int listen_at(const char *socket_path, struct err *e)
{
    struct sockaddr_un a;
    AUTO_CLOSE int other = paths_connect(socket_path, NULL);
    if (other >= 0 || errno == EAGAIN) /* EAGAIN: its queue is full */
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

/* Another job's end may remove the root, and another agent's the folder, at any moment before
 * there is a socket in it. */
int paths_listen(const char *job, const char *socket_path, struct err *e)
{
    AUTO_FREE char *dir = paths_run_dir(job, e);
    AUTO_FREE char *root = run_root();
    for (int tries = 0; dir && tries < MAKE_TRIES; tries++) {
        bool gone;
        if (private_dir(root, &gone, e) < 0 || private_dir(dir, &gone, e) < 0) {
            if (gone)
                continue;
            return -1;
        }
        AUTO_CLOSE int lock = lock_folder(dir, e);
        int fd = lock < 0 ? -1 : listen_at(socket_path, e);
        if (fd >= 0 || e->kind == ERR_USAGE || access(dir, F_OK) == 0)
            return fd;
    }
    return -1;
}

bool paths_listen_again(const char *job, const char *socket_path, int fd)
{
    AUTO_FREE char *root = run_root();
    size_t n = strlen(root);
    if (strncmp(socket_path, root, n) != 0 || socket_path[n] != '/')
        return false; /* $XDG_RUNTIME_DIR itself is away */
    AUTO_CLOSE int anew = paths_listen(job, socket_path, NULL);
    return anew >= 0 && dup3(anew, fd, O_CLOEXEC) == fd;
}

int paths_accept(int listen_fd)
{
    struct ucred u;
    socklen_t n = sizeof u;
    AUTO_CLOSE int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &n) < 0 ||
        (u.uid != geteuid() && u.uid != 0)) {
        log_warn("another user's connection was refused");
        return -1;
    }
    return TAKE_FD(fd);
}

/* Removes the dead sockets; true if none is left. */
static bool sweep_sockets(const char *dir)
{
    bool none = true;
    DIR *d = opendir(dir);
    if (!d)
        return false;
    for (const struct dirent *f; (f = readdir(d));) {
        size_t n = strlen(f->d_name);
        if (n < 5 || strcmp(f->d_name + n - 5, ".sock") != 0)
            continue;
        AUTO_FREE char *path = xasprintf("%s/%s", dir, f->d_name);
        AUTO_CLOSE int live = paths_connect(path, NULL);
        if (live < 0 && errno == ECONNREFUSED)
            (void)unlink(path);
        else
            none = false;
    }
    (void)closedir(d);
    return none;
}

void paths_sweep(const char *job)
{
    AUTO_FREE char *dir = paths_run_dir(job, NULL);
    AUTO_FREE char *root = run_root();
    AUTO_CLOSE int lock = dir ? lock_folder(dir, NULL) : -1;
    if (lock < 0 || !sweep_sockets(dir))
        return;
    AUTO_FREE char *secret = paths_secret(job, NULL);
    AUTO_FREE char *rdzv = paths_rdzv(job, NULL);
    (void)unlink(secret);
    (void)unlink(rdzv);
    if (rmdir(dir) == 0)
        (void)rmdir(root);
}
