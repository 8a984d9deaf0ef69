// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda/verify.h"

#include <string.h>

#include "judge/chunk.h"
#include "judge/cuda/tables.h"
#include "judge/cuda/verify_state.h"
#include "judge/inputs.h"
#include "judge/source.h"
#include "plan/bias.h"

// ---- tables -------------------------------------------------------------------------------------

// True if keys are judged, which needs the statistics of all queries.
static bool wants_keys(const struct verify_cuda *x)
{
    return x->c->training && (!x->v.alone || x->v.results.dk || x->v.results.dv);
}

static int64_t local_rows(const struct verify_cuda *x, enum shard_side side)
{
    return x->v.placed ? x->v.token_rows[side] : shard_rows(x->c, side, x->v.rank);
}

// Copies tiles to the device in descending order of work, and fills *rows. False: memory is short.
static bool tiles_push(struct verify_cuda *x, enum shard_side side,
                       const struct reference_tile *tiles, int64_t count,
                       struct reference_rows *rows)
{
    tables_sort(x->c, side, tiles, count, x->sorted);
    const struct reference_tile *last = count > 0 ? &tiles[count - 1] : NULL;
    *rows = (struct reference_rows){
        .tiles = queue_copy(x->v.queue, x->sorted, (size_t)count * sizeof(*x->sorted)),
        .tile_count = count,
        .rows = last ? last->row + last->count : 0,
    };
    return rows->tiles;
}

static bool rows_push(struct verify_cuda *x, enum shard_side side)
{
    int64_t count = x->extent.tiles[side];
    x->chunk_rows[side] = 0;
    for (int64_t i = 0; i < count && x->tiles[side][i].chunk == 0; i++)
        x->chunk_rows[side] += x->tiles[side][i].count;
    return tiles_push(x, side, x->tiles[side], count, &x->rows[side]);
}

// With a sample: copies the tiles of all own queries to the device, for run_statistics().
static bool all_queries_push(struct verify_cuda *x)
{
    const struct verification_cuda *v = &x->v;
    if (!verify_is_sample(x) || !x->c->training)
        return true;
    int64_t count = tables_tiles(x->c, SIDE_Q, v->rank, v->spans[SIDE_Q], v->span_count[SIDE_Q], 1,
                                 x->drawn, x->all_tiles);
    return tiles_push(x, SIDE_Q, x->all_tiles, count, &x->all_queries);
}

static bool sinks_push(struct verify_cuda *x)
{
    void *device;
    size_t bytes = (size_t)x->c->heads * sizeof(float);
    float *sinks = queue_stage(x->v.queue, bytes, &device);
    if (!sinks)
        return false;
    for (int head = 0; head < x->c->heads; head++)
        sinks[head] = input_sink(x->c, head);
    queue_push(x->v.queue, device, sinks, bytes);
    x->r.sinks = device;
    return true;
}

// Takes host memory for answers and device memory of the same size. Both are zeroed, because all of
// it is copied back, including parts that no kernel writes.
static bool answer_take(struct verify_cuda *x, size_t bytes, void **host, void **device)
{
    *host = queue_stage(x->v.queue, bytes, device);
    if (!*host)
        return false;
    memset(*host, 0, bytes);
    queue_push(x->v.queue, *device, *host, bytes);
    return true;
}

static bool answers_take(struct verify_cuda *x)
{
    size_t numbers = TOTALS_NUMBERS * (size_t)x->c->heads * (size_t)x->c->world_size;
    size_t floats = (size_t)x->c->heads * sizeof(float);
    void *unused;
    return answer_take(x, RESULTS * sizeof(*x->results), (void **)&x->results,
                       (void **)&x->results_device) &&
           answer_take(x, numbers * sizeof(double), (void **)&x->heads,
                       (void **)&x->heads_device) &&
           answer_take(x, floats, (void **)&x->max_logit, &unused) &&
           answer_take(x, floats, (void **)&x->dsink, &unused);
}

// Copies the tables to the device and takes memory for the answers. False if memory is short; the
// queue stores the error.
static bool tables_push(struct verify_cuda *x)
{
    x->r.sequences =
        queue_copy(x->v.queue, x->sequences, (size_t)x->c->batch * sizeof(*x->sequences));
    return x->r.sequences && rows_push(x, SIDE_Q) && rows_push(x, SIDE_KV) && all_queries_push(x) &&
           sinks_push(x) && answers_take(x);
}

// ---- the reference ------------------------------------------------------------------------------

static double *heads_of(const struct verify_cuda *x, int rank)
{
    return x->heads_device + rank * TOTALS_NUMBERS * x->c->heads;
}

