// SPDX-License-Identifier: Apache-2.0
// The walk over the tokens of a case, which computes their reference. Blocks and their order are
// those of the daemon's ranks, so that figures agree with the daemon's to the last bit.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "judge/cpu/verify.h"
#include "plan/bias.h"

// Maximum number of other tokens between two tokens of the check that are computed as one piece.
// Two pieces would cost more than computing this gap.
#define GAP_MAX 63

// Numbers kept for each query.
enum { STATISTIC_LSE, STATISTIC_DELTA, STATISTIC_DELTA_TWIN, STATISTICS };

// ---- memory -------------------------------------------------------------------------------------

static bool wants_any(const bool wanted[CPATTN_TENSORS], enum cpattn_tensor a, enum cpattn_tensor b)
{
    return wanted[a] || wanted[b];
}

static int64_t all_tokens(const struct cpattn_check *check, enum shard_side side)
{
    return check->first[side][check->c.batch];
}

static enum status range_alloc(struct census *x, struct error *error)
{
    const struct cp_case *c = &x->check->c;
    size_t n = VERIFY_BLOCK_ROWS, qk = (size_t)c->head_dim_qk, v = (size_t)c->head_dim_v;
    x->doubles = calloc(n * (qk + v + 4), sizeof(*x->doubles));
    x->floats = calloc(n * (qk + v), sizeof(*x->floats));
    if (!x->doubles || !x->floats)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu rows", n);
    x->rows = (struct expected_rows){.wide = x->doubles,
                                     .other = x->doubles + n * v,
                                     .lse = x->doubles + n * (v + qk),
                                     .terms = x->doubles + n * (v + qk + 1),
                                     .wide_twin = x->floats,
                                     .other_twin = x->floats + n * v};
    x->delta = x->doubles + n * (v + qk + 2);
    x->delta_twin = x->doubles + n * (v + qk + 3);
    return STATUS_OK;
}

static enum status heads_alloc(struct census *x, struct error *error)
{
    const struct cp_case *c = &x->check->c;
    size_t count = TOTALS_NUMBERS * (size_t)c->heads, world = (size_t)c->world_size;
    x->numbers = calloc(count * world, sizeof(double));
    if (!x->numbers)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for sums");
    for (int rank = 0; rank < c->world_size; rank++) {
        x->heads.heads[rank] = x->numbers + (size_t)rank * count;
        for (int head = 0; head < c->heads; head++)
            x->heads.heads[rank][TOTALS_MAX_LOGIT * c->heads + head] = -INFINITY;
    }
    return STATUS_OK;
}

static enum status bias_alloc(struct census *x, struct error *error)
{
    const struct cpattn_check *check = x->check;
    size_t heads = bias_has_heads(&check->c) ? (size_t)check->c.heads : 1;
    size_t count = heads * (size_t)check->bias.lines * (size_t)check->c.seqlen_kv;
    x->bias = calloc(count + 1, sizeof(double));
    x->bias_twin = calloc(count + 1, sizeof(double));
    if (x->bias && x->bias_twin)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "no memory for the gradient of a bias of %zu elements", count);
}

static enum status statistics_alloc(struct census *x, struct error *error)
{
    int64_t tokens = all_tokens(x->check, SIDE_Q);
    x->statistics =
        malloc((size_t)(tokens * x->check->c.heads * STATISTICS + 1) * sizeof(*x->statistics));
    if (x->statistics)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "no memory for the statistics of %lld queries", (long long)tokens);
}

// True if the queries of several ranks add to the same lines of dbias.
static bool bias_is_shared(const struct cp_case *c)
{
    return !bias_has_queries(c) || !bias_has_batch(c);
}

enum status census_init(struct census *x, struct cpattn_check *check,
                        const bool wanted[CPATTN_TENSORS], struct error *error)
{
    bool keys = wants_any(wanted, CPATTN_TENSOR_DK, CPATTN_TENSOR_DV);
    bool heads = wants_any(wanted, CPATTN_TENSOR_DSINK, CPATTN_TENSOR_MAX_LOGIT);
    bool bias = wanted[CPATTN_TENSOR_DBIAS];
    *x = (struct census){.check = check, .wants_sums = heads || bias};
    x->all =
        keys || (check->sums == CPATTN_SUMS_ALL && (heads || (bias && bias_is_shared(&check->c))));
    enum status status = range_alloc(x, error);
    if (status == STATUS_OK && x->wants_sums)
        status = heads_alloc(x, error);
    if (status == STATUS_OK && bias)
        status = bias_alloc(x, error);
    if (status == STATUS_OK && keys)
        status = statistics_alloc(x, error);
    return status;
}

void census_fini(struct census *x)
{
    free(x->doubles);
    free(x->floats);
    free(x->numbers);
    free(x->bias);
    free(x->bias_twin);
    free(x->statistics);
    *x = (struct census){0};
}

// ---- statistics ---------------------------------------------------------------------------------

