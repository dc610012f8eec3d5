/* dev.h: a device's memory, streams and events, as one struct of functions.
 *
 * Work on a stream runs in order.  A copy or an op given to a stream may still be running when
 * the call returns: its buffers stay untouched until an event recorded behind it was waited
 * for.  The CPU's stream runs everything at once, so its events are always complete; code
 * written against this header must not rely on that.  One thread.
 */
#ifndef DS_KERNELS_DEV_H
#define DS_KERNELS_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct dev_stream; /* opaque, per back end */
struct dev_event;
struct dev_graph;

struct dev_mem {
    uint64_t total_bytes, free_bytes;
};

struct dev {
    const char *name; /* "cpu" */
    bool host_memory; /* device pointers may be read by the host (CPU) */
    void *ctx;

    /* Zeroed, 256-byte aligned.  ERR_MEMORY says how much was asked and how much there is. */
    int (*alloc)(struct dev *d, size_t bytes, void **ret, struct err *e);
    void (*free)(struct dev *d, void *p);
    /* Memory of the host that copies to and from the device run fastest with. */
    int (*host_alloc)(struct dev *d, size_t bytes, void **ret, struct err *e);
    void (*host_free)(struct dev *d, void *p);
    int (*mem_info)(struct dev *d, struct dev_mem *ret, struct err *e);

    struct dev_stream *(*stream_new)(struct dev *d, struct err *e);
    void (*stream_free)(struct dev *d, struct dev_stream *s);
    int (*copy_async)(struct dev *d, void *dst, const void *src, size_t bytes,
                      struct dev_stream *s, struct err *e); /* any direction */
    int (*zero_async)(struct dev *d, void *dst, size_t bytes, struct dev_stream *s,
                      struct err *e);

    struct dev_event *(*event_new)(struct dev *d, struct err *e);
    void (*event_free)(struct dev *d, struct dev_event *v);
    int (*event_record)(struct dev *d, struct dev_event *v, struct dev_stream *s,
                        struct err *e);
    int (*stream_wait)(struct dev *d, struct dev_stream *s, struct dev_event *v, struct err *e);
    bool (*event_done)(struct dev *d, struct dev_event *v);
    /* The host waits until the event is complete, at most until `deadline_ns` (clock.h). */
    int (*event_wait)(struct dev *d, struct dev_event *v, int64_t deadline_ns, struct err *e);

    /* Records what is given to `s` between begin and end, to be launched again as one.  Where
     * graphs is false, end returns NULL without an error and the caller runs the work itself.
     */
    bool graphs;
    int (*graph_begin)(struct dev *d, struct dev_stream *s, struct err *e);
    struct dev_graph *(*graph_end)(struct dev *d, struct dev_stream *s, struct err *e);
    int (*graph_launch)(struct dev *d, struct dev_graph *g, struct dev_stream *s,
                        struct err *e);
    void (*graph_free)(struct dev *d, struct dev_graph *g);

    void (*close)(struct dev *d); /* frees d */
};

struct dev *dev_cpu_open(struct err *e);
void dev_close(struct dev *d);

#endif