static struct reference_dbias dbias_of(const struct verify_cuda *x, bool wanted)
{
    struct reference_dbias dbias = {0};
    if (!x->dbias || !wanted)
        return dbias;
    dbias.data = x->dbias;
    dbias.twin = x->dbias_twin;
    dbias.terms = x->bias_terms;
    struct totals_layout l = totals_layout(x->c, x->v.rank);
    dbias.head_stride = l.heads > 1 ? l.rows * l.columns : 0;
    dbias.row_step = bias_row_step(x->c);
    return dbias;
}

// Draws the inputs of the next key heads, from `kv_first` on, unless they are already in memory.
// False when there are no more key heads.
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

// Fills the statistics of all own queries from the run's results. The keys of a sample are judged
// by them.
static void run_statistics(struct verify_cuda *x)
{
    const struct statistics *own = &x->ranks[x->v.rank];
    const struct reference_run run = {.lse = x->v.results.lse,
                                      .out = x->v.results.out,
                                      .local_rows = shard_rows(x->c, SIDE_Q, x->v.rank),
                                      .row_step = shard_row_step(x->c)};
    reference_cuda_run_stats(&x->r, &x->all_queries, &run, own->stats, own->stats64);
}

static void heads_reference(struct verify_cuda *x)
{
    bool sample = verify_is_sample(x);
    const struct statistics *own = &x->ranks[x->v.rank];
    bool sink = x->v.results.dsink != NULL;
    const struct reference_head_rows rows = {
        .max = x->max,
        .bias_terms = x->dbias ? x->bias_terms : NULL,
        .rows = x->rows[SIDE_Q].rows,
        .stats = sink ? own->stats : NULL,
        .stats64 = sink ? own->stats64 : NULL,
        .stats_rows = sample ? x->all_queries.rows : x->rows[SIDE_Q].rows,
        .judged = sink && sample ? x->judged.stats : NULL,
    };
    if (totals_has_heads(x->c))
        reference_cuda_heads(&x->r, &rows, heads_of(x, x->v.rank));
}

static void queries_reference(struct verify_cuda *x)
{
    struct reference_dbias dbias = dbias_of(x, true);
    for (int kv = 0; heads_next(x, kv); kv += x->kv_step) {
        verify_out(x);
        if (!x->c->training)
            continue;
        verify_dq(x, &dbias);
        if (verify_is_sample(x))
            run_statistics(x);
    }
    heads_reference(x);
}

// Computes the statistics and sums of the queries of `rank`. During the call they take the place of
// the judged queries in *x.
static void rank_reference(struct verify_cuda *x, int rank, struct reference_rows rows)
{
    const struct verify_cuda own = *x;
    bool summed = !x->v.own_sums && bias_is_whole(x->c);
    struct reference_dbias dbias = dbias_of(x, summed);
    x->v.rank = rank;
    x->rows[SIDE_Q] = rows;
    x->judged = x->ranks[rank];
    for (int kv = 0; heads_next(x, kv); kv += x->kv_step) {
        verify_out(x);
        if (dbias.data)
            verify_dq(x, &dbias);
    }
    if (!dbias.data)
        x->dbias = NULL;
    heads_reference(x);
    x->v.rank = own.v.rank;
    x->rows[SIDE_Q] = own.rows[SIDE_Q];
    x->judged = own.judged;
    x->dbias = own.dbias;
}

// True if the queries of other ranks are needed and no other rank computes them.
static bool wants_others(const struct verify_cuda *x)
{
    const struct rank_results *r = &x->v.results;
    bool sums = r->dsink || r->max_logit || (r->dbias && bias_is_whole(x->c));
    return x->v.alone && (wants_keys(x) || (sums && !x->v.own_sums));
}

static void others_reference(struct verify_cuda *x)
{
    for (int rank = 0; rank < x->c->world_size; rank++) {
        struct reference_rows rows;
        if (rank == x->v.rank && !x->v.placed)
            continue;
        int count = shard_spans(x->c, SIDE_Q, rank, x->spans);
        int64_t tiles =
            tables_tiles(x->c, SIDE_Q, rank, x->spans, count, 1, x->drawn, x->all_tiles);
        if (!tiles_push(x, SIDE_Q, x->all_tiles, tiles, &rows))
            return;
        rank_reference(x, rank, rows);
    }
}

// Gathers one kind of statistics of all ranks in the order of tokens. False: memory is short.
static bool statistics_gather(struct verify_cuda *x, const void *const from[WORLD_SIZE_MAX],
                              void *to)
{
    int64_t count = tables_pieces(x->c, x->sequences, from, x->spans, x->pieces);
    struct reference_piece *pieces =
        queue_copy(x->v.queue, x->pieces, (size_t)count * sizeof(*pieces));
    if (pieces)
        reference_cuda_gather(&x->r, pieces, count, to);
    return pieces;
}

