// SPDX-License-Identifier: Apache-2.0
// The tokens of a check, and the walk over them.
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "plan/shard.h"

enum status rows_alloc(struct rows *rows, int64_t count, struct error *error)
{
    size_t n = (size_t)count + 1;
    *rows = (struct rows){.count = count,
                          .sequence = calloc(n, sizeof(*rows->sequence)),
                          .position = calloc(n, sizeof(*rows->position)),
                          .chunk = calloc(n, sizeof(*rows->chunk)),
                          .order = calloc(n, sizeof(*rows->order))};
    if (rows->sequence && rows->position && rows->chunk && rows->order)
        return STATUS_OK;
    rows_fini(rows);
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %lld rows", (long long)count);
}

void rows_fini(struct rows *rows)
{
    free(rows->sequence);
    free(rows->position);
    free(rows->chunk);
    free(rows->order);
    *rows = (struct rows){0};
}

// ---- order --------------------------------------------------------------------------------------

static int rows_compare(const void *a, const void *b, void *context)
{
    const struct rows *rows = context;
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    if (rows->chunk[x] != rows->chunk[y])
        return rows->chunk[x] < rows->chunk[y] ? -1 : 1;
    if (rows->sequence[x] != rows->sequence[y])
        return rows->sequence[x] < rows->sequence[y] ? -1 : 1;
    if (rows->position[x] != rows->position[y])
        return rows->position[x] < rows->position[y] ? -1 : 1;
    return 0;
}

enum status rows_order(const struct cp_case *c, enum shard_side side, struct rows *rows,
                       struct error *error)
{
    rows->token_count = 0;
    for (int64_t row = 0; row < rows->count; row++)
        if (rows->position[row] < case_length(c, side, rows->sequence[row]))
            rows->order[rows->token_count++] = row;
    qsort_r(rows->order, (size_t)rows->token_count, sizeof(*rows->order), rows_compare, rows);
    for (int64_t i = 1; i < rows->token_count; i++)
        if (rows_compare(&rows->order[i - 1], &rows->order[i], rows) == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "rows %lld and %lld are the same token: position %lld of sequence %d",
                             (long long)rows->order[i - 1], (long long)rows->order[i],
                             (long long)rows->position[rows->order[i]],
                             rows->sequence[rows->order[i]]);
    return STATUS_OK;
}

static void spans_place(const struct cp_case *c, const struct span *spans, int count,
                        struct rows *rows)
{
    int64_t step = shard_row_step(c);
    for (int i = 0; i < count; i++)
        for (int64_t token = 0; token < spans[i].len; token++) {
            int64_t row = spans[i].row + token * step;
            rows->sequence[row] = spans[i].sequence;
            rows->position[row] = spans[i].position + token;
            rows->chunk[row] = spans[i].chunk;
        }
}

enum status rows_of_rank(const struct cp_case *c, int rank, enum shard_side side, struct rows *rows,
                         struct error *error)
{
    struct span *spans = calloc((size_t)shard_spans_max(c) + 1, sizeof(*spans));
    if (!spans)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d spans",
                         shard_spans_max(c));
    enum status status = rows_alloc(rows, shard_rows(c, side, rank), error);
    if (status == STATUS_OK) {
        spans_place(c, spans, shard_spans(c, side, rank, spans), rows);
        spans_place(c, spans, shard_padding(c, side, rank, spans), rows);
        status = rows_order(c, side, rows, error);
    }
    free(spans);
    return status;
}

// ---- the walk -----------------------------------------------------------------------------------

// Memory for what is expected of a stretch, and LSE and delta of all queries of a key head.
struct walk {
    struct cpattn_check *check;
    bool compute;
    stretch_function *function;
    void *context;
    double *doubles;
    float *floats;
    struct expected_rows rows;
    double *delta, *delta_twin;                   // of a stretch
    double *all_lse, *all_delta, *all_delta_twin; // [group][tokens of the sequence]
    double *statistics;
    int32_t sequence, kv_head; // that the statistics are of; -1: none
};

static void walk_fini(struct walk *w)
{
    free(w->doubles);
    free(w->floats);
    free(w->statistics);
}

static enum status walk_init(struct walk *w, struct error *error)
{
    const struct cp_case *c = &w->check->c;
    size_t n = STRETCH_ROWS, qk = (size_t)c->head_dim_qk, v = (size_t)c->head_dim_v;
    size_t group = (size_t)(c->heads / c->kv_heads);
    w->sequence = w->kv_head = -1;
    if (!w->compute)
        return STATUS_OK;
    w->doubles = calloc(n * (qk + v + 4), sizeof(*w->doubles));
    w->floats = calloc(n * (qk + v), sizeof(*w->floats));
    w->statistics = calloc(3 * group * (size_t)c->seqlen_q + 1, sizeof(*w->statistics));
    if (!w->doubles || !w->floats || !w->statistics)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "no memory for the reference of %lld queries", (long long)c->seqlen_q);
    w->rows = (struct expected_rows){.wide = w->doubles,
                                     .other = w->doubles + n * v,
                                     .lse = w->doubles + n * (v + qk),
                                     .terms = w->doubles + n * (v + qk + 1),
                                     .wide_twin = w->floats,
                                     .other_twin = w->floats + n * v};
    w->delta = w->doubles + n * (v + qk + 2);
    w->delta_twin = w->doubles + n * (v + qk + 3);
    w->all_lse = w->statistics;
    w->all_delta = w->all_lse + group * (size_t)c->seqlen_q;
    w->all_delta_twin = w->all_delta + group * (size_t)c->seqlen_q;
    return STATUS_OK;
}

