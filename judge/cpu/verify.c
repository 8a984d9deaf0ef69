// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/verify.h"

#include <string.h>

#include "common/clock.h"
#include "common/mutation.h"
#include "judge/chunk.h"
#include "judge/cpu/reference.h"
#include "judge/dtype.h"
#include "judge/figures.h"
#include "judge/padding.h"
#include "judge/sums.h"

// What travels between the ranks and is kept of all of them: LSE of the queries of rank r as
// [sequence][head][local token], then delta in the same order. Padding is left as it is.
//
// `before` are the local tokens of all sequences before `sequence`, which moves on as the spans do.
struct statistics {
    double *ranks[WORLD_SIZE_MAX];
    int32_t sequence;
    int64_t before[WORLD_SIZE_MAX];
};

// Rows of the reference in memory.
enum { BLOCK_OUT, BLOCK_DQ, BLOCK_LSE, BLOCK_DELTA, BLOCK_TERMS, BLOCKS };
enum { BLOCK_DV = BLOCK_OUT, BLOCK_DK = BLOCK_DQ };

// Tensors whose reference comes from one function, and which are judged together.
#define CHUNK_TENSORS_MAX 3

struct verifier {
    const struct verification *v;
    const struct cp_case *c;
    struct rank_report *report;
    struct statistics statistics; // when training
    struct sums sums;
    double *block[BLOCKS];
    double *key_lse, *key_delta; // of the heads that share a key head, [heads][seqlen_q]
    struct row_error *rows[CHUNK_TENSORS_MAX];
    float got[HEAD_DIM_MAX];
};

// ---- memory ----

static int64_t group_size(const struct cp_case *c)
{
    return c->heads / c->kv_heads;
}

// Doubles of one half (LSE or delta) of a rank's statistics.
static int64_t statistics_count(const struct cp_case *c, int rank)
{
    return shard_rows(c, SIDE_Q, rank) * c->heads;
}

// Rows of a rank over all heads; no chunk has more.
static int64_t rank_rows(const struct cp_case *c, int rank)
{
    int64_t q = shard_rows(c, SIDE_Q, rank) * c->heads;
    int64_t kv = shard_rows(c, SIDE_KV, rank) * c->kv_heads;
    return q > kv ? q : kv;
}

// Rows of the longest shard of a sequence and head, up to what is in memory at a time.
static int64_t block_rows(const struct cp_case *c, int rank)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < c->batch && rows < VERIFY_BLOCK_ROWS; i++)
        for (int side = SIDE_Q; side <= SIDE_KV; side++) {
            int64_t tokens = shard_tokens(c, (enum shard_side)side, rank, i);
            rows = tokens > rows ? tokens : rows;
        }
    return rows < VERIFY_BLOCK_ROWS ? rows : VERIFY_BLOCK_ROWS;
}

// Doubles of a row of each block. dK and dV take the place of dQ and out.
static int64_t block_width(const struct cp_case *c, int block)
{
    const int64_t widths[] = {[BLOCK_OUT] = c->head_dim_v,
                              [BLOCK_DQ] = c->head_dim_qk,
                              [BLOCK_LSE] = 1,
                              [BLOCK_DELTA] = 1,
                              [BLOCK_TERMS] = 1};
    return widths[block];
}

enum status verify_reserve(const struct cp_case *c, int rank, size_t *total, struct error *error)
{
    size_t sum = *total;
    enum status status = STATUS_OK;
    for (int i = 0; i < BLOCKS && status == STATUS_OK; i++)
        status = arena_add(&sum, block_rows(c, rank) * block_width(c, i), 8, error);
    for (int i = 0; i < CHUNK_TENSORS_MAX && status == STATUS_OK; i++)
        status = arena_add(&sum, rank_rows(c, rank), sizeof(struct row_error), error);
    for (int r = 0; r < c->world_size && c->training && status == STATUS_OK; r++)
        status = arena_add(&sum, statistics_count(c, r), 2 * 8, error);
    for (int i = 0; i < 2 && c->training && status == STATUS_OK; i++)
        status = arena_add(&sum, group_size(c) * c->seqlen_q, 8, error);
    if (status == STATUS_OK)
        status = sums_reserve(c, rank, &sum, error);
    if (status == STATUS_OK)
        *total = sum;
    return status;
}