static void keys_reference(struct verify_cuda *x)
{
    const void *stats[WORLD_SIZE_MAX], *stats64[WORLD_SIZE_MAX];
    for (int rank = 0; rank < x->c->world_size; rank++) {
        stats[rank] = x->ranks[rank].stats;
        stats64[rank] = x->ranks[rank].stats64;
    }
    if (!statistics_gather(x, stats, x->all.stats) ||
        (x->extent.fp64 && !statistics_gather(x, stats64, x->all.stats64)))
        return;
    for (int kv = 0; heads_next(x, kv); kv += x->kv_step)
        verify_dkv(x);
}

// ---- the swap -----------------------------------------------------------------------------------

static int bias_messages(const struct verify_cuda *x, int peer, struct message *messages)
{
    struct bias_share own = bias_share(x->c, x->v.rank), theirs = bias_share(x->c, peer);
    messages[0] = (struct message){.peer = peer,
                                   .send = x->dbias + theirs.first,
                                   .send_bytes = (size_t)theirs.count * sizeof(double),
                                   .receive = x->dbias_parts + peer * own.count,
                                   .receive_bytes = (size_t)own.count * sizeof(double)};
    messages[1] = (struct message){.peer = peer,
                                   .send = x->dbias_twin + theirs.first,
                                   .send_bytes = (size_t)theirs.count * sizeof(float),
                                   .receive = x->dbias_twin_parts + peer * own.count,
                                   .receive_bytes = (size_t)own.count * sizeof(float)};
    return 2;
}

#define PEER_MESSAGES_MAX 4

static int peer_messages(const struct verify_cuda *x, int peer, struct message *messages)
{
    const struct cp_case *c = x->c;
    int rank = x->v.rank, count = 0;
    if (c->training)
        messages[count++] = (struct message){.peer = peer,
                                             .send = x->ranks[rank].stats,
                                             .send_bytes = x->ranks[rank].bytes,
                                             .receive = x->ranks[peer].stats,
                                             .receive_bytes = x->ranks[peer].bytes};
    if (totals_has_heads(c)) {
        size_t bytes = TOTALS_NUMBERS * (size_t)c->heads * sizeof(double);
        messages[count++] =
            (struct message){peer, heads_of(x, rank), bytes, heads_of(x, peer), bytes};
    }
    if (x->dbias && bias_is_whole(c))
        count += bias_messages(x, peer, messages + count);
    return count;
}

// Starts the exchange of the statistics and sums of the own queries with all other ranks. *count
// becomes the number of messages.
static enum status swap_start(struct verify_cuda *x, int *count, struct error *error)
{
    struct message messages[WORLD_SIZE_MAX * PEER_MESSAGES_MAX];
    *count = 0;
    for (int peer = 0; peer < x->c->world_size && !x->v.alone; peer++)
        if (peer != x->v.rank)
            *count += peer_messages(x, peer, messages + *count);
    return *count > 0 ? x->v.swap.start(x->v.swap.context, messages, *count, error) : STATUS_OK;
}

// ---- comparison ---------------------------------------------------------------------------------

static void slot_compare(struct verify_cuda *x, enum slot slot)
{
    struct slot_tensor t = verify_slot(x, slot);
    bool cancels = slot == SLOT_DQ || slot == SLOT_DK;
    const struct compare_tensor tensor = {
        .data = t.data,
        .dtype = t.dtype,
        .heads_outside = slot == SLOT_LSE,
        .side = t.side,
        .heads = t.heads,
        .dim = t.dim,
        .width = slot == SLOT_LSE ? 1 : reference_cuda_padded(t.dim),
        .local_rows = local_rows(x, t.side),
        .row_step = shard_row_step(x->c),
        .expected = t.expected,
        .twin_dtype = t.dtype,
        .stats = slot == SLOT_LSE ? x->judged.stats : NULL,
        .stats64 = slot == SLOT_LSE ? x->judged.stats64 : NULL,
        .terms = cancels ? x->terms : NULL,
        .terms_factor = input_rms(x->c, slot == SLOT_DQ ? INPUT_K : INPUT_Q),
    };
    struct rules rules = rules_of(x->c, t.name);
    compare_cuda_rows(&x->r, &tensor, &x->rows[t.side], x->chunk_rows[t.side], &rules, x->scratch,
                      x->results_device + slot * COMPARE_CHUNKS);
}

