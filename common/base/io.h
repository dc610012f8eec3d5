/* io.h: whole reads and writes, and files that are either old or new but never torn. */
#ifndef DS_BASE_IO_H
#define DS_BASE_IO_H

#include <stddef.h>
#include <sys/types.h>

struct buf;
struct err;

/* Loop over EINTR and short counts.  For blocking fds.  io_read_full fails on an early end. */
int io_write_full(int fd, const void *p, size_t n, struct err *e);
/* At the end of a regular file, all of it or nothing: a full disk leaves no torn line for the
 * next one to be glued to.  kind ERR_STORAGE. */
int io_append(int fd, const void *p, size_t n, struct err *e);
int io_read_full(int fd, void *p, size_t n, struct err *e);
int io_pread_full(int fd, void *p, size_t n, off_t off, struct err *e);

/* Appends the whole file to `b`; a file beyond b's cap, a directory or a device is an error
 * that names the path.  kind ERR_STORAGE. */
int io_read_file(const char *path, struct buf *b, struct err *e);
/* Writes path.tmp, fsyncs, renames, fsyncs the folder; after a failure path.tmp is gone and
 * `path` is as before.  kind ERR_STORAGE. */
int io_replace_file(const char *path, const void *p, size_t n, struct err *e);
int io_fsync_dir(const char *path, struct err *e);
/* mkdir -p; the folders it makes get `mode`. */
int io_mkdirs(const char *path, mode_t mode, struct err *e);
/* rm -rf, without following links; a missing path is fine. */
int io_remove_tree(const char *path, struct err *e);

#endif