static void memory_take(struct verifier *x)
{
    const struct cp_case *c = x->c;
    struct arena *a = x->v->arena;
    int rank = x->v->rank;
    for (int i = 0; i < BLOCKS; i++)
        x->block[i] = arena_take(a, block_rows(c, rank) * block_width(c, i), 8);
    for (int i = 0; i < CHUNK_TENSORS_MAX; i++)
        x->rows[i] = arena_take(a, rank_rows(c, rank), sizeof(struct row_error));
    sums_take(&x->sums, c, rank, a);
    if (!c->training)
        return;
    for (int r = 0; r < c->world_size; r++)
        x->statistics.ranks[r] = arena_take(a, statistics_count(c, r), 2 * 8);
    x->key_lse = arena_take(a, group_size(c) * c->seqlen_q, 8);
    x->key_delta = arena_take(a, group_size(c) * c->seqlen_q, 8);
}

// ---- rows of a chunk ----

// A tensor as the rank holds it.
struct tensor {
    enum report_tensor name;
    enum shard_side side;
    const void *data;
    enum case_dtype dtype;
    int heads, dim;
    bool heads_outside; // [heads][rows] instead of [rows][heads][dim]
    int block;          // which of the blocks holds its reference
};

// Rows [first, first + count) of a span, of one head. `before` are the tokens of the chunk's spans
// before this one.
struct stretch {
    const struct span *span;
    int64_t before;
    int head;
    int64_t first, count;
};

static void tensor_row(const struct verifier *x, const struct tensor *t, int64_t row, int head,
                       float *values)
{
    int64_t rows = shard_rows(x->c, t->side, x->v->rank);
    int64_t at = t->heads_outside ? head * rows + row : (row * t->heads + head) * t->dim;
    dtype_read(t->dtype, t->data, at, t->dim, values);
}

// See judge/chunk.h.
static int64_t row_index(const struct tensor *t, const struct stretch *s, int64_t i)
{
    return (s->before + s->first + i) * t->heads + s->head;
}

static void stretch_compare(struct verifier *x, const struct tensor *t, const struct stretch *s,
                            struct tally *tally)
{
    int64_t step = shard_row_step(x->c);
    bool cancels = t->name == TENSOR_DQ || t->name == TENSOR_DK;
    for (int64_t i = 0; i < s->count; i++) {
        int64_t token = s->first + i;
        struct element where = {
            .sequence = s->span->sequence, .head = s->head, .position = s->span->position + token};
        tensor_row(x, t, s->span->row + token * step, s->head, x->got);
        tally_row(tally, row_index(t, s, i), where, x->got, x->block[t->block] + i * t->dim, t->dim,
                  cancels ? x->block[BLOCK_TERMS][i] : 0);
    }
}

// ---- the reference ----

// Where the statistics of a sequence of a rank and of one head begin. Sequences must be asked for
// in ascending order, or from 0 again.
static int64_t statistics_at(struct verifier *x, int rank, int32_t sequence, int head)
{
    struct statistics *s = &x->statistics;
    const struct cp_case *c = x->c;
    if (sequence < s->sequence) {
        s->sequence = 0;
        memset(s->before, 0, sizeof(s->before));
    }
    for (; s->sequence < sequence; s->sequence++)
        for (int r = 0; r < c->world_size; r++)
            s->before[r] += shard_tokens(c, SIDE_Q, r, s->sequence);
    return s->before[rank] * c->heads + head * shard_tokens(c, SIDE_Q, rank, sequence);
}

// Tokens of a sequence on a rank that lie before a chunk.
static int64_t tokens_before(const struct cp_case *c, int rank, int32_t sequence, int chunk)
{
    int64_t begin = 0, end = 0;
    int chunks = shard_chunks_per_rank(c) * c->world_size;
    if (chunk > 0)
        shard_chunk(case_occupied(c, SIDE_Q, sequence), chunks, shard_chunk_of(c, rank, 0), &begin,
                    &end);
    return end - begin;
}

