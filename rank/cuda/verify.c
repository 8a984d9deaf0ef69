// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/verify.h"

#include <string.h>

#include "judge/chunk.h"
#include "judge/inputs.h"
#include "kernels/cuda/internal.h"
#include "plan/bias.h"
#include "rank/cuda/tables.h"
#include "rank/cuda/verify_state.h"

// ---- tables -------------------------------------------------------------------------------------

static bool rows_push(struct verify_cuda *x, enum shard_side side)
{
    const struct verification_cuda *v = &x->v;
    int64_t count =
        tables_tiles(x->c, side, v->rank, v->spans[side], v->span_count[side], x->tiles[side]);
    x->rows[side] = (struct reference_rows){
        .tiles = staging_copy(v->backend, x->tiles[side], (size_t)count * sizeof(**x->tiles)),
        .tile_count = count,
        .rows = tables_rows(x->c, side, v->rank),
    };
    x->chunk_rows[side] = chunk_tokens(v->spans[side], v->span_count[side], 0);
    return x->rows[side].tiles;
}

static bool sinks_push(struct verify_cuda *x)
{
    void *device;
    size_t bytes = (size_t)x->c->heads * sizeof(float);
    float *sinks = staging_take(x->v.backend, bytes, &device);
    if (!sinks)
        return false;
    for (int head = 0; head < x->c->heads; head++)
        sinks[head] = input_sink(x->c, head);
    staging_push(x->v.backend, device, sinks, bytes);
    x->r.sinks = device;
    return true;
}

// A piece of host memory that the device writes to, and its twin. Zero at first: it comes back as a
// whole, whatever of it there is to write.
static bool answer_take(struct verify_cuda *x, size_t bytes, void **host, void **device)
{
    *host = staging_take(x->v.backend, bytes, device);
    if (!*host)
        return false;
    memset(*host, 0, bytes);
    staging_push(x->v.backend, *device, *host, bytes);
    return true;
}

static bool answers_take(struct verify_cuda *x)
{
    size_t numbers = SUMS_NUMBERS * (size_t)x->c->heads * (size_t)x->c->world_size;
    size_t floats = (size_t)x->c->heads * sizeof(float);
    void *unused;
    return answer_take(x, RESULTS * sizeof(*x->results), (void **)&x->results,
                       (void **)&x->results_device) &&
           answer_take(x, numbers * sizeof(double), (void **)&x->heads,
                       (void **)&x->heads_device) &&
           answer_take(x, floats, (void **)&x->max_logit, &unused) &&
           answer_take(x, floats, (void **)&x->dsink, &unused);
}

// False, remembered, when memory is short.
static bool tables_push(struct verify_cuda *x)
{
    tables_sequences(&x->r, x->sequences);
    x->r.sequences =
        staging_copy(x->v.backend, x->sequences, (size_t)x->c->batch * sizeof(*x->sequences));
    if (!x->r.sequences || !rows_push(x, SIDE_Q) || !rows_push(x, SIDE_KV) || !sinks_push(x) ||
        !answers_take(x))
        return false;
    // Those of tensors that the case does not have are copied with the others.
    return cuda_note(x->v.backend,
                     cudaMemsetAsync(x->results_device, 0, RESULTS * sizeof(*x->results),
                                     attention_cuda_stream(x->v.backend)),
                     "the results of the comparison");
}

// ---- the reference ------------------------------------------------------------------------------

static double *heads_of(const struct verify_cuda *x, int rank)
{
    return x->heads_device + rank * SUMS_NUMBERS * x->c->heads;
}

static int64_t statistics_count(const struct verify_cuda *x, int rank)
{
    return tables_rows(x->c, SIDE_Q, rank) * x->c->heads;
}

static struct reference_dbias dbias_of(const struct verify_cuda *x)
{
    struct reference_dbias dbias = {.data = x->dbias};
    if (!x->dbias)
        return dbias;
    struct sums_layout l = sums_layout(x->c, x->v.rank);
    dbias.head_stride = l.heads > 1 ? l.rows * l.columns : 0;
    dbias.row_step = bias_row_step(x->c);
    return dbias;
}

// Draws the next key heads unless they are there. False when there are no more.
static bool heads_next(struct verify_cuda *x, int kv_first)
{
    int rest = x->c->kv_heads - kv_first;
    if (rest <= 0)
        return false;
    int count = rest < x->kv_step ? rest : x->kv_step;
    bool there = x->r.kv_count == count && x->r.kv_first == kv_first;
    x->r.kv_first = kv_first;
    x->r.kv_count = count;
    if (!there)
        reference_cuda_draw(&x->r);
    return true;
}

