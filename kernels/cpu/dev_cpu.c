/* dev_cpu.c: the host as a device.  Streams run at once, so that events are always complete. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/own.h"
#include "kernels/dev.h"

/* Nothing is kept in them: work is done when the call returns. */
struct dev_stream {
    char none;
};
struct dev_event {
    char none;
};

static int cpu_mem_info(struct dev *d, struct dev_mem *ret, struct err *e)
{
    (void)d;
    AUTO_FCLOSE FILE *f = fopen("/proc/meminfo", "re");
    if (!f)
        return err_sys(e, "/proc/meminfo");
    struct dev_mem mem = {0};
    char line[128];
    while (fgets(line, sizeof(line), f)) {
        uint64_t kib;
        if (sscanf(line, "MemTotal: %" SCNu64, &kib) == 1)
            mem.total_bytes = kib << 10;
        else if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            mem.free_bytes = kib << 10;
    }
    if (!mem.total_bytes || !mem.free_bytes)
        return err_set(e, ERR_SYSTEM, "/proc/meminfo: MemTotal or MemAvailable is missing");
    *ret = mem;
    return 0;
}

/* Asks first: Linux promises more than it has, and would kill us at the first write. */
static int cpu_alloc(struct dev *d, size_t bytes, void **ret, struct err *e)
{
    struct dev_mem mem;
    if (cpu_mem_info(d, &mem, e) != 0)
        return -1;
    size_t rounded = (bytes + 255) & ~(size_t)255;
    void *p = NULL;
    if (bytes <= mem.free_bytes)
        p = aligned_alloc(256, rounded ? rounded : 256);
    if (!p)
        return err_set(e, ERR_MEMORY,
                       "cpu: %zu bytes asked for, %" PRIu64 " of %" PRIu64 " free", bytes,
                       mem.free_bytes, mem.total_bytes);
    memset(p, 0, rounded);
    *ret = p;
    return 0;
}

static void cpu_free(struct dev *d, void *p)
{
    (void)d;
    free(p);
}

static struct dev_stream *cpu_stream_new(struct dev *d, struct err *e)
{
    (void)d, (void)e;
    return xcalloc(1, sizeof(struct dev_stream));
}

static void cpu_stream_free(struct dev *d, struct dev_stream *s)
{
    (void)d;
    free(s);
}

static int cpu_copy_async(struct dev *d, void *dst, const void *src, size_t bytes,
                          struct dev_stream *s, struct err *e)
{
    (void)d, (void)s, (void)e;
    if (bytes)
        memcpy(dst, src, bytes);
    return 0;
}

static int cpu_zero_async(struct dev *d, void *dst, size_t bytes, struct dev_stream *s,
                          struct err *e)
{
    (void)d, (void)s, (void)e;
    if (bytes)
        memset(dst, 0, bytes);
    return 0;
}

static struct dev_event *cpu_event_new(struct dev *d, struct err *e)
{
    (void)d, (void)e;
    return xcalloc(1, sizeof(struct dev_event));
}

static void cpu_event_free(struct dev *d, struct dev_event *v)
{
    (void)d;
    free(v);
}

static int cpu_event_record(struct dev *d, struct dev_event *v, struct dev_stream *s,
                            struct err *e)
{
    (void)d, (void)v, (void)s, (void)e;
    return 0;
}

static int cpu_stream_wait(struct dev *d, struct dev_stream *s, struct dev_event *v,
                           struct err *e)
{
    (void)d, (void)s, (void)v, (void)e;
    return 0;
}

static bool cpu_event_done(struct dev *d, struct dev_event *v)
{
    (void)d, (void)v;
    return true;
}

static int cpu_event_wait(struct dev *d, struct dev_event *v, int64_t deadline_ns,
                          struct err *e)
{
    (void)d, (void)v, (void)deadline_ns, (void)e;
    return 0;
}

static int cpu_graph_begin(struct dev *d, struct dev_stream *s, struct err *e)
{
    (void)d, (void)s, (void)e;
    return 0;
}

static struct dev_graph *cpu_graph_end(struct dev *d, struct dev_stream *s, struct err *e)
{
    (void)d, (void)s, (void)e;
    return NULL;
}

static int cpu_graph_launch(struct dev *d, struct dev_graph *g, struct dev_stream *s,
                            struct err *e)
{
    (void)d, (void)g, (void)s;
    return err_set(e, ERR_USAGE, "cpu: there are no graphs to launch");
}

static void cpu_graph_free(struct dev *d, struct dev_graph *g)
{
    (void)d;
    assert(!g);
}

static void cpu_dev_close(struct dev *d)
{
    free(d);
}

struct dev *dev_cpu_open(struct err *e)
{
    (void)e;
    struct dev *d = xmalloc(sizeof(*d));
    *d = (struct dev){
        .name = "cpu",
        .host_memory = true,
        .alloc = cpu_alloc,
        .free = cpu_free,
        .host_alloc = cpu_alloc,
        .host_free = cpu_free,
        .mem_info = cpu_mem_info,
        .stream_new = cpu_stream_new,
        .stream_free = cpu_stream_free,
        .copy_async = cpu_copy_async,
        .zero_async = cpu_zero_async,
        .event_new = cpu_event_new,
        .event_free = cpu_event_free,
        .event_record = cpu_event_record,
        .stream_wait = cpu_stream_wait,
        .event_done = cpu_event_done,
        .event_wait = cpu_event_wait,
        .graphs = false,
        .graph_begin = cpu_graph_begin,
        .graph_end = cpu_graph_end,
        .graph_launch = cpu_graph_launch,
        .graph_free = cpu_graph_free,
        .close = cpu_dev_close,
    };
    return d;
}

void dev_close(struct dev *d)
{
    if (d)
        d->close(d);
}