static void statistics_keep(struct verifier *x, const struct stretch *s)
{
    int rank = x->v->rank;
    double *lse = x->statistics.ranks[rank];
    int64_t at = statistics_at(x, rank, s->span->sequence, s->head) + s->first +
                 tokens_before(x->c, rank, s->span->sequence, s->span->chunk);
    size_t bytes = (size_t)s->count * sizeof(double);
    memcpy(lse + at, x->block[BLOCK_LSE], bytes);
    memcpy(lse + statistics_count(x->c, rank) + at, x->block[BLOCK_DELTA], bytes);
}

static enum status queries_reference(struct verifier *x, const struct stretch *s,
                                     struct error *error)
{
    int64_t begin = s->span->position + s->first;
    struct reference_sums sums = sums_of(&x->sums, s->span, s->first, s->head);
    enum status status = reference_queries(
        x->c, s->span->sequence, s->head, begin, begin + s->count, x->block[BLOCK_OUT],
        x->block[BLOCK_LSE], x->c->training ? x->block[BLOCK_DELTA] : NULL,
        x->c->training ? x->block[BLOCK_DQ] : NULL, x->block[BLOCK_TERMS], &sums, error);
    if (status == STATUS_OK && x->c->training)
        statistics_keep(x, s);
    return status;
}

// Brings LSE and delta of a rank's tokens of a sequence into the order of positions.
static void rank_statistics(struct verifier *x, int rank, int32_t sequence, int head, double *lse,
                            double *delta)
{
    const struct cp_case *c = x->c;
    const double *from = x->statistics.ranks[rank] + statistics_at(x, rank, sequence, head);
    int64_t count = statistics_count(c, rank), length = case_length(c, SIDE_Q, sequence);
    int chunks = shard_chunks_per_rank(c);
    for (int i = 0; i < chunks; i++) {
        int64_t begin, end;
        shard_chunk(case_occupied(c, SIDE_Q, sequence), chunks * c->world_size,
                    shard_chunk_of(c, rank, i), &begin, &end);
        int64_t valid = (end < length ? end : length) - begin;
        if (valid > 0) {
            memcpy(lse + begin, from, (size_t)valid * sizeof(double));
            memcpy(delta + begin, from + count, (size_t)valid * sizeof(double));
        }
        from += end - begin;
    }
}

// The same of all ranks, for the query heads of a key head.
static void key_statistics(struct verifier *x, int32_t sequence, int kv_head)
{
    const struct cp_case *c = x->c;
    int64_t length = case_length(c, SIDE_Q, sequence);
    int group = (int)group_size(c);
    for (int rank = 0; rank < c->world_size; rank++)
        for (int h = 0; h < group; h++)
            rank_statistics(x, rank, sequence, kv_head * group + h, x->key_lse + h * length,
                            x->key_delta + h * length);
}

static enum status keys_reference(struct verifier *x, const struct stretch *s, struct error *error)
{
    if (s->first == 0)
        key_statistics(x, s->span->sequence, s->head);
    int64_t begin = s->span->position + s->first;
    return reference_keys(x->c, s->span->sequence, s->head, begin, begin + s->count, x->key_lse,
                          x->key_delta, x->block[BLOCK_DK], x->block[BLOCK_DV],
                          x->block[BLOCK_TERMS], error);
}

// ---- one chunk ----

typedef enum status reference_function(struct verifier *x, const struct stretch *s,
                                       struct error *error);

static enum status stretch_judge(struct verifier *x, const struct tensor *tensors, int count,
                                 reference_function *reference, const struct stretch *s,
                                 struct tally *tallies, struct error *error)
{
    uint64_t start_ns = clock_now_ns();
    enum status status = reference(x, s, error);
    uint64_t reference_ns = clock_now_ns();
    x->report->timings.reference_ns += reference_ns - start_ns;
    for (int i = 0; i < count && status == STATUS_OK; i++)
        stretch_compare(x, &tensors[i], s, &tallies[i]);
    x->report->timings.compare_ns += clock_now_ns() - reference_ns;
    return status;
}