// Judges a tensor and its padding. The padding of LSE is not judged, because nobody reads it.
static void slot_judge(struct verify_cuda *x, enum slot slot)
{
    struct slot_tensor t = verify_slot(x, slot);
    const struct padding_tensor padded = {t.name, t.side, t.data, t.heads, t.dim};
    if (!verify_slot_present(x, slot))
        return;
    slot_compare(x, slot);
    if (slot != SLOT_LSE && !x->v.placed)
        x->padding[slot] = padding_cuda_judge(x->v.queue, x->c, x->v.rank, &padded);
}

static void dbias_judge(struct verify_cuda *x)
{
    const struct cp_case *c = x->c;
    struct bias_share share = verify_bias_share(x);
    if (bias_is_whole(c) && !x->v.alone) {
        reference_cuda_add_parts(x->v.queue, x->dbias_parts, c->world_size, x->v.rank, share.count,
                                 x->dbias + share.first);
        reference_cuda_add_twin_parts(x->v.queue, x->dbias_twin_parts, c->world_size, x->v.rank,
                                      share.count, x->dbias_twin + share.first);
    }
    struct totals_layout l = totals_layout(c, x->v.rank);
    bool summed = bias_is_whole(c) && !x->v.own_sums;
    int first = summed ? 0 : x->v.rank;
    const struct compare_lines lines = {
        .data = x->v.results.dbias,
        .dtype = c->dtype,
        .expected = x->dbias + share.first,
        .twin = x->dbias_twin + share.first,
        .begin = share.first,
        .end = share.first + share.count,
        .columns = c->seqlen_kv,
        .terms = heads_of(x, first) + TOTALS_BIAS_TERMS * c->heads,
        .terms_ranks = summed ? c->world_size : 1,
        .terms_step = TOTALS_NUMBERS * c->heads,
        .terms_count = c->heads,
        .terms_elements = l.heads * l.rows * l.columns,
    };
    struct rules rules = rules_of(c, TENSOR_DBIAS);
    compare_cuda_lines(x->v.queue, &lines, &rules, x->scratch, x->results_device + SLOT_DBIAS);
}

static void answers_pull(struct verify_cuda *x)
{
    struct cuda_queue *queue = x->v.queue;
    size_t floats = (size_t)x->c->heads * sizeof(float);
    queue_pull(queue, x->results, x->results_device, RESULTS * sizeof(*x->results));
    if (totals_has_heads(x->c))
        queue_pull(queue, x->heads, x->heads_device,
                   TOTALS_NUMBERS * (size_t)(x->c->heads * x->c->world_size) * sizeof(double));
    if (x->v.results.max_logit)
        queue_pull(queue, x->max_logit, x->v.results.max_logit, floats);
    if (x->v.results.dsink)
        queue_pull(queue, x->dsink, x->v.results.dsink, floats);
}

// ---- start --------------------------------------------------------------------------------------

static void event_record(struct verify_cuda *x, cudaEvent_t event)
{
    queue_note(x->v.queue, cudaEventRecord(event, x->v.queue->stream), "an event");
}

// Enqueues everything that follows the reference of the own queries. Their results are judged while
// their statistics are exchanged.
static enum status judge_all(struct verify_cuda *x, bool swapped, cudaEvent_t reference,
                             cudaEvent_t compare, struct error *error)
{
    for (int slot = 0; slot < SLOTS_OF_QUERIES; slot++)
        slot_judge(x, (enum slot)slot);
    enum status status = swapped ? x->v.swap.join(x->v.swap.context, error) : STATUS_OK;
    if (status != STATUS_OK)
        return status;
    if (wants_others(x))
        others_reference(x);
    if (wants_keys(x))
        keys_reference(x);
    event_record(x, reference);
    for (int slot = SLOTS_OF_QUERIES; slot < SLOTS; slot++)
        slot_judge(x, (enum slot)slot);
    if (x->v.results.dbias)
        dbias_judge(x);
    answers_pull(x);
    event_record(x, compare);
    return queue_report(x->v.queue, error);
}

enum status verify_cuda_start(const struct verification_cuda *v, cudaEvent_t reference,
                              cudaEvent_t compare, struct verify_cuda **result, struct error *error)
{
    struct verify_cuda *x = verify_take(v);
    int messages;
    if (!tables_push(x))
        return queue_report(v->queue, error);
    queries_reference(x);
    enum status status = swap_start(x, &messages, error);
    if (status == STATUS_OK)
        status = judge_all(x, messages > 0, reference, compare, error);
    if (status == STATUS_OK)
        *result = x;
    return status;
}
