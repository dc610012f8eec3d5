/* dsagent travels to hosts where nothing is installed: it may need libc, libm and the loader
 * only, and of libc nothing newer than 2.34.  Read from the program itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/io.h"
#include "common/base/own.h"

enum { PROGRAM_MAX = 64 << 20, MINOR_MAX = 34 };

static const Elf64_Shdr *section(const char *elf, uint32_t type)
{
    const Elf64_Ehdr *h = (const void *)elf;
    const Elf64_Shdr *s = (const void *)(elf + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++)
        if (s[i].sh_type == type)
            return &s[i];
    return NULL;
}

/* build/tests/unit/test_agent_elf -> build/dsagent */
static char *program(void)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    for (int up = 0; up < 3; up++)
        *strrchr(self, '/') = 0;
    return xasprintf("%s/dsagent", self);
}

static void test_needed(void **state)
{
    static const char *const allowed[] = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"};
    AUTO_BUF struct buf b = BUF(PROGRAM_MAX);
    AUTO_FREE char *path = program();
    struct err e;
    int seen = 0;
    (void)state;
    if (io_read_file(path, &b, &e) < 0)
        fail_msg("%s (run make first)", e.text);
    const Elf64_Ehdr *h = (const void *)b.data;
    assert_memory_equal(h->e_ident, ELFMAG, SELFMAG);
    if (h->e_machine != EM_X86_64)
        skip();
    const Elf64_Shdr *sections = (const void *)(b.data + h->e_shoff);
    const Elf64_Shdr *dyn = section(b.data, SHT_DYNAMIC);
    assert_non_null(dyn);
    const char *names = b.data + sections[dyn->sh_link].sh_offset;
    for (size_t i = 0; i < dyn->sh_size / sizeof(Elf64_Dyn); i++) {
        const Elf64_Dyn *d = (const Elf64_Dyn *)(const void *)(b.data + dyn->sh_offset) + i;
        bool ok = d->d_tag != DT_NEEDED;
        for (size_t k = 0; !ok && k < sizeof allowed / sizeof *allowed; k++)
            ok = strcmp(names + d->d_un.d_val, allowed[k]) == 0;
        if (!ok)
            fail_msg("dsagent needs %s", names + d->d_un.d_val);
        seen += d->d_tag == DT_NEEDED;
    }
    assert_true(seen > 0);
}

static void test_glibc(void **state)
{
    AUTO_BUF struct buf b = BUF(PROGRAM_MAX);
    AUTO_FREE char *path = program();
    struct err e;
    int seen = 0;
    (void)state;
    if (io_read_file(path, &b, &e) < 0)
        fail_msg("%s (run make first)", e.text);
    const Elf64_Ehdr *h = (const void *)b.data;
    const Elf64_Shdr *sections = (const void *)(b.data + h->e_shoff);
    const Elf64_Shdr *need = section(b.data, SHT_GNU_verneed);
    assert_non_null(need);
    const char *names = b.data + sections[need->sh_link].sh_offset;
    const char *at = b.data + need->sh_offset;
    for (uint32_t i = 0; i < need->sh_info; i++) {
        const Elf64_Verneed *v = (const void *)at;
        const char *aux = at + v->vn_aux;
        for (int k = 0; k < v->vn_cnt; k++) {
            const Elf64_Vernaux *x = (const void *)aux;
            const char *name = names + x->vna_name;
            if (strncmp(name, "GLIBC_2.", 8) == 0) {
                if (strtol(name + 8, NULL, 10) > MINOR_MAX)
                    fail_msg("dsagent needs %s", name);
                seen++;
            }
            aux += x->vna_next;
        }
        at += v->vn_next;
    }
    assert_true(seen > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needed),
        cmocka_unit_test(test_glibc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