static enum status span_judge(struct verifier *x, const struct tensor *tensors, int count,
                              reference_function *reference, const struct span *span,
                              int64_t before, struct tally *tallies, struct error *error)
{
    for (int head = MUTATED(VERIFY_SKIPS_HEAD); head < tensors[0].heads; head++)
        for (int64_t first = 0; first < span->len; first += VERIFY_BLOCK_ROWS) {
            struct stretch s = {span, before, head, first, span->len - first};
            if (s.count > VERIFY_BLOCK_ROWS)
                s.count = VERIFY_BLOCK_ROWS;
            enum status status = stretch_judge(x, tensors, count, reference, &s, tallies, error);
            if (status != STATUS_OK)
                return status;
        }
    return STATUS_OK;
}

static void figures_append(struct verifier *x, const struct figures *figures)
{
    struct rank_report *report = x->report;
    report->pass = report->pass && figures->broken == 0;
    report->figures[report->figures_count++] = *figures;
}

static void tally_append(struct verifier *x, const struct tensor *t, struct tally *tally)
{
    uint64_t start_ns = clock_now_ns();
    int64_t worst = tally_finish(tally);
    if (worst >= 0)
        tally->figures.worst_row = chunk_element(x->v->spans[t->side], x->v->span_count[t->side],
                                                 tally->figures.chunk, t->heads, worst);
    figures_append(x, &tally->figures);
    x->report->timings.compare_ns += clock_now_ns() - start_ns;
}

static void tallies_init(struct verifier *x, const struct tensor *tensors, int count, int chunk,
                         int64_t tokens, struct tally *tallies)
{
    const struct verification *v = x->v;
    enum shard_side side = tensors[0].side;
    for (int i = 0; i < count; i++)
        tally_init(&tallies[i],
                   figures_rule(x->c, tensors[i].name, v->spans[side], v->span_count[side], chunk),
                   tensors[i].name, chunk, x->rows[i], tokens * tensors[i].heads);
}

// Tensors of one side, whose references come from one function.
static enum status chunk_judge(struct verifier *x, const struct tensor *tensors, int count,
                               reference_function *reference, int chunk, struct error *error)
{
    const struct verification *v = x->v;
    enum shard_side side = tensors[0].side;
    int64_t tokens = chunk_tokens(v->spans[side], v->span_count[side], chunk), before = 0;
    struct tally tallies[CHUNK_TENSORS_MAX];
    if (tokens == 0)
        return STATUS_OK;
    tallies_init(x, tensors, count, chunk, tokens, tallies);
    for (int i = 0; i < v->span_count[side]; i++) {
        const struct span *span = &v->spans[side][i];
        if (span->chunk != chunk)
            continue;
        enum status status = span_judge(x, tensors, count, reference, span, before, tallies, error);
        if (status != STATUS_OK)
            return status;
        before += span->len;
    }
    for (int i = 0; i < count; i++)
        tally_append(x, &tensors[i], &tallies[i]);
    return STATUS_OK;
}

static void padding_append(struct verifier *x, const struct tensor *t)
{
    uint64_t start_ns = clock_now_ns();
    const struct padded_tensor padded = {t->name, t->side, t->data, t->heads, t->dim};
    struct figures figures;
    // Nobody reads the LSE of padding.
    if (t->name != TENSOR_LSE && !MUTATED(VERIFY_SKIPS_PADDING) &&
        padding_judge(x->c, x->v->rank, &padded, &figures))
        figures_append(x, &figures);
    x->report->timings.compare_ns += clock_now_ns() - start_ns;
}

// ---- the two passes ----

static void progress_note(const struct verifier *x, int step)
{
    progress_store(x->v->progress, (struct progress_view){.job = (uint32_t)x->v->job,
                                                          .phase = REPORT_REFERENCE,
                                                          .step = step,
                                                          .waiting_for = -1});
}

