#include "worker/loop/agree.h"

#include <string.h>

#include "common/base/own.h"
#include "worker/comm.h"
#include "worker/loop/groups.h"

enum { ROW_STOP, ROW_WRITTEN, ROW_LOSSES };

int agree(struct groups *g, const struct agree_in *in, struct agree_out *ret, struct err *e)
{
    struct comm *w = g->of[GROUP_WORLD];
    uint32_t world = topo_world(&g->topo);
    size_t n = ROW_LOSSES + in->n_losses;
    AUTO_FREE double *rows = xcalloc(n * world, sizeof *rows);
    double *mine = rows + n * g->rank;
    mine[ROW_STOP] = in->stop;
    mine[ROW_WRITTEN] = (double)in->written;
    memcpy(mine + ROW_LOSSES, in->losses, in->n_losses * sizeof *mine);
    if (w && w->ops->all_gather(w, mine, rows, n, DT_F64, NULL, e) < 0)
        return -1;

    *ret = (struct agree_out){.written_min = UINT64_MAX};
    for (uint32_t r = 0; r < world; r++) {
        ret->stop |= rows[n * r + ROW_STOP] != 0;
        uint64_t written = (uint64_t)rows[n * r + ROW_WRITTEN];
        if (written < ret->written_min)
            ret->written_min = written;
    }
    /* Micro-batch a of replica r is number a * data + r of the step. */
    for (uint32_t a = 0; a < in->n_losses; a++)
        for (uint32_t r = 0; r < g->topo.data; r++) {
            uint32_t from = topo_rank(&g->topo, (struct coord){g->topo.pipeline - 1, r, 0});
            ret->loss_sum += rows[n * from + ROW_LOSSES + a];
        }
    return 0;
}
