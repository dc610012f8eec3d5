#include "launcher/record/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"

int secret_make(const char *path, uint8_t ret[SECRET_BYTES], struct err *e)
{
    if (getrandom(ret, SECRET_BYTES, 0) != SECRET_BYTES)
        return err_sys(e, "getrandom");
    if (unlink(path) < 0 && errno != ENOENT)
        return err_sys(e, "%s", path);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, "%s", path);
    return io_write_full(fd, ret, SECRET_BYTES, e);
}

int secret_read(const char *path, uint8_t ret[SECRET_BYTES], struct err *e)
{
    struct stat st;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "%s", path);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return err_set(e, ERR_SYSTEM, "%s: not a private file of this user", path);
    return io_read_full(fd, ret, SECRET_BYTES, e);
}
