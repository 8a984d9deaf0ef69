// SPDX-License-Identifier: Apache-2.0
#include "rank/session.h"

#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/shard.h"
#include "rank/clock.h"
#include "rank/digest.h"
#include "rank/executor.h"
#include "rank/inputs.h"
#include "rank/verify.h"

enum status session_init(struct session *s, struct transport *transport, struct progress *progress,
                         struct error *error)
{
    *s = (struct session){.rank = transport->rank,
                          .world_size = transport->world_size,
                          .transport = transport,
                          .progress = progress,
                          .ops = &attention_cpu};
    arena_init(&s->arena);
    return s->ops->create(&s->backend, error);
}

void session_fini(struct session *s)
{
    if (s->backend)
        s->ops->destroy(s->backend);
    s->backend = NULL;
    arena_fini(&s->arena);
}

// ---- one case ----

struct job {
    struct session *session;
    const struct cp_case *c;
    uint64_t number;
    struct rank_report *report;
    struct plan *plan;
    void **buffers;        // by index in the plan
    struct span *spans[2]; // by enum shard_side
    int span_count[2];
    struct span *spans_of_others;
};

static void phase_enter(struct job *j, enum report_phase phase)
{
    progress_store(
        j->session->progress,
        (struct progress_view){.job = (uint32_t)j->number, .phase = phase, .waiting_for = -1});
}

static enum status job_admit(struct job *j, struct error *error)
{
    const struct session *s = j->session;
    if (s->out_of_step)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "rank %d broke a case off and is out of step with its peers", s->rank);
    enum status status = case_check(j->c, error);
    if (status == STATUS_OK && j->c->world_size != s->world_size)
        status =
            error_set(error, STATUS_INVALID_ARGUMENT, "world_size %d reached a pool of %d ranks",
                      j->c->world_size, s->world_size);
    return status;
}

static enum status memory_reserve(struct job *j, struct error *error)
{
    size_t total = 0;
    const struct plan *plan = j->plan;
    enum status status = arena_add(&total, plan->buffer_count, sizeof(*j->buffers), error);
    for (int i = 0; i < plan->buffer_count && status == STATUS_OK; i++)
        status = arena_add(&total, plan->buffers[i].bytes, 1, error);
    for (int i = 0; i < 3 && status == STATUS_OK; i++)
        status = arena_add(&total, shard_spans_max(j->c), sizeof(struct span), error);
    if (status == STATUS_OK)
        status = verify_reserve(j->c, j->session->rank, &total, error);
    if (status == STATUS_OK)
        status = arena_reserve(&j->session->arena, total, error);
    return status;
}

// Filled from the first byte to the last, but for padding. A bias may have rows that no query of
// the rank uses.
static bool role_is_input(enum buffer_role role)
{
    return role == BUFFER_INPUT_Q || role == BUFFER_INPUT_KV || role == BUFFER_INPUT_DO ||
           role == BUFFER_INPUT_SINK;
}

// Whatever is read or delivered without having been written shall show: all ones are a NaN in every
// dtype.
static void buffers_take(struct job *j)
{
    struct arena *arena = &j->session->arena;
    const struct plan *plan = j->plan;
    j->buffers = arena_take(arena, plan->buffer_count, sizeof(*j->buffers));
    for (int i = 0; i < plan->buffer_count; i++) {
        const struct plan_buffer *buffer = &plan->buffers[i];
        j->buffers[i] = arena_take(arena, buffer->bytes, 1);
        if (!role_is_input(buffer->role))
            memset(j->buffers[i], 0xff, (size_t)buffer->bytes);
    }
    j->spans_of_others = arena_take(arena, shard_spans_max(j->c), sizeof(struct span));
    for (int side = 0; side < 2; side++) {
        j->spans[side] = arena_take(arena, shard_spans_max(j->c), sizeof(struct span));
        j->span_count[side] =
            shard_spans(j->c, (enum shard_side)side, j->session->rank, j->spans[side]);
    }
}

// Memory of the buffer of that role; NULL where the plan has none.
static char *buffer_of(const struct job *j, enum buffer_role role, int64_t *bytes)
{
    for (int i = 0; i < j->plan->buffer_count; i++)
        if (j->plan->buffers[i].role == role) {
            *bytes = j->plan->buffers[i].bytes;
            return j->buffers[i];
        }
    *bytes = 0;
    return NULL;
}

static float *floats_of(const struct job *j, enum buffer_role role)
{
    int64_t bytes;
    return (float *)(void *)buffer_of(j, role, &bytes);
}

// Bytes of K, or of dK, in front of V or dV.
static int64_t key_bytes(const struct job *j)
{
    return shard_rows(j->c, SIDE_KV, j->session->rank) * j->c->kv_heads * j->c->head_dim_qk *
           case_element_bytes(j->c);
}

static void input_fill(struct job *j, enum input_tensor tensor, enum shard_side side, char *data)
{
    if (data)
        inputs_fill(j->c, tensor, j->session->rank, j->spans[side], j->span_count[side], data);
}

static void inputs_prepare(struct job *j)
{
    int64_t bytes;
    phase_enter(j, REPORT_INPUTS);
    char *kv = buffer_of(j, BUFFER_INPUT_KV, &bytes);
    input_fill(j, INPUT_K, SIDE_KV, kv);
    input_fill(j, INPUT_V, SIDE_KV, kv ? kv + key_bytes(j) : NULL);
    input_fill(j, INPUT_Q, SIDE_Q, buffer_of(j, BUFFER_INPUT_Q, &bytes));
    input_fill(j, INPUT_DO, SIDE_Q, buffer_of(j, BUFFER_INPUT_DO, &bytes));
    float *sink = floats_of(j, BUFFER_INPUT_SINK);
    if (sink)
        inputs_fill_sink(j->c, sink);
    char *bias = buffer_of(j, BUFFER_INPUT_BIAS, &bytes);
    if (bias)
        inputs_fill_bias(j->c, j->session->rank, j->spans_of_others, bias);
}

