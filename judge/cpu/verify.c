// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/verify.h"

#include <math.h>
#include <string.h>

#include "common/clock.h"
#include "common/mutation.h"
#include "judge/chunk.h"
#include "judge/cpu/statistics.h"
#include "judge/dtype.h"
#include "judge/inputs.h"
#include "judge/padding.h"
#include "judge/tally.h"
#include "judge/tiles.h"
#include "judge/totals.h"

// Expected values of the current rows. Rows of keys use the arrays of rows of queries: dV that of
// out, dK that of dQ.
struct block {
    double *wide, *other; // wide: out or dV; other: dQ or dK
    float *wide_twin, *other_twin;
    double *lse, *delta, *delta_twin, *terms;
};

// Tensors whose rows are computed and judged together.
#define GROUP_TENSORS_MAX 3

#define CHUNKS_MAX 2 // of a rank

struct verifier {
    const struct verification *v;
    const struct cp_case *c;
    struct rank_report *report;
    enum precision precision;
    double fraction; // share of the tiles that are judged, 0..1
    struct tile *tiles[2];
    int64_t tile_count[2];
    struct statistics statistics; // when training
    struct totals totals;
    struct room room;
    struct block block;
    float *errors[GROUP_TENSORS_MAX], *twins[GROUP_TENSORS_MAX]; // by slot; see judge/tally.h
    float got[HEAD_DIM_MAX];
};

// ---- memory -------------------------------------------------------------------------------------

static int64_t rank_tokens(const struct cp_case *c, int rank)
{
    int64_t q = shard_rows(c, SIDE_Q, rank), kv = shard_rows(c, SIDE_KV, rank);
    return q > kv ? q : kv;
}

// Number of rows in memory at a time.
static int64_t block_rows(const struct cp_case *c, int rank)
{
    int64_t tokens = rank_tokens(c, rank);
    return tokens < VERIFY_BLOCK_ROWS ? tokens : VERIFY_BLOCK_ROWS;
}

