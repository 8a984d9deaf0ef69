// SPDX-License-Identifier: Apache-2.0
// Delivers the reference's results. Each rank computes its own rows. It also computes LSE and delta
// of all queries that its keys need, so it needs nothing from other ranks.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/expected.h"
#include "judge/dtype.h"
#include "rank/deliver.h"

// Rows in memory at a time.
#define BLOCK_ROWS 256

struct expectation {
    const struct job *j;
    const struct cp_case *c;
    const struct segments *s;
    struct room room;
    // Results of one block: wide and other [BLOCK_ROWS][d], the rest [BLOCK_ROWS].
    double *wide, *other, *lse, *delta, *delta_twin, *terms;
    float *wide_twin, *other_twin;                // [BLOCK_ROWS][d]
    double *all_lse, *all_delta, *all_delta_twin; // [query heads per key head][tokens]
    char *row;                                    // one head of one token, in the dtype
    double dsink[HEADS_MAX], max_logit[HEADS_MAX];
    struct error *error;
};

static bool wants(const struct expectation *x, enum whole_tensor tensor)
{
    return x->s->places.expected[tensor] != PLACE_NONE;
}

static bool wants_heads(const struct expectation *x)
{
    return x->j->rank == 0 && (wants(x, WHOLE_DSINK) || wants(x, WHOLE_MAX_LOGIT));
}

// ---- memory ----

static bool take(double **place, int64_t count)
{
    *place = calloc((size_t)count + 1, sizeof(**place));
    return *place != NULL;
}

static void expectation_fini(struct expectation *x)
{
    double *lists[] = {x->wide,  x->other,   x->lse,       x->delta,         x->delta_twin,
                       x->terms, x->all_lse, x->all_delta, x->all_delta_twin};
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        free(lists[i]);
    free(x->wide_twin);
    free(x->other_twin);
    free(x->row);
    room_fini(&x->room);
}

static enum status expectation_init(struct expectation *x)
{
    int64_t rows = BLOCK_ROWS * HEAD_DIM_MAX;
    int64_t all = x->c->heads / x->c->kv_heads * x->c->seqlen_q;
    x->wide_twin = calloc((size_t)rows, sizeof(float));
    x->other_twin = calloc((size_t)rows, sizeof(float));
    x->row = malloc(HEAD_DIM_MAX * whole_element_bytes(DTYPE_FP32));
    bool good = x->wide_twin && x->other_twin && x->row && take(&x->wide, rows) &&
                take(&x->other, rows) && take(&x->lse, BLOCK_ROWS) && take(&x->delta, BLOCK_ROWS) &&
                take(&x->delta_twin, BLOCK_ROWS) && take(&x->terms, BLOCK_ROWS) &&
                take(&x->all_lse, all) && take(&x->all_delta, all) && take(&x->all_delta_twin, all);
    for (int head = 0; head < x->c->heads; head++)
        x->max_logit[head] = -INFINITY;
    return good ? STATUS_OK
                : error_set(x->error, STATUS_RESOURCE_EXHAUSTED, "no memory for the reference");
}

// ---- rows ------------

static enum status row_put(const struct expectation *x, enum whole_tensor tensor, int64_t element,
                           const double *values, int count)
{
    bool narrow = tensor != WHOLE_LSE && tensor != WHOLE_DSINK && tensor != WHOLE_MAX_LOGIT;
    enum case_dtype dtype = narrow ? x->c->dtype : DTYPE_FP32;
    float rounded[HEAD_DIM_MAX];
    int bytes = whole_element_bytes(dtype);
    for (int i = 0; i < count; i++)
        rounded[i] = (float)values[i];
    dtype_write(dtype, rounded, count, x->row);
    return segments_put(x->s, x->s->places.expected[tensor] + element * bytes, x->row,
                        (size_t)count * (size_t)bytes, x->error);
}

