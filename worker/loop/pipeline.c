#include "worker/loop/pipeline.h"

#include "common/base/err.h"
#include "common/link/page.h"
#include "common/shape/sched.h"
#include "kernels/kernels.h"
#include "worker/comm.h"
#include "worker/link.h"
#include "worker/model/stage.h"

static int send_to(struct pipeline *p, const void *buf, uint32_t to, struct err *e)
{
    return p->comm->ops->send(p->comm, buf, (size_t)stage_act_elements(p->stage), DT_F32, to,
                              p->stream, e);
}

static int recv_from(struct pipeline *p, void *buf, uint32_t from, struct err *e)
{
    return p->comm->ops->recv(p->comm, buf, (size_t)stage_act_elements(p->stage), DT_F32, from,
                              p->stream, e);
}

static int forward(struct pipeline *p, uint32_t micro, uint32_t slot, struct err *e)
{
    struct pipeline_input in;
    link_phase(p->link, PHASE_FORWARD);
    link_page(p->link)->micro = micro;
    if (p->input(p->ctx, micro, &in, e) < 0)
        return -1;
    if (stage_forward(p->stage, slot, in.ids, in.targets, e) < 0)
        return -1;
    if (p->index == p->n_stages - 1)
        p->losses[micro] = stage_loss(p->stage, slot);
    return 0;
}

static int backward(struct pipeline *p, uint32_t micro, uint32_t slot, struct err *e)
{
    struct pipeline_input in;
    link_phase(p->link, PHASE_BACKWARD);
    link_page(p->link)->micro = micro;
    if (p->input(p->ctx, micro, &in, e) < 0)
        return -1;
    float *g = micro == 0 ? p->grads : p->micro_grads;
    if (stage_backward(p->stage, slot, in.scale, g, e) < 0)
        return -1;
    if (micro > 0) {
        struct add_args a = {.dtype = DT_F32,
                             .n = p->n_grads,
                             .x = g,
                             .y = p->grads,
                             .scratch = stage_scratch(p->stage)};
        p->kern->add(p->kern, &a, p->stream);
    }
    return 0;
}

static int run_item(struct pipeline *p, const struct sched_item *it, struct err *e)
{
    switch (it->op) {
    case SCHED_F:
        return forward(p, it->micro, it->slot, e);
    case SCHED_B:
        return backward(p, it->micro, it->slot, e);
    case SCHED_SEND_ACT:
        return send_to(p, stage_act_out(p->stage, it->slot), p->index + 1, e);
    case SCHED_RECV_ACT:
        return recv_from(p, stage_act_in(p->stage, it->slot), p->index - 1, e);
    case SCHED_SEND_GRAD:
        return send_to(p, stage_grad_in(p->stage), p->index - 1, e);
    case SCHED_RECV_GRAD:
        return recv_from(p, stage_grad_out(p->stage), p->index + 1, e);
    case SCHED_W:
    case SCHED_OP_COUNT:
        break;
    }
    return err_set(e, ERR_PROTOCOL, "schedule item %s is not one this trainer runs",
                   sched_op_name(it->op));
}

int pipeline_step(struct pipeline *p, const struct sched_lane *lane, struct err *e)
{
    for (size_t i = 0; i < lane->n; i++) {
        link_beat(p->link);
        if (link_poll(p->link, e) < 0 || run_item(p, &lane->items[i], e) < 0)
            return -1;
    }
    return 0;
}

int pipeline_forward(struct pipeline *p, uint32_t micro, struct err *e)
{
    link_beat(p->link);
    if (link_poll(p->link, e) < 0)
        return -1;
    if (p->index > 0 && recv_from(p, stage_act_in(p->stage, 0), p->index - 1, e) < 0)
        return -1;
    if (forward(p, micro, 0, e) < 0)
        return -1;
    if (p->index + 1 < p->n_stages)
        return send_to(p, stage_act_out(p->stage, 0), p->index + 1, e);
    return 0;
}