static int64_t tiles_max(const struct cp_case *c, int rank)
{
    return rank_tokens(c, rank) / TILE_TOKENS + 2 * (int64_t)shard_spans_max(c);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Number of rows, over all chunks, of the tensor in a slot: 0: out or dV, 1: dQ or dK, 2: LSE.
// group_elements(): number of its elements.
static int64_t group_rows(const struct cp_case *c, int rank, int tensor)
{
    int64_t q = shard_rows(c, SIDE_Q, rank) * c->heads;
    int64_t kv = shard_rows(c, SIDE_KV, rank) * c->kv_heads;
    return tensor == 2 ? q : larger(q, kv);
}

static int64_t group_elements(const struct cp_case *c, int rank, int tensor)
{
    const int dims[GROUP_TENSORS_MAX] = {c->head_dim_v, c->head_dim_qk, 1};
    return group_rows(c, rank, tensor) * dims[tensor];
}

// Counts the bytes to reserve, or takes them if `arena` is not NULL.
struct budget {
    struct arena *arena;
    size_t total;
    enum status status;
    struct error *error;
};

static void *piece(struct budget *b, int64_t count, int64_t size)
{
    if (b->arena)
        return arena_take(b->arena, count, size);
    if (b->status == STATUS_OK)
        b->status = arena_add(&b->total, count, size, b->error);
    return NULL;
}

static void pieces(struct verifier *x, const struct cp_case *c, int rank, struct budget *b)
{
    int64_t rows = block_rows(c, rank), qk = c->head_dim_qk, v = c->head_dim_v;
    x->block = (struct block){.wide = piece(b, rows * v, 8),
                              .other = piece(b, rows * qk, 8),
                              .wide_twin = piece(b, rows * v, 4),
                              .other_twin = piece(b, rows * qk, 4),
                              .lse = piece(b, rows, 8),
                              .delta = piece(b, rows, 8),
                              .delta_twin = piece(b, rows, 8),
                              .terms = piece(b, rows, 8)};
    for (int i = 0; i < GROUP_TENSORS_MAX; i++) {
        x->errors[i] = piece(b, group_elements(c, rank, i), 4);
        x->twins[i] = piece(b, group_rows(c, rank, i), 4);
    }
    for (int side = 0; side < 2; side++)
        x->tiles[side] = piece(b, tiles_max(c, rank), sizeof(struct tile));
}

enum status verify_reserve(const struct cp_case *c, int rank, size_t *total, struct error *error)
{
    struct verifier x;
    struct budget budget = {.total = *total, .status = STATUS_OK, .error = error};
    pieces(&x, c, rank, &budget);
    enum status status = budget.status;
    if (status == STATUS_OK && c->training)
        status = statistics_reserve(c, &budget.total, error);
    if (status == STATUS_OK)
        status = totals_reserve(c, rank, &budget.total, error);
    if (status == STATUS_OK)
        *total = budget.total;
    return status;
}

static void memory_take(struct verifier *x)
{
    struct budget budget = {.arena = x->v->arena};
    pieces(x, x->c, x->v->rank, &budget);
    if (x->c->training)
        statistics_take(&x->statistics, x->c, x->v->rank, x->v->arena);
    totals_take(&x->totals, x->c, x->v->rank, x->v->arena);
}

// ---- what is judged -----------------------------------------------------------------------------

// Joins adjacent tiles of a span, up to VERIFY_BLOCK_ROWS tokens, which are computed together.
// Returns the number of tiles left.
static int64_t tiles_join(struct tile *tiles, int64_t count)
{
    int64_t joined = 0;
    for (int64_t i = 0; i < count; i++) {
        struct tile *last = joined > 0 ? &tiles[joined - 1] : NULL;
        if (last && last->span == tiles[i].span && last->first + last->count == tiles[i].first &&
            last->count + tiles[i].count <= VERIFY_BLOCK_ROWS)
            last->count += tiles[i].count;
        else
            tiles[joined++] = tiles[i];
    }
    return joined;
}

static void tiles_make(struct verifier *x)
{
    const struct verification *v = x->v;
    for (int side = 0; side < 2; side++) {
        int64_t max = tiles_max(x->c, v->rank);
        int64_t count = tiles_list(x->c, (enum shard_side)side, x->fraction, v->spans[side],
                                   v->span_count[side], x->tiles[side], max);
        x->tile_count[side] = tiles_join(x->tiles[side], count < max ? count : max);
    }
}

// A tensor of the rank.
struct tensor {
    enum report_tensor name;
    const void *data;
    enum case_dtype dtype;
    int heads, dim;
    bool heads_outside; // [heads][rows] instead of [rows][heads][dim]
    const double *reference;
    const float *twin; // NULL: no twin (LSE)
    bool cancels;      // its elements are sums of terms that cancel (block.terms)
    int slot;          // of its errors and twins in struct verifier
};

// Tokens [first, first + count) of a span, of one head.
struct token_range {
    const struct span *span;
    int head;
    int64_t first, count;
};

// Tensors of one side whose expected rows are computed by one function.
struct group;
typedef enum status expected_function(struct verifier *x, const struct token_range *s,
                                      struct error *error);
struct group {
    enum shard_side side;
    const struct tensor *tensors;
    int count;
    expected_function *expect;
    int chunks;
    struct tally tallies[CHUNKS_MAX][GROUP_TENSORS_MAX];
};

static void tensor_row(const struct verifier *x, const struct group *g, const struct tensor *t,
                       const struct token_range *s, int64_t i, float *values)
{
    int64_t rows = shard_rows(x->c, g->side, x->v->rank);
    int64_t row = s->span->row + (s->first + i) * shard_row_step(x->c);
    int64_t at = t->heads_outside ? s->head * rows + row : (row * t->heads + s->head) * t->dim;
    dtype_read(t->dtype, t->data, at, t->dim, values);
}

// ---- what is expected ---------------------------------------------------------------------------

static enum status queries_expect(struct verifier *x, const struct token_range *s,
                                  struct error *error)
{
    const struct block *b = &x->block;
    int64_t begin = s->span->position + s->first;
    struct range range = {begin, begin + s->count};
    struct expected_queries e = {.out = b->wide,
                                 .lse = b->lse,
                                 .delta = b->delta,
                                 .dq = b->other,
                                 .terms = b->terms,
                                 .out_twin = b->wide_twin,
                                 .dq_twin = b->other_twin,
                                 .delta_twin = b->delta_twin,
                                 .sums = totals_of(&x->totals, s->span, s->first, s->head)};
    if (x->fraction < 1)
        e.sums.dsink = NULL; // results_take() has added all queries
    enum status status = expected_queries(x->c, x->precision, s->span->sequence, s->head, range,
                                          &x->room, &e, error);
    const struct expected_statistics values = {b->lse, b->delta, b->delta_twin};
    if (status == STATUS_OK && x->c->training && x->fraction >= 1)
        statistics_keep(&x->statistics, s->span, s->head, s->first, s->count, &values);
    return status;
}

static enum status keys_expect(struct verifier *x, const struct token_range *s, struct error *error)
{
    const struct block *b = &x->block;
    struct statistics *all = &x->statistics;
    struct expected_statistics statistics = {all->lse, all->delta, all->delta_twin};
    int64_t begin = s->span->position + s->first;
    struct range range = {begin, begin + s->count};
    const struct expected_keys e = {.dk = b->other,
                                    .dv = b->wide,
                                    .terms = b->terms,
                                    .dk_twin = b->other_twin,
                                    .dv_twin = b->wide_twin};
    return expected_keys(x->c, x->precision, s->span->sequence, s->head, range, &statistics,
                         &x->room, &e, error);
}

// ---- one range of tokens ------------------------------------------------------------------------

// Number of keys that a query sees, or of queries that see a key.
static int64_t row_sight(const struct mask *mask, enum shard_side side, int64_t position)
{
    struct range r = side == SIDE_Q ? mask_keys(mask, position) : mask_queries(mask, position);
    return r.end - r.begin;
}

static void range_compare(struct verifier *x, struct group *g, const struct token_range *s)
{
    struct tally *tallies = g->tallies[s->span->chunk];
    struct mask mask = mask_of(x->c, s->span->sequence);
    for (int64_t i = 0; i < s->count; i++) {
        int64_t sight = row_sight(&mask, g->side, s->span->position + s->first + i);
        for (int k = 0; k < g->count; k++) {
            const struct tensor *t = &g->tensors[k];
            const struct tally_expected expected = {
                .reference = t->reference + i * t->dim,
                .twin = t->twin ? t->twin + i * t->dim : NULL,
                .terms = t->cancels ? x->block.terms[i] : 0,
                .row_terms = t->cancels ? x->block.terms[i] : 0,
                .zero = sight == 0 && t->twin,
                .keys = t->name == TENSOR_LSE ? sight : 0,
            };
            tensor_row(x, g, t, s, i, x->got);
            tally_row(&tallies[k], x->got, &expected, t->dim);
        }
    }
}

typedef enum status range_function(struct verifier *x, struct group *g, const struct token_range *s,
                                   struct error *error);

// The first pass: computes the expected rows of a range and compares the delivered ones.
static enum status range_judge(struct verifier *x, struct group *g, const struct token_range *s,
                               struct error *error)
{
    uint64_t start_ns = clock_now_ns();
    enum status status = g->expect(x, s, error);
    uint64_t expected_ns = clock_now_ns();
    x->report->timings.reference_ns += expected_ns - start_ns;
    if (status == STATUS_OK)
        range_compare(x, g, s);
    x->report->timings.compare_ns += clock_now_ns() - expected_ns;
    return status;
}

// The second pass: judges the stored errors of a range by the units of its chunk.
static enum status range_judge_again(struct verifier *x, struct group *g,
                                     const struct token_range *s, struct error *error)
{
    struct tally *tallies = g->tallies[s->span->chunk];
    (void)error;
    for (int64_t i = 0; i < s->count; i++)
        for (int k = 0; k < g->count; k++) {
            struct element where = {.sequence = s->span->sequence,
                                    .head = s->head,
                                    .position = s->span->position + s->first + i};
            tensor_row(x, g, &g->tensors[k], s, i, x->got);
            tally_row_again(&tallies[k], x->got, where, g->tensors[k].dim);
        }
    return STATUS_OK;
}

// ---- all chunks ---------------------------------------------------------------------------------

static enum status head_walk(struct verifier *x, struct group *g, const struct tile *tiles,
                             int64_t count, int head, range_function *function, struct error *error)
{
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < count && status == STATUS_OK; i++) {
        const struct span *span = &x->v->spans[g->side][tiles[i].span];
        struct token_range s = {span, head, tiles[i].first, tiles[i].count};
        if (span->chunk < g->chunks)
            status = function(x, g, &s, error);
    }
    return status;
}