// Delivers rows of one head. values[i] is the row of token positions.begin + i of the sequence.
static enum status rows_put(const struct expectation *x, enum whole_tensor tensor, int32_t sequence,
                            int head, struct range positions, const double *values)
{
    enum shard_side side = tensor == WHOLE_DK || tensor == WHOLE_DV ? SIDE_KV : SIDE_Q;
    int heads = side == SIDE_Q ? x->c->heads : x->c->kv_heads;
    int d = tensor == WHOLE_DQ || tensor == WHOLE_DK ? x->c->head_dim_qk : x->c->head_dim_v;
    int64_t first = whole_row_first(x->c, side, sequence), step = whole_row_step(x->c);
    enum status status = STATUS_OK;
    if (!wants(x, tensor))
        return STATUS_OK;
    for (int64_t i = positions.begin; i < positions.end && status == STATUS_OK; i++, values += d)
        status = row_put(x, tensor, ((first + i * step) * heads + head) * d, values, d);
    return status;
}

static enum status lse_put(const struct expectation *x, int32_t sequence, int head,
                           struct range positions)
{
    const struct cp_case *c = x->c;
    int64_t place = c->format == FORMAT_THD
                        ? head * whole_rows(c, SIDE_Q) + whole_row_first(c, SIDE_Q, sequence)
                        : ((int64_t)sequence * c->heads + head) * c->seqlen_q;
    enum status status = STATUS_OK;
    for (int64_t i = positions.begin; i < positions.end && wants(x, WHOLE_LSE) && !status; i++)
        status = row_put(x, WHOLE_LSE, place + i, &x->lse[i - positions.begin], 1);
    return status;
}

// ---- queries ----

// Computes the expected results of a block of queries; with `sums` also adds to the head's dsink
// and max_logit.
static enum status queries_expect(struct expectation *x, int32_t sequence, int head,
                                  struct range positions, bool sums)
{
    const struct expected_queries e = {
        .out = x->wide,
        .lse = x->lse,
        .delta = x->delta,
        .dq = x->other,
        .terms = x->terms,
        .out_twin = x->wide_twin,
        .dq_twin = x->other_twin,
        .delta_twin = x->delta_twin,
        .sums = {.max_logit = sums ? &x->max_logit[head] : NULL,
                 .dsink = sums && x->c->training && x->c->softmax == SOFTMAX_LEARNABLE
                              ? &x->dsink[head]
                              : NULL},
    };
    double squares = 0, terms = 0;
    struct expected_queries with_sums = e;
    if (e.sums.dsink) {
        with_sums.sums.dsink_twin_squares = &squares;
        with_sums.sums.dsink_terms = &terms;
    }
    return expected_queries(x->c, expected_precision(x->c), sequence, head, positions, &x->room,
                            &with_sums, x->error);
}

static enum status query_block(struct expectation *x, int32_t sequence, int head,
                               struct range positions)
{
    enum status status = queries_expect(x, sequence, head, positions, false);
    if (status == STATUS_OK)
        status = rows_put(x, WHOLE_OUT, sequence, head, positions, x->wide);
    if (status == STATUS_OK)
        status = lse_put(x, sequence, head, positions);
    if (status == STATUS_OK && x->c->training)
        status = rows_put(x, WHOLE_DQ, sequence, head, positions, x->other);
    return status;
}

// Calls `block` for each head of a range and each block of at most BLOCK_ROWS positions.
static enum status blocks(struct expectation *x, int32_t sequence, int head_first, int head_end,
                          struct range positions,
                          enum status (*block)(struct expectation *, int32_t, int, struct range))
{
    enum status status = STATUS_OK;
    for (int head = head_first; head < head_end; head++)
        for (int64_t at = positions.begin; at < positions.end && !status; at += BLOCK_ROWS) {
            int64_t end = at + BLOCK_ROWS < positions.end ? at + BLOCK_ROWS : positions.end;
            status = block(x, sequence, head, (struct range){at, end});
        }
    return status;
}

// ---- keys, and sums over queries ----

// Stores LSE and delta of a block of queries for key_block(), and adds these queries to dsink and
// max_logit if this rank delivers them.
static enum status statistics_block(struct expectation *x, int32_t sequence, int head,
                                    struct range positions)
{
    int group = x->c->heads / x->c->kv_heads;
    int64_t at = head % group * case_length(x->c, SIDE_Q, sequence) + positions.begin;
    size_t bytes = (size_t)(positions.end - positions.begin) * sizeof(double);
    enum status status = queries_expect(x, sequence, head, positions, wants_heads(x));
    memcpy(x->all_lse + at, x->lse, bytes);
    memcpy(x->all_delta + at, x->delta, bytes);
    memcpy(x->all_delta_twin + at, x->delta_twin, bytes);
    return status;
}