static enum status queries_judge(struct verifier *x, struct error *error)
{
    const struct cp_case *c = x->c;
    const struct tensor tensors[] = {
        {TENSOR_OUT, SIDE_Q, x->v->results.out, c->dtype, c->heads, c->head_dim_v, false,
         BLOCK_OUT},
        {TENSOR_LSE, SIDE_Q, x->v->results.lse, DTYPE_FP32, c->heads, 1, true, BLOCK_LSE},
        {TENSOR_DQ, SIDE_Q, x->v->results.dq, c->dtype, c->heads, c->head_dim_qk, false, BLOCK_DQ},
    };
    enum status status = STATUS_OK;
    int count = c->training ? 3 : 2;
    int chunks = MUTATED(VERIFY_SKIPS_CHUNK) ? 1 : shard_chunks_per_rank(c);
    for (int chunk = 0; chunk < chunks && status == STATUS_OK; chunk++) {
        progress_note(x, chunk);
        status = chunk_judge(x, tensors, count, queries_reference, chunk, error);
    }
    for (int i = 0; i < count && status == STATUS_OK; i++)
        padding_append(x, &tensors[i]);
    return status;
}

static enum status keys_judge(struct verifier *x, struct error *error)
{
    const struct cp_case *c = x->c;
    const struct tensor tensors[] = {
        {TENSOR_DK, SIDE_KV, x->v->results.dk, c->dtype, c->kv_heads, c->head_dim_qk, false,
         BLOCK_DK},
        {TENSOR_DV, SIDE_KV, x->v->results.dv, c->dtype, c->kv_heads, c->head_dim_v, false,
         BLOCK_DV},
    };
    enum status status = STATUS_OK;
    for (int chunk = 0; chunk < shard_chunks_per_rank(c) && status == STATUS_OK; chunk++) {
        progress_note(x, 3 + chunk);
        status = chunk_judge(x, tensors, 2, keys_reference, chunk, error);
    }
    for (int i = 0; i < 2 && status == STATUS_OK; i++)
        padding_append(x, &tensors[i]);
    return status;
}

static struct message statistics_message(const struct verifier *x, int peer)
{
    int rank = x->v->rank;
    return (struct message){.peer = peer,
                            .send = x->statistics.ranks[rank],
                            .send_bytes = (size_t)statistics_count(x->c, rank) * 2 * sizeof(double),
                            .receive = x->statistics.ranks[peer],
                            .receive_bytes =
                                (size_t)statistics_count(x->c, peer) * 2 * sizeof(double)};
}

// What is known of the own queries goes to all, theirs comes.
static enum status queries_exchange(struct verifier *x, struct error *error)
{
    const struct swap *swap = &x->v->swap;
    struct message messages[WORLD_SIZE_MAX * (1 + SUMS_MESSAGES_MAX)];
    int count = 0;
    uint64_t start_ns = clock_now_ns();
    for (int peer = 0; peer < x->c->world_size; peer++) {
        if (peer == x->v->rank)
            continue;
        if (x->c->training)
            messages[count++] = statistics_message(x, peer);
        count += sums_messages(&x->sums, peer, messages + count);
    }
    progress_note(x, 2);
    enum status status = STATUS_OK;
    if (count > 0)
        status = swap->run(swap->context, messages, count, error);
    x->report->timings.reference_ns += clock_now_ns() - start_ns;
    return status;
}

static void all_sums_judge(struct verifier *x)
{
    const struct verification *v = x->v;
    const struct sums_results results = {.max_logit = v->results.max_logit,
                                         .dsink = v->results.dsink,
                                         .dbias = v->results.dbias,
                                         .spans = v->spans[SIDE_Q],
                                         .span_count = v->span_count[SIDE_Q]};
    struct figures figures[SUMS_TENSORS_MAX];
    uint64_t start_ns = clock_now_ns();
    int count = sums_judge(&x->sums, &results, figures);
    for (int i = 0; i < count; i++)
        figures_append(x, &figures[i]);
    x->report->timings.compare_ns += clock_now_ns() - start_ns;
}

enum status verify_run(const struct verification *v, struct rank_report *report,
                       struct error *error)
{
    struct verifier x = {.v = v, .c = v->c, .report = report};
    report->pass = true;
    report->figures_count = 0;
    memory_take(&x);
    enum status status = queries_judge(&x, error);
    if (status == STATUS_OK)
        status = queries_exchange(&x, error);
    if (status != STATUS_OK)
        return status;
    all_sums_judge(&x);
    return v->c->training ? keys_judge(&x, error) : STATUS_OK;
}