// Calls `function` for all ranges of tokens, sequence by sequence, head by head, so that the chunks
// of a head share the loaded tokens of the other side. `keys`: gathers the statistics of each
// head's queries first.
static enum status group_walk(struct verifier *x, struct group *g, bool keys,
                              range_function *function, struct error *error)
{
    const struct tile *tiles = x->tiles[g->side];
    const struct span *spans = x->v->spans[g->side];
    int64_t count = x->tile_count[g->side], next;
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < count; i = next) {
        int32_t sequence = spans[tiles[i].span].sequence;
        for (next = i + 1; next < count && spans[tiles[next].span].sequence == sequence; next++)
            ;
        for (int head = MUTATED(VERIFY_SKIPS_HEAD); head < g->tensors[0].heads; head++) {
            if (keys)
                (void)statistics_of(&x->statistics, sequence, head);
            status = head_walk(x, g, tiles + i, next - i, head, function, error);
            if (status != STATUS_OK)
                return status;
        }
    }
    return status;
}

static void figures_append(struct verifier *x, const struct figures *figures)
{
    struct rank_report *report = x->report;
    report->pass = report->pass && figures->broken == 0;
    report->figures[report->figures_count++] = *figures;
}

static int64_t tokens_of(const struct verifier *x, const struct group *g, int chunk)
{
    return chunk_tokens(x->v->spans[g->side], x->v->span_count[g->side], chunk);
}