static enum status key_block(struct expectation *x, int32_t sequence, int head,
                             struct range positions)
{
    const struct expected_statistics statistics = {x->all_lse, x->all_delta, x->all_delta_twin};
    const struct expected_keys e = {.dk = x->other,
                                    .dv = x->wide,
                                    .terms = x->terms,
                                    .dk_twin = x->other_twin,
                                    .dv_twin = x->wide_twin};
    enum status status = expected_keys(x->c, expected_precision(x->c), sequence, head, positions,
                                       &statistics, &x->room, &e, x->error);
    if (status == STATUS_OK)
        status = rows_put(x, WHOLE_DK, sequence, head, positions, x->other);
    if (status == STATUS_OK)
        status = rows_put(x, WHOLE_DV, sequence, head, positions, x->wide);
    return status;
}

// Delivers dK and dV of the rank's keys of a sequence and key head.
static enum status sequence_keys(struct expectation *x, int32_t sequence, int kv_head)
{
    int group = x->c->heads / x->c->kv_heads;
    const struct range all = {0, case_length(x->c, SIDE_Q, sequence)};
    bool keys = wants(x, WHOLE_DK) || wants(x, WHOLE_DV);
    enum status status = STATUS_OK;
    if (keys || wants_heads(x))
        status = blocks(x, sequence, kv_head * group, (kv_head + 1) * group, all, statistics_block);
    for (int i = 0; i < x->j->span_count[SIDE_KV] && keys && status == STATUS_OK; i++) {
        const struct span *span = &x->j->spans[SIDE_KV][i];
        const struct range positions = {span->position, span->position + span->len};
        if (span->sequence == sequence)
            status = blocks(x, sequence, kv_head, kv_head + 1, positions, key_block);
    }
    return status;
}

// ---- delivery ----

static enum status queries_deliver(struct expectation *x)
{
    bool any = wants(x, WHOLE_OUT) || wants(x, WHOLE_LSE) || wants(x, WHOLE_DQ);
    enum status status = STATUS_OK;
    for (int i = 0; i < x->j->span_count[SIDE_Q] && any && status == STATUS_OK; i++) {
        const struct span *span = &x->j->spans[SIDE_Q][i];
        const struct range positions = {span->position, span->position + span->len};
        status = blocks(x, span->sequence, 0, x->c->heads, positions, query_block);
    }
    return status;
}

static enum status heads_deliver(struct expectation *x)
{
    enum status status = STATUS_OK;
    for (int head = 0; head < x->c->heads && wants_heads(x) && status == STATUS_OK; head++) {
        if (wants(x, WHOLE_DSINK))
            status = row_put(x, WHOLE_DSINK, head, &x->dsink[head], 1);
        if (wants(x, WHOLE_MAX_LOGIT) && status == STATUS_OK)
            status = row_put(x, WHOLE_MAX_LOGIT, head, &x->max_logit[head], 1);
    }
    return status;
}

enum status deliver_expected(const struct job *j, const struct segments *s, struct error *error)
{
    bool any = false;
    for (int i = 0; i < WHOLE_TENSORS; i++)
        any |= s->places.expected[i] != PLACE_NONE;
    if (!any)
        return STATUS_OK;
    struct expectation *x = calloc(1, sizeof(*x));
    if (!x)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the reference");
    *x = (struct expectation){.j = j, .c = j->c, .s = s, .error = error};
    enum status status = expectation_init(x);
    if (status == STATUS_OK)
        status = queries_deliver(x);
    for (int32_t sequence = 0; sequence < x->c->batch; sequence++)
        for (int kv_head = 0; kv_head < x->c->kv_heads && status == STATUS_OK; kv_head++)
            status = sequence_keys(x, sequence, kv_head);
    if (status == STATUS_OK)
        status = heads_deliver(x);
    expectation_fini(x);
    free(x);
    return status;
}