static enum status queries_expect(struct walk *w, int32_t sequence, int32_t head,
                                  struct range queries, struct error *error)
{
    const struct expected_queries e = {.out = w->rows.wide,
                                       .lse = w->rows.lse,
                                       .delta = w->delta,
                                       .dq = w->rows.other,
                                       .terms = w->rows.terms,
                                       .out_twin = w->rows.wide_twin,
                                       .dq_twin = w->rows.other_twin,
                                       .delta_twin = w->delta_twin};
    const struct cp_case *c = &w->check->c;
    return expected_queries(c, expected_precision(c), sequence, head, queries, &w->check->room, &e,
                            error);
}

// LSE and delta of all queries of the heads that share a key head.
static enum status statistics_expect(struct walk *w, int32_t sequence, int32_t kv_head,
                                     struct error *error)
{
    const struct cp_case *c = &w->check->c;
    int64_t length = case_length(c, SIDE_Q, sequence);
    int group = c->heads / c->kv_heads;
    if (w->sequence == sequence && w->kv_head == kv_head)
        return STATUS_OK;
    for (int h = 0; h < group; h++)
        for (int64_t begin = 0; begin < length; begin += STRETCH_ROWS) {
            int64_t count = length - begin < STRETCH_ROWS ? length - begin : STRETCH_ROWS;
            enum status status = queries_expect(w, sequence, kv_head * group + h,
                                                (struct range){begin, begin + count}, error);
            if (status != STATUS_OK)
                return status;
            size_t bytes = (size_t)count * sizeof(double);
            memcpy(w->all_lse + h * length + begin, w->rows.lse, bytes);
            memcpy(w->all_delta + h * length + begin, w->delta, bytes);
            memcpy(w->all_delta_twin + h * length + begin, w->delta_twin, bytes);
        }
    w->sequence = sequence;
    w->kv_head = kv_head;
    return STATUS_OK;
}

static enum status keys_expect(struct walk *w, const struct stretch *s, struct error *error)
{
    const struct expected_statistics statistics = {w->all_lse, w->all_delta, w->all_delta_twin};
    const struct expected_keys e = {.dk = w->rows.other,
                                    .dv = w->rows.wide,
                                    .terms = w->rows.terms,
                                    .dk_twin = w->rows.other_twin,
                                    .dv_twin = w->rows.wide_twin};
    const struct cp_case *c = &w->check->c;
    enum status status = statistics_expect(w, s->sequence, s->head, error);
    if (status != STATUS_OK)
        return status;
    return expected_keys(c, expected_precision(c), s->sequence, s->head,
                         (struct range){s->position, s->position + s->count}, &statistics,
                         &w->check->room, &e, error);
}

static enum status stretch_visit(struct walk *w, const struct stretch *s, struct error *error)
{
    enum status status = STATUS_OK;
    if (w->compute && s->side == SIDE_Q)
        status = queries_expect(w, s->sequence, s->head,
                                (struct range){s->position, s->position + s->count}, error);
    else if (w->compute)
        status = keys_expect(w, s, error);
    if (status == STATUS_OK)
        status = w->function(w->context, s, w->compute ? &w->rows : NULL, error);
    return status;
}

// Tokens from `at` on whose positions follow each other.
static int64_t run_length(const struct rows *r, int64_t at)
{
    int64_t first = r->order[at], count = 1;
    for (; at + count < r->token_count && count < STRETCH_ROWS; count++) {
        int64_t row = r->order[at + count];
        if (r->chunk[row] != r->chunk[first] || r->sequence[row] != r->sequence[first] ||
            r->position[row] != r->position[first] + count)
            break;
    }
    return count;
}

// The tokens of a chunk and sequence from `at` on.
static int64_t sequence_length(const struct rows *r, int64_t at)
{
    int64_t first = r->order[at], count = 0;
    while (at + count < r->token_count && r->chunk[r->order[at + count]] == r->chunk[first] &&
           r->sequence[r->order[at + count]] == r->sequence[first])
        count++;
    return count;
}

static enum status sequence_walk(struct walk *w, enum shard_side side, int64_t begin, int64_t end,
                                 struct error *error)
{
    const struct rows *r = &w->check->rows[side];
    const struct cp_case *c = &w->check->c;
    int heads = side == SIDE_Q ? c->heads : c->kv_heads;
    for (int head = 0; head < heads; head++)
        for (int64_t at = begin, count; at < end; at += count) {
            int64_t row = r->order[at];
            count = run_length(r, at);
            const struct stretch s = {.side = side,
                                      .sequence = r->sequence[row],
                                      .head = head,
                                      .position = r->position[row],
                                      .count = count,
                                      .rows = r->order + at,
                                      .chunk = r->chunk[row]};
            enum status status = stretch_visit(w, &s, error);
            if (status != STATUS_OK)
                return status;
        }
    return STATUS_OK;
}

enum status rows_walk(struct cpattn_check *check, enum shard_side side, bool compute,
                      stretch_function *function, void *context, struct error *error)
{
    struct walk w = {.check = check, .compute = compute, .function = function, .context = context};
    const struct rows *r = &check->rows[side];
    enum status status = walk_init(&w, error);
    for (int64_t at = 0, count; at < r->token_count && status == STATUS_OK; at += count) {
        count = sequence_length(r, at);
        status = sequence_walk(&w, side, at, at + count, error);
    }
    walk_fini(&w);
    return status;
}