// Starts the tallies. The errors of a chunk are stored behind those of the previous chunk.
static void tallies_init(struct verifier *x, struct group *g)
{
    int64_t rows = 0;
    for (int chunk = 0; chunk < g->chunks; chunk++) {
        for (int k = 0; k < g->count; k++) {
            const struct tensor *t = &g->tensors[k];
            tally_init(&g->tallies[chunk][k], rules_of(x->c, t->name), t->name, chunk, t->dim,
                       x->errors[t->slot] + rows * t->dim, x->twins[t->slot] + rows);
        }
        rows += tokens_of(x, g, chunk) * g->tensors[0].heads;
    }
}

static void tallies_turn(struct group *g)
{
    for (int chunk = 0; chunk < g->chunks; chunk++)
        for (int k = 0; k < g->count; k++)
            tally_turn(&g->tallies[chunk][k]);
}

static void tallies_finish(struct verifier *x, struct group *g)
{
    for (int chunk = 0; chunk < g->chunks; chunk++) {
        int64_t tokens = tokens_of(x, g, chunk);
        for (int k = 0; k < g->count && tokens > 0; k++) {
            struct tally *tally = &g->tallies[chunk][k];
            tally_finish(tally);
            tally->figures.elements = tokens * g->tensors[k].heads * g->tensors[k].dim;
            figures_append(x, &tally->figures);
        }
    }
}

static void padding_append(struct verifier *x, enum shard_side side, const struct tensor *t)
{
    uint64_t start_ns = clock_now_ns();
    const struct padded_tensor padded = {t->name, side, t->data, t->heads, t->dim};
    struct figures figures;
    // The LSE of padding is not used.
    if (t->name != TENSOR_LSE && !MUTATED(VERIFY_SKIPS_PADDING) &&
        padding_judge(x->c, x->v->rank, &padded, &figures))
        figures_append(x, &figures);
    x->report->timings.compare_ns += clock_now_ns() - start_ns;
}

// ---- both sides ---------------------------------------------------------------------------------

static void progress_note(const struct verifier *x, int step)
{
    progress_store(x->v->progress, (struct progress_view){.job = (uint32_t)x->v->job,
                                                          .phase = REPORT_REFERENCE,
                                                          .step = step,
                                                          .waiting_for = -1});
}

static enum status group_judge(struct verifier *x, struct group *g, int step, struct error *error)
{
    progress_note(x, step);
    tallies_init(x, g);
    enum status status = group_walk(x, g, g->side == SIDE_KV, range_judge, error);
    if (status != STATUS_OK)
        return status;
    progress_note(x, step + 1);
    uint64_t start_ns = clock_now_ns();
    tallies_turn(g);
    status = group_walk(x, g, false, range_judge_again, error);
    tallies_finish(x, g);
    x->report->timings.compare_ns += clock_now_ns() - start_ns;
    for (int k = 0; k < g->count && status == STATUS_OK; k++)
        padding_append(x, g->side, &g->tensors[k]);
    return status;
}

static enum status queries_judge(struct verifier *x, struct error *error)
{
    const struct cp_case *c = x->c;
    const struct rank_results *r = &x->v->results;
    const struct block *b = &x->block;
    const struct tensor tensors[] = {
        {TENSOR_OUT, r->out, c->dtype, c->heads, c->head_dim_v, false, b->wide, b->wide_twin, false,
         0},
        {TENSOR_LSE, r->lse, DTYPE_FP32, c->heads, 1, true, b->lse, NULL, false, 2},
        {TENSOR_DQ, r->dq, c->dtype, c->heads, c->head_dim_qk, false, b->other, b->other_twin, true,
         1},
    };
    struct group group = {.side = SIDE_Q,
                          .tensors = tensors,
                          .count = c->training ? 3 : 2,
                          .expect = queries_expect,
                          .chunks = MUTATED(VERIFY_SKIPS_CHUNK) ? 1 : shard_chunks_per_rank(c)};
    return group_judge(x, &group, 0, error);
}