// The values of one statistic for a sequence and head, by position. Layout of the array:
// [statistic][sequence][head][position].
static double *statistic_at(const struct census *x, int which, int32_t sequence, int head)
{
    const struct cpattn_check *check = x->check;
    int64_t length = case_length(&check->c, SIDE_Q, sequence);
    return x->statistics + which * all_tokens(check, SIDE_Q) * check->c.heads +
           check->first[SIDE_Q][sequence] * check->c.heads + head * length;
}

const double *census_lse(const struct census *x, int32_t sequence, int head)
{
    return x->statistics ? statistic_at(x, STATISTIC_LSE, sequence, head) : NULL;
}

const double *census_delta(const struct census *x, int32_t sequence, int head)
{
    return x->statistics ? statistic_at(x, STATISTIC_DELTA, sequence, head) : NULL;
}

static void statistics_put(struct census *x, const struct position_range *s)
{
    const double *from[STATISTICS] = {x->rows.lse, x->delta, x->delta_twin};
    for (int i = 0; i < STATISTICS; i++)
        memcpy(statistic_at(x, i, s->sequence, s->head) + s->position, from[i],
               (size_t)s->count * sizeof(double));
}

// ---- expected sums ------------------------------------------------------------------------------

// A token of the walk. A piece consists of consecutive tokens that are computed together.
struct token {
    int64_t row;  // in the caller's arrays; -1: not a token of the check
    int64_t line; // of dbias, to which the query adds; -1: to none
};

static struct token token_of(const struct census *x, enum shard_side side, int32_t sequence,
                             int64_t position)
{
    struct token t = {row_of_token(x->check, side, sequence, position), -1};
    bool counts = x->check->sums == CPATTN_SUMS_ALL || t.row >= 0;
    if (side == SIDE_Q && x->bias && counts)
        t.line = bias_line_of(x->check, sequence, position, t.row);
    return t;
}

// The sums to which the queries of a range add. `t`: its first token; `rank`: the rank that has the
// queries.
static struct expected_sums sums_of(const struct census *x, const struct position_range *s,
                                    int rank, struct token t)
{
    const struct cp_case *c = &x->check->c;
    struct expected_sums sums = {0};
    if (!x->wants_sums || (x->check->sums == CPATTN_SUMS_OWN && t.row < 0))
        return sums;
    double *own = x->heads.heads[rank] + s->head;
    if (c->max_logit)
        sums.max_logit = own + TOTALS_MAX_LOGIT * c->heads;
    if (totals_has_sink(c)) {
        sums.dsink = own + TOTALS_DSINK * c->heads;
        sums.dsink_twin_squares = own + TOTALS_SINK_TWIN * c->heads;
        sums.dsink_terms = own + TOTALS_SINK_TERMS * c->heads;
    }
    if (t.line < 0)
        return sums;
    int64_t line = (bias_has_heads(c) ? s->head : 0) * x->check->bias.lines + t.line;
    sums.dbias = x->bias + line * c->seqlen_kv;
    sums.dbias_twin = x->bias_twin + line * c->seqlen_kv;
    sums.dbias_stride = bias_has_queries(c) ? c->seqlen_kv : 0;
    sums.dbias_terms = own + TOTALS_BIAS_TERMS * c->heads;
    return sums;
}

static enum status queries_expect(struct census *x, const struct position_range *s, int rank,
                                  struct token first, struct error *error)
{
    const struct cp_case *c = &x->check->c;
    const struct expected_queries e = {.out = x->rows.wide,
                                       .lse = x->rows.lse,
                                       .delta = x->delta,
                                       .dq = x->rows.other,
                                       .terms = x->rows.terms,
                                       .out_twin = x->rows.wide_twin,
                                       .dq_twin = x->rows.other_twin,
                                       .delta_twin = x->delta_twin,
                                       .sums = sums_of(x, s, rank, first)};
    enum status status = expected_queries(c, expected_precision(c), s->sequence, s->head,
                                          (struct range){s->position, s->position + s->count},
                                          &x->check->room, &e, error);
    if (status == STATUS_OK && x->statistics)
        statistics_put(x, s);
    return status;
}

static enum status keys_expect(struct census *x, const struct position_range *s,
                               struct error *error)
{
    const struct cp_case *c = &x->check->c;
    int head = s->head * (c->heads / c->kv_heads);
    const struct expected_statistics statistics = {
        statistic_at(x, STATISTIC_LSE, s->sequence, head),
        statistic_at(x, STATISTIC_DELTA, s->sequence, head),
        statistic_at(x, STATISTIC_DELTA_TWIN, s->sequence, head)};
    const struct expected_keys e = {.dk = x->rows.other,
                                    .dv = x->rows.wide,
                                    .terms = x->rows.terms,
                                    .dk_twin = x->rows.other_twin,
                                    .dv_twin = x->rows.wide_twin};
    return expected_keys(c, expected_precision(c), s->sequence, s->head,
                         (struct range){s->position, s->position + s->count}, &statistics,
                         &x->check->room, &e, error);
}

// ---- the walk -----------------------------------------------------------------------------------

struct walk {
    struct census *x;
    enum shard_side side;
    bool compute, all; // all: also visits tokens that are not the check's
    range_function *function;
    void *context;
};

