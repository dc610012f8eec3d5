/* The interpreter of schedule tables: every schedule over two stages has the bits of one stage,
 * a sum over micro-batches is that of their own gradients in ascending order, messages go as
 * the table says, and what the interpreter cannot do it refuses. */
#include "common/shape/sched.h"
#include "tests/unit/stage_rig.h"
#include "worker/link.h"
#include "worker/loop/pipeline.h"

enum { MICROS = 3, TOKENS = 2 * 16, STAGES = 2, LOG_MAX = 64 };

static const char solo_spec[] = "name: t\nmodel: {layers: 2, hidden: 32, heads: 4}\n"
                                "train: {steps: 1, batch: 2, seq_len: 16}\n"
                                "data: {files: [x]}\n";

/* Messages between two stages, a queue each way, and what each stage did. */
struct mail {
    pthread_mutex_t lock;
    pthread_cond_t more;
    float *queue[STAGES][MICROS]; /* by receiver */
    size_t put[STAGES], got[STAGES];
};
struct mail_comm {
    struct comm c;
    struct mail *mail;
    char log[LOG_MAX]; /* 's' or 'r' of each message */
    size_t n_log;
};

static int mail_send(struct comm *c, const void *buf, size_t n, enum dtype t, uint32_t to,
                     struct dev_stream *s, struct err *e)
{
    struct mail_comm *m = (struct mail_comm *)c;
    float *copy = xmalloc(n * dtype_bytes(t));
    (void)s, (void)e;
    memcpy(copy, buf, n * dtype_bytes(t));
    (void)pthread_mutex_lock(&m->mail->lock);
    m->mail->queue[to][m->mail->put[to]++] = copy;
    m->log[m->n_log++] = 's';
    (void)pthread_cond_broadcast(&m->mail->more);
    (void)pthread_mutex_unlock(&m->mail->lock);
    return 0;
}

static int mail_recv(struct comm *c, void *buf, size_t n, enum dtype t, uint32_t from,
                     struct dev_stream *s, struct err *e)
{
    struct mail_comm *m = (struct mail_comm *)c;
    uint32_t me = c->rank;
    (void)s, (void)e, (void)from;
    (void)pthread_mutex_lock(&m->mail->lock);
    while (m->mail->got[me] == m->mail->put[me])
        (void)pthread_cond_wait(&m->mail->more, &m->mail->lock);
    float *from_queue = m->mail->queue[me][m->mail->got[me]++];
    m->log[m->n_log++] = 'r';
    (void)pthread_mutex_unlock(&m->mail->lock);
    memcpy(buf, from_queue, n * dtype_bytes(t));
    free(from_queue);
    return 0;
}

static const struct comm_ops mail_ops = {.name = "mail", .send = mail_send, .recv = mail_recv};

/* One stage with all that its interpreter needs. */
struct actor {
    struct rig rig;
    struct link *link;
    struct link_identity id;
    struct mail_comm comm;
    struct pipeline p;
    struct sched *sched;
    int32_t ids[TOKENS], targets[TOKENS];
    double losses[MICROS];
    int result;
    struct err e;
};

static int input(void *ctx, uint32_t micro, struct pipeline_input *ret, struct err *e)
{
    struct actor *a = ctx;
    uint32_t x = 99 + micro;
    (void)e;
    for (int i = 0; i < TOKENS; i++) {
        x = x * 1103515245 + 12345;
        a->ids[i] = (int32_t)(x >> 16) % 259;
        a->targets[i] = i % 5 == 4 ? -1 : (int32_t)(x >> 8) % 257;
    }
    *ret = (struct pipeline_input){a->ids, a->targets, 1.0f / 64};
    return 0;
}

static void actor_open(struct actor *a, const struct spec *s, uint32_t stage,
                       enum spec_schedule kind, struct mail *mail)
{
    *a = (struct actor){0};
    rig_open(&a->rig, s, (struct coord){.pp = stage}, MICROS, NULL, NULL, PLANT_NONE);
    must(a->link = link_open_solo(solo_spec, &a->id, &rig_err));
    a->sched = sched_new(kind, s->parallel.pipeline, MICROS);
    a->comm = (struct mail_comm){.c = {.ops = &mail_ops, .size = STAGES, .rank = stage},
                                 .mail = mail};
    a->p = (struct pipeline){.stage = a->rig.stage,
                             .comm = mail ? &a->comm.c : NULL,
                             .kern = a->rig.kern,
                             .link = a->link,
                             .stream = a->rig.stream,
                             .index = stage,
                             .n_stages = s->parallel.pipeline,
                             .grads = a->rig.grads,
                             .micro_grads =
                                 (float *)((char *)a->rig.arena +
                                           mem_plan_offset(a->rig.mem, MEM_MICRO_GRAD, -1, 0)),
                             .n_grads = a->rig.params->n_elements,
                             .input = input,
                             .ctx = a,
                             .losses = a->losses};
}

static void actor_close(struct actor *a)
{
    sched_free(a->sched);
    link_free(a->link);
    rig_close(&a->rig);
}

static void *act(void *arg)
{
    struct actor *a = arg;
    a->result = pipeline_step(&a->p, &a->sched->lanes[a->p.index], &a->e);
    return NULL;
}