static enum status keys_judge(struct verifier *x, struct error *error)
{
    const struct cp_case *c = x->c;
    const struct rank_results *r = &x->v->results;
    const struct block *b = &x->block;
    const struct tensor tensors[] = {
        {TENSOR_DK, r->dk, c->dtype, c->kv_heads, c->head_dim_qk, false, b->other, b->other_twin,
         true, 1},
        {TENSOR_DV, r->dv, c->dtype, c->kv_heads, c->head_dim_v, false, b->wide, b->wide_twin,
         false, 0},
    };
    struct group group = {.side = SIDE_KV,
                          .tensors = tensors,
                          .count = 2,
                          .expect = keys_expect,
                          .chunks = shard_chunks_per_rank(c)};
    return group_judge(x, &group, 3, error);
}

// ---- exchange between ranks ---------------------------------------------------------------------

// Sends the statistics of this rank's queries to all ranks and receives theirs.
static enum status queries_exchange(struct verifier *x, struct error *error)
{
    const struct swap *swap = &x->v->swap;
    struct message messages[WORLD_SIZE_MAX * (1 + TOTALS_MESSAGES_MAX)];
    int count = 0;
    uint64_t start_ns = clock_now_ns();
    for (int peer = 0; peer < x->c->world_size; peer++) {
        if (peer == x->v->rank)
            continue;
        if (x->c->training)
            messages[count++] = statistics_message(&x->statistics, peer);
        count += totals_messages(&x->totals, peer, messages + count);
    }
    progress_note(x, 2);
    enum status status = STATUS_OK;
    if (count > 0)
        status = swap->run(swap->context, messages, count, error);
    x->report->timings.reference_ns += clock_now_ns() - start_ns;
    return status;
}

static void totals_append(struct verifier *x)
{
    const struct rank_results *r = &x->v->results;
    const struct totals_results results = {
        .max_logit = r->max_logit, .dsink = r->dsink, .dbias = r->dbias};
    struct figures figures[TOTALS_TENSORS_MAX];
    uint64_t start_ns = clock_now_ns();
    int count = totals_judge(&x->totals, &results, x->fraction < 1, figures);
    for (int i = 0; i < count; i++)
        figures_append(x, &figures[i]);
    x->report->timings.compare_ns += clock_now_ns() - start_ns;
}

// For a sample: takes the statistics of all queries from the rank's results, and computes the
// gradients of the sinks from them.
static void results_take(struct verifier *x)
{
    const struct verification *v = x->v;
    const struct span *spans = v->spans[SIDE_Q];
    uint64_t start_ns = clock_now_ns();
    statistics_keep_results(&x->statistics, spans, v->span_count[SIDE_Q], &v->results);
    for (int i = 0; i < v->span_count[SIDE_Q] && totals_has_sink(x->c); i++)
        for (int head = 0; head < x->c->heads; head++) {
            struct expected_sums sums = totals_of(&x->totals, &spans[i], 0, head);
            statistics_add_sink(&x->statistics, &spans[i], head, &sums);
        }
    x->report->timings.reference_ns += clock_now_ns() - start_ns;
}

enum status verify_run(const struct verification *v, struct rank_report *report,
                       struct error *error)
{
    struct verifier x = {.v = v,
                         .c = v->c,
                         .report = report,
                         .precision = expected_precision(v->c),
                         .fraction = tiles_fraction(v->c, v->work > 0 ? v->work : INFINITY)};
    report->pass = true;
    report->figures_count = 0;
    memory_take(&x);
    tiles_make(&x);
    if (x.c->training && x.fraction < 1)
        results_take(&x);
    enum status status = queries_judge(&x, error);
    if (status == STATUS_OK)
        status = queries_exchange(&x, error);
    if (status == STATUS_OK)
        totals_append(&x);
    if (status == STATUS_OK && v->c->training)
        status = keys_judge(&x, error);
    room_fini(&x.room);
    if (status == STATUS_OK && v->statistics)
        *v->statistics = x.statistics;
    return status;
}