static void queries_reference(struct verify_cuda *x)
{
    const struct reference_rows *rows = &x->rows[SIDE_Q];
    struct reference_dbias dbias = dbias_of(x);
    double *lse = x->statistics[x->v.rank], *delta = lse + statistics_count(x, x->v.rank);
    for (int kv = 0; heads_next(x, kv); kv += x->kv_step) {
        reference_cuda_out(&x->r, rows, x->expected[0], lse, x->max);
        if (!x->c->training)
            continue;
        reference_cuda_delta(&x->r, rows, x->expected[0], delta);
        reference_cuda_dq(&x->r, rows, lse, delta, &dbias, x->expected[1], x->terms);
    }
    if (sums_has_heads(x->c))
        reference_cuda_heads(&x->r, rows->rows, x->max, x->v.results.dsink ? lse : NULL, delta,
                             heads_of(x, x->v.rank));
}

static void keys_reference(struct verify_cuda *x)
{
    const struct cp_case *c = x->c;
    int64_t count = tables_pieces(c, x->sequences, x->statistics, x->spans, x->pieces);
    struct reference_piece *pieces =
        staging_copy(x->v.backend, x->pieces, (size_t)count * sizeof(*pieces));
    if (!pieces)
        return;
    reference_cuda_gather(&x->r, pieces, count, x->lse, x->delta);
    for (int kv = 0; heads_next(x, kv); kv += x->kv_step)
        reference_cuda_dkv(&x->r, &x->rows[SIDE_KV], x->lse, x->delta, x->expected[1],
                           x->expected[0], x->terms);
}

// ---- the exchange -------------------------------------------------------------------------------

static int peer_messages(const struct verify_cuda *x, int peer, struct message *messages)
{
    const struct cp_case *c = x->c;
    int rank = x->v.rank, count = 0;
    if (c->training)
        messages[count++] = (struct message){
            .peer = peer,
            .send = x->statistics[rank],
            .send_bytes = (size_t)statistics_count(x, rank) * 2 * sizeof(double),
            .receive = x->statistics[peer],
            .receive_bytes = (size_t)statistics_count(x, peer) * 2 * sizeof(double)};
    if (sums_has_heads(c)) {
        size_t bytes = SUMS_NUMBERS * (size_t)c->heads * sizeof(double);
        messages[count++] =
            (struct message){peer, heads_of(x, rank), bytes, heads_of(x, peer), bytes};
    }
    if (x->dbias && bias_is_whole(c)) {
        struct bias_share own = bias_share(c, rank), theirs = bias_share(c, peer);
        messages[count++] = (struct message){.peer = peer,
                                             .send = x->dbias + theirs.first,
                                             .send_bytes = (size_t)theirs.count * sizeof(double),
                                             .receive = x->dbias_parts + peer * own.count,
                                             .receive_bytes = (size_t)own.count * sizeof(double)};
    }
    return count;
}