/* Sends and receives were those of the table, in its order. */
static void check_log(const struct actor *a)
{
    const struct sched_lane *l = &a->sched->lanes[a->p.index];
    size_t k = 0;
    for (size_t i = 0; i < l->n; i++) {
        enum sched_op op = l->items[i].op;
        if (op == SCHED_SEND_ACT || op == SCHED_SEND_GRAD)
            assert_int_equal(a->comm.log[k++], 's');
        else if (op == SCHED_RECV_ACT || op == SCHED_RECV_GRAD)
            assert_int_equal(a->comm.log[k++], 'r');
    }
    assert_int_equal(k, a->comm.n_log);
    assert_int_equal(k, 2 * MICROS);
}

static void schedules_have_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct spec one = tiny_spec(i % 2 ? ARCH_GPT2 : ARCH_LLAMA), two = one;
        enum spec_schedule kind = i / 2 ? SCHEDULE_1F1B : SCHEDULE_GPIPE;
        struct actor whole, half[STAGES];
        struct mail mail = {.lock = PTHREAD_MUTEX_INITIALIZER,
                            .more = PTHREAD_COND_INITIALIZER};
        pthread_t th[STAGES];
        two.parallel.pipeline = STAGES;
        actor_open(&whole, &one, 0, kind, NULL);
        act(&whole);
        assert_int_equal(whole.result, 0);
        for (uint32_t k = 0; k < STAGES; k++)
            actor_open(&half[k], &two, k, kind, &mail);
        for (uint32_t k = 0; k < STAGES; k++)
            assert_int_equal(pthread_create(&th[k], NULL, act, &half[k]), 0);
        for (uint32_t k = 0; k < STAGES; k++)
            (void)pthread_join(th[k], NULL);
        float **a = model_grads_new(whole.rig.params), **b = model_grads_new(whole.rig.params);
        model_grads_add(a, &whole.rig);
        for (uint32_t k = 0; k < STAGES; k++) {
            assert_int_equal(half[k].result, 0);
            check_log(&half[k]);
            model_grads_add(b, &half[k].rig);
        }
        for (size_t j = 0; j < whole.rig.params->n_params; j++) {
            const struct param *m = &whole.rig.params->params[j];
            size_t n = (size_t)(m->shape[0] * m->shape[1]);
            assert_true(norm_of(a[j], (int64_t)n) > 0);
            assert_memory_equal(a[j], b[j], n * sizeof(float));
        }
        assert_memory_equal(whole.losses, half[STAGES - 1].losses, sizeof whole.losses);
        model_grads_free(a, whole.rig.params);
        model_grads_free(b, whole.rig.params);
        for (uint32_t k = 0; k < STAGES; k++)
            actor_close(&half[k]);
        actor_close(&whole);
    }
}

/* Each micro-batch's gradient is finished by itself, then added, in ascending order. */
static void sum_is_of_whole_gradients(void **state)
{
    struct spec s = tiny_spec(ARCH_LLAMA);
    struct actor a;
    (void)state;
    actor_open(&a, &s, 0, SCHEDULE_1F1B, NULL);
    size_t n = (size_t)a.p.n_grads;
    AUTO_FREE float *sum = xcalloc(n, sizeof *sum);
    AUTO_FREE float *one = xcalloc(n, sizeof *one);
    for (uint32_t micro = 0; micro < MICROS; micro++) {
        struct pipeline_input in;
        must(!input(&a, micro, &in, &rig_err));
        must(!stage_forward(a.rig.stage, 0, in.ids, in.targets, &rig_err));
        must(!stage_backward(a.rig.stage, 0, in.scale, one, &rig_err));
        for (size_t i = 0; i < n; i++)
            sum[i] = micro ? sum[i] + one[i] : one[i];
    }
    act(&a);
    assert_int_equal(a.result, 0);
    assert_memory_equal(sum, a.rig.grads, n * sizeof *sum);
    actor_close(&a);
}

/* A pass for validation leaves the gradients alone, and has the loss of the training pass. */
static void forward_alone(void **state)
{
    struct spec s = tiny_spec(ARCH_GPT2);
    struct actor a;
    (void)state;
    actor_open(&a, &s, 0, SCHEDULE_1F1B, NULL);
    act(&a);
    size_t bytes = (size_t)a.p.n_grads * sizeof(float);
    AUTO_FREE float *before = xmalloc(bytes);
    memcpy(before, a.rig.grads, bytes);
    double trained[MICROS];
    memcpy(trained, a.losses, sizeof trained);
    for (uint32_t micro = 0; micro < MICROS; micro++)
        must(!pipeline_forward(&a.p, micro, &rig_err));
    assert_memory_equal(trained, a.losses, sizeof trained);
    assert_memory_equal(before, a.rig.grads, bytes);
    actor_close(&a);
}

static void refuses_what_it_cannot(void **state)
{
    struct spec s = tiny_spec(ARCH_LLAMA);
    struct actor a;
    (void)state;
    actor_open(&a, &s, 0, SCHEDULE_1F1B, NULL);
    a.sched->lanes[0].items[1].op = SCHED_W;
    act(&a);
    assert_int_equal(a.result, -1);
    assert_int_equal(a.e.kind, ERR_PROTOCOL);
    assert_string_equal(a.e.text, "schedule item W is not one this trainer runs");
    actor_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_have_the_same_bits),
        cmocka_unit_test(sum_is_of_whole_gradients),
        cmocka_unit_test(forward_alone),
        cmocka_unit_test(refuses_what_it_cannot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
