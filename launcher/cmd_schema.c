/* cmd_schema.c: `dslaunch schema`, and the hidden command that writes the generated files. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"
#include "launcher/cmd.h"
#include "launcher/doc/doc.h"

enum { DOCUMENT_MAX = 1 << 20 };

int cmd_schema(int argc, char **argv)
{
    AUTO_BUF struct buf out = BUF(DOCUMENT_MAX);
    (void)argv;
    if (argc != 1)
        return cmd_usage("schema");
    doc_schema(commands, &out);
    if (fputs(buf_str(&out), stdout) == EOF || fflush(stdout) != 0) {
        perror("dslaunch: standard output");
        return 1;
    }
    return 0;
}

static int write_doc(const char *root, const struct doc_file *f, struct err *e)
{
    AUTO_BUF struct buf out = BUF(DOCUMENT_MAX);
    AUTO_FREE char *path = xasprintf("%s/%s", root, f->path);
    f->write(commands, &out);
    if (out.full)
        return err_set(e, ERR_MEMORY, "%s: more than %d bytes", f->path, DOCUMENT_MAX);
    char *slash = strrchr(path, '/');
    *slash = 0;
    if (io_mkdirs(path, 0755, e) < 0)
        return -1;
    *slash = '/';
    return io_replace_file(path, out.data, out.len, e);
}

int cmd_doc(int argc, char **argv)
{
    struct err e;
    if (argc != 2)
        return cmd_usage("doc");
    for (const struct doc_file *f = doc_files; f->path; f++)
        if (write_doc(argv[1], f, &e) < 0)
            return cmd_error("doc", &e);
    return 0;
}