// Makes a stream wait for all that is on another.
static bool stream_follow(struct attention_backend *backend, cudaStream_t follower,
                          cudaStream_t leader)
{
    cudaEvent_t event;
    if (!cuda_note(backend, cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event"))
        return false;
    cudaError_t result = cudaEventRecord(event, leader);
    if (result == cudaSuccess)
        result = cudaStreamWaitEvent(follower, event, 0);
    (void)cudaEventDestroy(event); // lives until what waits for it has gone on
    return cuda_note(backend, result, "an event");
}

// What is known of the own queries goes to all, theirs comes: behind all that is on the backend's
// stream.
static enum status exchange_start(struct verify_cuda *x, struct error *error)
{
    struct transport *t = x->v.transport;
    struct attention_backend *backend = x->v.backend;
    struct message messages[WORLD_SIZE_MAX * 3];
    int count = 0;
    for (int peer = 0; peer < x->c->world_size; peer++)
        if (peer != x->v.rank)
            count += peer_messages(x, peer, messages + count);
    if (count == 0)
        return STATUS_OK;
    if (!stream_follow(backend, transport_nccl_stream(t), attention_cuda_stream(backend)))
        return cuda_report(backend, error);
    return t->ops->start(t, 0, messages, count, error);
}

static void exchange_finish(struct verify_cuda *x)
{
    if (x->c->world_size > 1)
        stream_follow(x->v.backend, attention_cuda_stream(x->v.backend),
                      transport_nccl_stream(x->v.transport));
}

// ---- comparison ---------------------------------------------------------------------------------

static struct compare_rule rule_of(const struct figures_rule *rule)
{
    struct figures_floors floors = figures_floors(rule);
    return (struct compare_rule){.tolerance = rule->tolerance,
                                 .unit = floors.element,
                                 .chunk = floors.chunk,
                                 .row_part = floors.row,
                                 .terms_element = rule->terms_element,
                                 .terms_row = rule->terms_row,
                                 .terms_chunk = rule->terms_chunk,
                                 .absolute = rule->absolute};
}

static void slot_compare(struct verify_cuda *x, enum slot slot)
{
    struct slot_tensor t = verify_slot(x, slot);
    struct compare_rule rules[COMPARE_CHUNKS];
    struct figures_rule *own = x->rules + slot * COMPARE_CHUNKS;
    const struct compare_tensor tensor = {
        .data = t.data,
        .dtype = t.dtype,
        .heads_outside = slot == SLOT_LSE,
        .heads = t.heads,
        .dim = t.dim,
        .local_rows = shard_rows(x->c, t.side, x->v.rank),
        .row_step = shard_row_step(x->c),
        .expected = t.expected,
        .width = t.width,
        .group = t.side == SIDE_Q ? 1 : x->c->heads / x->c->kv_heads,
        .terms = slot == SLOT_DQ || slot == SLOT_DK ? x->terms : NULL,
    };
    for (int chunk = 0; chunk < COMPARE_CHUNKS; chunk++) {
        own[chunk] = figures_rule(x->c, t.name, x->v.spans[t.side], x->v.span_count[t.side], chunk);
        rules[chunk] = rule_of(&own[chunk]);
    }
    compare_cuda_rows(x->v.backend, &tensor, &x->rows[t.side], x->chunk_rows[t.side], rules,
                      x->scratch, x->results_device + slot * COMPARE_CHUNKS);
}

// Nobody reads the LSE of padding.
static void slot_judge(struct verify_cuda *x, enum slot slot)
{
    struct slot_tensor t = verify_slot(x, slot);
    const struct padding_tensor padded = {t.name, t.side, t.data, t.heads, t.dim};
    if (!verify_slot_present(x->c, slot))
        return;
    slot_compare(x, slot);
    if (slot != SLOT_LSE)
        x->padding[slot] = padding_cuda_judge(x->v.backend, x->c, x->v.rank, &padded);
}

static void dbias_judge(struct verify_cuda *x)
{
    const struct cp_case *c = x->c;
    struct bias_share share = bias_share(c, x->v.rank);
    struct sums_results results = verify_sums_results(x);
    if (bias_is_whole(c))
        reference_cuda_add_parts(x->v.backend, x->dbias_parts, c->world_size, x->v.rank,
                                 share.count, x->dbias + share.first);
    const struct compare_lines lines = {.data = x->v.results.dbias,
                                        .dtype = c->dtype,
                                        .expected = x->dbias + share.first,
                                        .begin = share.first,
                                        .end = share.first + share.count,
                                        .columns = c->seqlen_kv};
    x->rules[SLOT_DBIAS] = sums_bias_rule(c, x->v.rank, &results);
    struct compare_rule rule = rule_of(&x->rules[SLOT_DBIAS]);
    compare_cuda_lines(x->v.backend, &lines, &rule, x->scratch, x->results_device + SLOT_DBIAS);
}

static void answers_pull(struct verify_cuda *x)
{
    struct attention_backend *backend = x->v.backend;
    size_t floats = (size_t)x->c->heads * sizeof(float);
    staging_pull(backend, x->results, x->results_device, RESULTS * sizeof(*x->results));
    if (sums_has_heads(x->c))
        staging_pull(backend, x->heads, x->heads_device,
                     SUMS_NUMBERS * (size_t)(x->c->heads * x->c->world_size) * sizeof(double));
    if (x->v.results.max_logit)
        staging_pull(backend, x->max_logit, x->v.results.max_logit, floats);
    if (x->v.results.dsink)
        staging_pull(backend, x->dsink, x->v.results.dsink, floats);
}

// ---- start --------------------------------------------------------------------------------------

static void event_record(struct verify_cuda *x, cudaEvent_t event)
{
    cuda_note(x->v.backend, cudaEventRecord(event, attention_cuda_stream(x->v.backend)),
              "an event");
}

// Results of the queries are judged while their statistics travel.
static void judge_all(struct verify_cuda *x, cudaEvent_t reference, cudaEvent_t compare)
{
    for (int slot = 0; slot < SLOTS_OF_QUERIES; slot++)
        slot_judge(x, (enum slot)slot);
    exchange_finish(x);
    if (x->c->training)
        keys_reference(x);
    event_record(x, reference);
    for (int slot = SLOTS_OF_QUERIES; slot < SLOTS; slot++)
        slot_judge(x, (enum slot)slot);
    if (x->v.results.dbias)
        dbias_judge(x);
    answers_pull(x);
    event_record(x, compare);
}

enum status verify_cuda_start(const struct verification_cuda *v, cudaEvent_t reference,
                              cudaEvent_t compare, struct verify_cuda **result, struct error *error)
{
    struct verify_cuda *x = verify_take(v);
    if (!tables_push(x))
        return cuda_report(v->backend, error);
    queries_reference(x);
    enum status status = exchange_start(x, error);
    if (status != STATUS_OK)
        return status;
    judge_all(x, reference, compare);
    status = cuda_report(v->backend, error);
    if (status == STATUS_OK)
        *result = x;
    return status;
}