static enum status piece_visit(const struct walk *w, const struct position_range *s, int rank,
                               struct token first, struct error *error)
{
    enum status status = STATUS_OK;
    if (w->compute && w->side == SIDE_Q)
        status = queries_expect(w->x, s, rank, first, error);
    else if (w->compute)
        status = keys_expect(w->x, s, error);
    if (status == STATUS_OK && w->function)
        status = w->function(w->context, s, w->compute ? &w->x->rows : NULL, error);
    return status;
}

// True if a piece of queries must end where the destination of their sums changes.
static bool is_exact(const struct census *x)
{
    return x->wants_sums && (x->bias || x->check->sums == CPATTN_SUMS_OWN);
}

// True if `next` may be in the piece of `last`, the token before it: both or neither are tokens of
// the check, and their lines of dbias are consecutive (or equal, if all queries share a row).
static bool follows(const struct census *x, struct token last, struct token next)
{
    bool lines = x->bias && bias_has_queries(&x->check->c) && last.line >= 0;
    return (next.row >= 0) == (last.row >= 0) && next.line == last.line + lines;
}

// Length of the piece that begins at `position` and ends at `end` or before.
static int64_t exact_length(const struct walk *w, int32_t sequence, int64_t position, int64_t end)
{
    struct token last = token_of(w->x, w->side, sequence, position);
    int64_t at = position + 1;
    for (; at < end; at++) {
        struct token next = token_of(w->x, w->side, sequence, at);
        if (!follows(w->x, last, next))
            break;
        last = next;
    }
    return at - position;
}

// The same if only the gaps between tokens of the check limit the piece.
static int64_t joined_length(const struct walk *w, int32_t sequence, int64_t position, int64_t end)
{
    int64_t behind = position + 1;
    for (int64_t at = behind; at < end && at - behind <= GAP_MAX; at++)
        if (row_of_token(w->x->check, w->side, sequence, at) >= 0)
            behind = at + 1;
    return behind - position;
}

static int64_t piece_length(const struct walk *w, int32_t sequence, int64_t position, int64_t end)
{
    if (is_exact(w->x) && w->side == SIDE_Q)
        return exact_length(w, sequence, position, end);
    return w->all ? end - position : joined_length(w, sequence, position, end);
}

static enum status block_walk(const struct walk *w, const struct span *span, int rank, int head,
                              struct range block, struct error *error)
{
    enum status status = STATUS_OK;
    for (int64_t at = block.begin, count = 1; at < block.end && status == STATUS_OK; at += count) {
        struct token first = token_of(w->x, w->side, span->sequence, at);
        count = 1;
        if (!w->all && first.row < 0)
            continue;
        count = piece_length(w, span->sequence, at, block.end);
        const struct position_range s = {w->side, span->sequence, head, at, count};
        status = piece_visit(w, &s, rank, first, error);
    }
    return status;
}

static bool has_tokens(const struct walk *w, const struct span *span)
{
    for (int64_t i = 0; i < span->len; i++)
        if (row_of_token(w->x->check, w->side, span->sequence, span->position + i) >= 0)
            return true;
    return false;
}

static enum status span_walk(const struct walk *w, const struct span *span, int rank, int head,
                             struct error *error)
{
    int64_t end = span->position + span->len;
    enum status status = STATUS_OK;
    if (!w->all && !has_tokens(w, span))
        return STATUS_OK;
    for (int64_t at = span->position; at < end && status == STATUS_OK; at += VERIFY_BLOCK_ROWS) {
        struct range block = {at, at + VERIFY_BLOCK_ROWS < end ? at + VERIFY_BLOCK_ROWS : end};
        status = block_walk(w, span, rank, head, block, error);
    }
    return status;
}

// Walks sequence by sequence, within it head by head, and within a head through all chunks of the
// rank. This is the order of judge/cpu/verify.c.
static enum status rank_walk(const struct walk *w, int rank, struct span *spans,
                             struct error *error)
{
    const struct cp_case *c = &w->x->check->c;
    int count = shard_spans(c, w->side, rank, spans), next;
    int heads = w->side == SIDE_Q ? c->heads : c->kv_heads;
    enum status status = STATUS_OK;
    for (int i = 0; i < count; i = next) {
        for (next = i + 1; next < count && spans[next].sequence == spans[i].sequence; next++)
            ;
        for (int head = 0; head < heads; head++)
            for (int k = i; k < next && status == STATUS_OK; k++)
                status = span_walk(w, &spans[k], rank, head, error);
    }
    return status;
}

enum status census_walk(struct census *x, enum shard_side side, bool compute,
                        range_function *function, void *context, struct error *error)
{
    const struct cp_case *c = &x->check->c;
    const struct walk w = {.x = x,
                           .side = side,
                           .compute = compute,
                           .all = side == SIDE_Q && compute && x->all,
                           .function = function,
                           .context = context};
    struct span *spans = calloc((size_t)shard_spans_max(c) + 1, sizeof(*spans));
    enum status status = STATUS_OK;
    if (!spans)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d spans",
                         shard_spans_max(c));
    for (int rank = 0; rank < c->world_size && status == STATUS_OK; rank++)
        status = rank_walk(&w, rank, spans, error);
    free(spans);
    return status;
}