static enum status job_execute(struct job *j, struct error *error)
{
    struct session *s = j->session;
    struct execution execution = {
        .plan = j->plan,
        .buffers = j->buffers,
        .ops = s->ops,
        .backend = s->backend,
        .transport = s->transport,
        .progress = s->progress,
        .job = j->number,
    };
    for (int i = 0; i < j->plan->op_count; i++)
        j->report->flops += op_flops(j->plan, &j->plan->ops[i]);
    return executor_run(&execution, &j->report->timings, error);
}

static uint64_t outputs_digest(const struct job *j)
{
    static const enum buffer_role outputs[] = {BUFFER_OUT,      BUFFER_LSE,   BUFFER_DQ,
                                               BUFFER_DKV,      BUFFER_DSINK, BUFFER_DBIAS,
                                               BUFFER_MAX_LOGIT};
    uint64_t digest = DIGEST_START;
    for (size_t i = 0; i < sizeof(outputs) / sizeof(*outputs); i++) {
        int64_t bytes;
        const char *data = buffer_of(j, outputs[i], &bytes);
        digest = digest_add(digest, data, (size_t)bytes);
    }
    return digest;
}

static enum status job_verify(struct job *j, struct error *error)
{
    struct session *s = j->session;
    int64_t bytes;
    struct verification v = {
        .c = j->c,
        .rank = s->rank,
        .spans = {j->spans[SIDE_Q], j->spans[SIDE_KV]},
        .span_count = {j->span_count[SIDE_Q], j->span_count[SIDE_KV]},
        .out = buffer_of(j, BUFFER_OUT, &bytes),
        .lse = floats_of(j, BUFFER_LSE),
        .dq = buffer_of(j, BUFFER_DQ, &bytes),
        .dbias = buffer_of(j, BUFFER_DBIAS, &bytes),
        .dsink = floats_of(j, BUFFER_DSINK),
        .max_logit = floats_of(j, BUFFER_MAX_LOGIT),
        .arena = &s->arena,
        .transport = s->transport,
        .progress = s->progress,
        .job = j->number,
    };
    const char *dkv = buffer_of(j, BUFFER_DKV, &bytes);
    if (dkv) {
        v.dk = dkv;
        v.dv = dkv + key_bytes(j);
    }
    enum status status = verify_run(&v, j->report, error);
    if (status != STATUS_OK)
        return status;
    phase_enter(j, REPORT_COMPARE);
    uint64_t start_ns = clock_ns();
    j->report->digest = outputs_digest(j);
    j->report->timings.compare_ns += clock_ns() - start_ns;
    return STATUS_OK;
}

static enum status job_plan(struct job *j, struct error *error)
{
    phase_enter(j, REPORT_PLAN);
    uint64_t start_ns = clock_ns();
    enum status status = plan_create(j->c, j->session->rank, &j->plan, error);
    j->report->timings.plan_ns = clock_ns() - start_ns;
    return status;
}

static enum status job_run(struct job *j, struct error *error)
{
    enum status status = job_admit(j, error);
    if (status == STATUS_OK)
        status = job_plan(j, error);
    if (status == STATUS_OK)
        status = memory_reserve(j, error);
    if (status != STATUS_OK)
        return status;
    uint64_t start_ns = clock_ns();
    buffers_take(j);
    inputs_prepare(j);
    j->report->timings.inputs_ns = clock_ns() - start_ns;
    status = job_execute(j, error);
    return status == STATUS_OK ? job_verify(j, error) : status;
}

enum status session_run(struct session *s, const struct cp_case *c, uint64_t job,
                        struct rank_report *report, struct error *error)
{
    struct rank_report result = {.rank = s->rank};
    struct job j = {.session = s, .c = c, .number = job, .report = &result};
    enum status status = job_run(&j, error);
    plan_destroy(j.plan);
    arena_trim(&s->arena);
    if (status != STATUS_OK) {
        s->out_of_step = true;
        return status;
    }
    phase_enter(&j, REPORT_IDLE);
    *report = result;
    return STATUS_OK;
}

// ---- besides cases ----

enum status session_barrier(struct session *s, struct error *error)
{
    struct transport *t = s->transport;
    struct message messages[WORLD_SIZE_MAX];
    char mine = 0, theirs[WORLD_SIZE_MAX];
    int count = 0, done = 0;
    for (int peer = 0; peer < s->world_size; peer++)
        if (peer != s->rank)
            messages[count++] = (struct message){peer, &mine, 1, &theirs[peer], 1};
    enum status status = t->ops->start(t, 0, messages, count, error);
    while (status == STATUS_OK && !done)
        status = t->ops->progress(t, -1, &done, error);
    s->out_of_step = s->out_of_step || status != STATUS_OK;
    return status;
}

void session_failure(const struct session *s, const struct error *error,
                     struct rank_failure *failure)
{
    struct progress_view view = {.phase = REPORT_IDLE};
    int lost = s->transport ? s->transport->ops->lost_peer(s->transport) : -1;
    if (s->progress)
        view = progress_load(s->progress);
    *failure = (struct rank_failure){.status = error->status,
                                     .kind = lost >= 0 ? FAILURE_PEER_LOST : FAILURE_OWN,
                                     .peer = lost,
                                     .phase = view.phase,
                                     .step = view.step};
    memcpy(failure->text, error->text, sizeof(failure->text));
}
