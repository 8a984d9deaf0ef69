// SPDX-License-Identifier: Apache-2.0
#include "judge/evidence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "judge/dtype.h"
#include "plan/bias.h"

// Number of rows of the worst sequence and head, and of each of three other sequences or heads.
#define ROWS_WORST 20
#define ROWS_OTHER 9
#define BIAS_ROWS  8

struct collection {
    const struct evidence *e;
    enum report_tensor tensor;
    enum shard_side side;
    int heads, dim;
    int chunk; // of the rank; -1: any
    uint64_t state;
    struct diagnosis_row rows[DIAGNOSIS_ROWS_MAX];
    int count;
    float *values, *next; // memory of all rows; its unused rest
};

// splitmix64
static uint64_t draw(struct collection *x, uint64_t bound)
{
    uint64_t z = x->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % bound;
}

// ---- rows of tokens -----------------------------------------------------------------------------

// The span that a token lies in, or NULL.
static const struct span *span_of(const struct collection *x, int32_t sequence, int64_t position)
{
    const struct evidence *e = x->e;
    for (int i = 0; i < e->span_count[x->side]; i++) {
        const struct span *s = &e->spans[x->side][i];
        if (s->sequence == sequence && position >= s->position && position < s->position + s->len)
            return x->chunk < 0 || s->chunk == x->chunk ? s : NULL;
    }
    return NULL;
}

static bool has_row(const struct collection *x, int32_t sequence, int32_t head, int64_t position)
{
    for (int i = 0; i < x->count; i++)
        if (x->rows[i].sequence == sequence && x->rows[i].head == head &&
            x->rows[i].position == position)
            return true;
    return false;
}

static bool read_lse(const struct collection *x, int64_t row, int head, float *lse)
{
    int64_t rows = x->e->lse_rows;
    if (rows == 0)
        rows = shard_rows(x->e->c, SIDE_Q, x->e->rank);
    return x->e->read(x->e->read_context, TENSOR_LSE, head * rows + row, 1, lse);
}

// Adds the row of a token, if the token is in the chunk and not yet added.
static void add(struct collection *x, int32_t sequence, int32_t head, int64_t position)
{
    const struct span *span = span_of(x, sequence, position);
    float lse = NAN;
    if (!span || x->count == DIAGNOSIS_ROWS_MAX || head < 0 || head >= x->heads ||
        has_row(x, sequence, head, position))
        return;
    int64_t row = span->row + (position - span->position) * shard_row_step(x->e->c);
    bool got = x->tensor == TENSOR_LSE
                   ? read_lse(x, row, head, x->next)
                   : x->e->read(x->e->read_context, x->tensor, (row * x->heads + head) * x->dim,
                                x->dim, x->next);
    if (!got)
        return;
    if (x->tensor == TENSOR_OUT && !read_lse(x, row, head, &lse))
        lse = NAN;
    x->rows[x->count++] = (struct diagnosis_row){
        .sequence = sequence, .head = head, .position = position, .got = x->next, .lse = lse};
    x->next += x->dim;
}

// Adds rows of a sequence and head in the chunk: the ends of its spans, then random tokens until
// `count` rows are added.
static void add_some(struct collection *x, int32_t sequence, int32_t head, int count)
{
    const struct evidence *e = x->e;
    const struct span *spans[2] = {NULL, NULL};
    int span_count = 0, wanted = x->count + count;
    for (int i = 0; i < e->span_count[x->side]; i++) {
        const struct span *s = &e->spans[x->side][i];
        if (s->sequence == sequence && (x->chunk < 0 || s->chunk == x->chunk) && span_count < 2)
            spans[span_count++] = s;
    }
    for (int i = 0; i < span_count; i++) {
        add(x, sequence, head, spans[i]->position + spans[i]->len - 1);
        add(x, sequence, head, spans[i]->position);
    }
    for (int tries = 0; tries < 4 * count && x->count < wanted && span_count > 0; tries++) {
        const struct span *s = spans[draw(x, (uint64_t)span_count)];
        add(x, sequence, head, s->position + (int64_t)draw(x, (uint64_t)s->len));
    }
}

static void add_around(struct collection *x, const struct element *at)
{
    static const int steps[] = {0, -1, 1, -2, 2};
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
        add(x, at->sequence, at->head, at->position + steps[i]);
}

// The sequence of a random span; 0 if there is none.
static int32_t drawn_sequence(struct collection *x)
{
    int count = x->e->span_count[x->side];
    return count > 0 ? x->e->spans[x->side][draw(x, (uint64_t)count)].sequence : 0;
}

// The first sequence, which is right by most mistakes of offsets, or another one.
static int32_t other_sequence(struct collection *x, int32_t sequence)
{
    int32_t drawn = drawn_sequence(x);
    return sequence > 0 ? 0 : drawn > 0 ? drawn : x->e->c->batch - 1;
}

static void collect_rows(struct collection *x, const struct figures *f)
{
    int32_t sequence = f->worst_row.sequence, head = f->worst_row.head;
    add_around(x, &f->worst_row);
    if (f->first_bad.position >= 0)
        add_around(x, &f->first_bad);
    add_some(x, sequence, head, ROWS_WORST - x->count);
    int32_t other = other_sequence(x, sequence), third = drawn_sequence(x);
    for (int i = 0; i < x->e->c->batch && (third == sequence || third == other); i++)
        third = (third + 1) % x->e->c->batch;
    add_some(x, sequence, (head + 1) % x->heads, ROWS_OTHER);
    add_some(x, other, other == sequence ? (head + 2) % x->heads : head, ROWS_OTHER);
    add_some(x, third, (int)draw(x, (uint64_t)x->heads), ROWS_OTHER);
}

// ---- what is not of tokens ----------------------------------------------------------------------

static void collect_heads(struct collection *x)
{
    if (!x->e->read(x->e->read_context, x->tensor, 0, x->e->c->heads, x->next))
        return;
    x->rows[x->count++] = (struct diagnosis_row){.got = x->next};
}

// Position of the t-th local token of a sequence on the rank; -1 for padding.
static int64_t token_position(const struct evidence *e, int32_t sequence, int64_t token)
{
    int chunks = shard_chunks_per_rank(e->c);
    for (int i = 0; i < chunks; i++) {
        int64_t begin, end;
        shard_chunk(case_occupied(e->c, SIDE_Q, sequence), chunks * e->c->world_size,
                    shard_chunk_of(e->c, e->rank, i), &begin, &end);
        if (token < end - begin)
            return begin + token < case_length(e->c, SIDE_Q, sequence) ? begin + token : -1;
        token -= end - begin;
    }
    return -1;
}

// Fills in the sequence, head and position of a line of the rank's dbias [heads][rows]. False:
// padding.
static bool bias_line(const struct evidence *e, int64_t line, struct diagnosis_row *row)
{
    const struct cp_case *c = e->c;
    int64_t rows = bias_rows(c, (struct team){e->rank, 1}), at = line % rows;
    row->head = (int32_t)(line / rows);
    if (!bias_has_queries(c))
        row->sequence = (int32_t)at;
    else if (bias_is_whole(c))
        row->position = at;
    else if (!bias_has_batch(c))
        row->position = token_position(e, 0, at);
    else {
        if (c->format == FORMAT_SBHD) {
            row->sequence = (int32_t)(at % c->batch);
            at /= c->batch;
        } else
            while (at >= shard_tokens(c, SIDE_Q, e->rank, row->sequence))
                at -= shard_tokens(c, SIDE_Q, e->rank, row->sequence++);
        row->position = token_position(e, row->sequence, at);
    }
    return row->position >= 0;
}

// The line of the rank's dbias with an element; -1: none.
static int64_t line_of(const struct evidence *e, const struct element *at)
{
    const struct cp_case *c = e->c;
    struct team own = {e->rank, 1};
    int64_t row = bias_has_queries(c) ? at->position : at->sequence;
    for (int i = 0; i < e->span_count[SIDE_Q] && bias_has_queries(c) && !bias_is_whole(c); i++) {
        const struct span *s = &e->spans[SIDE_Q][i];
        int64_t token = at->position - s->position;
        if (token >= 0 && token < s->len && (s->sequence == at->sequence || !bias_has_batch(c)))
            row = bias_row_of(c, own, 0, s) + token * bias_row_step(c);
    }
    return at->position < 0 ? -1 : at->head * bias_rows(c, own) + row;
}

// Adds a line of dbias, cut to the elements that this rank delivers, if it is not yet added.
static void add_line(struct collection *x, int64_t line)
{
    struct bias_share share = bias_share(x->e->c, x->e->rank);
    int64_t columns = x->e->c->seqlen_kv, end = share.first + share.count;
    int64_t begin = line * columns, behind = begin + columns;
    struct diagnosis_row row = {.got = x->next};
    begin = begin < share.first ? share.first : begin;
    behind = behind > end ? end : behind;
    if (line < 0 || begin >= behind || x->count == BIAS_ROWS || !bias_line(x->e, line, &row) ||
        has_row(x, row.sequence, row.head, row.position))
        return;
    row.first = begin - line * columns;
    row.count = behind - begin;
    if (!x->e->read(x->e->read_context, TENSOR_DBIAS, begin - share.first, row.count, x->next))
        return;
    x->next += row.count;
    x->rows[x->count++] = row;
}

// Adds up to BIAS_ROWS lines of dbias: the worst one, its neighbours, the one with the first bad
// element, and random ones.
static void collect_bias(struct collection *x, const struct figures *f)
{
    struct bias_share share = bias_share(x->e->c, x->e->rank);
    int64_t columns = x->e->c->seqlen_kv, worst = line_of(x->e, &f->worst_row);
    if (share.count == 0)
        return;
    int64_t first = share.first / columns;
    int64_t lines = (share.first + share.count + columns - 1) / columns - first;
    for (int i = -1; i <= 1 && worst >= 0; i++)
        add_line(x, worst + i);
    add_line(x, line_of(x->e, &f->first_bad));
    for (int i = 0; i < 4 * BIAS_ROWS; i++)
        add_line(x, first + (lines <= BIAS_ROWS ? i : (int64_t)draw(x, (uint64_t)lines)));
}

static enum case_dtype stored_as(const struct cp_case *c, enum report_tensor tensor)
{
    bool fp32 = tensor == TENSOR_LSE || tensor == TENSOR_DSINK || tensor == TENSOR_MAX_LOGIT;
    return fp32 ? DTYPE_FP32 : c->dtype;
}

const void *evidence_place(const struct evidence_host *host, enum report_tensor tensor,
                           int64_t first, int64_t count, size_t *bytes)
{
    const struct rank_results *r = host->results;
    const void *const tensors[TENSOR_COUNT] = {
        [TENSOR_OUT] = r->out,     [TENSOR_LSE] = r->lse,
        [TENSOR_DQ] = r->dq,       [TENSOR_DK] = r->dk,
        [TENSOR_DV] = r->dv,       [TENSOR_DBIAS] = r->dbias,
        [TENSOR_DSINK] = r->dsink, [TENSOR_MAX_LOGIT] = r->max_logit};
    int64_t element = stored_as(host->c, tensor) == DTYPE_FP32 ? 4 : 2;
    *bytes = (size_t)(count * element);
    return tensors[tensor] ? (const char *)tensors[tensor] + first * element : NULL;
}

void evidence_convert(const struct cp_case *c, enum report_tensor tensor, const void *data,
                      int64_t count, float *values)
{
    dtype_read(stored_as(c, tensor), data, 0, count, values);
}

bool evidence_host_read(void *context, enum report_tensor tensor, int64_t first, int64_t count,
                        float *values)
{
    const struct evidence_host *host = context;
    size_t bytes;
    const void *data = evidence_place(host, tensor, first, count, &bytes);
    if (data)
        evidence_convert(host->c, tensor, data, count, values);
    return data != NULL;
}

// ---- tensors ------------------------------------------------------------------------------------

static int tensor_width(const struct cp_case *c, enum report_tensor tensor)
{
    switch (tensor) {
    case TENSOR_OUT:
    case TENSOR_DV:
        return c->head_dim_v;
    case TENSOR_DQ:
    case TENSOR_DK:
        return c->head_dim_qk;
    default:
        return 1;
    }
}

static bool collect(struct collection *x, const struct figures *f)
{
    const struct cp_case *c = x->e->c;
    bool keys = x->tensor == TENSOR_DK || x->tensor == TENSOR_DV;
    x->side = keys ? SIDE_KV : SIDE_Q;
    x->heads = keys ? c->kv_heads : c->heads;
    x->dim = tensor_width(c, x->tensor);
    x->chunk = f->chunk;
    int64_t bias = x->tensor == TENSOR_DBIAS ? BIAS_ROWS * c->seqlen_kv : 0;
    int64_t count = (int64_t)DIAGNOSIS_ROWS_MAX * x->dim + c->heads + bias;
    x->values = x->next = malloc((size_t)count * sizeof(float));
    if (!x->values)
        return false;
    if (x->tensor == TENSOR_DBIAS)
        collect_bias(x, f);
    else if (x->tensor == TENSOR_DSINK || x->tensor == TENSOR_MAX_LOGIT)
        collect_heads(x);
    else
        collect_rows(x, f);
    return x->count > 0;
}

static void diagnose_padding(const struct figures *f, struct finding *result)
{
    const struct element *at = &f->first_bad;
    result->kind = DIAGNOSIS_PADDING;
    result->diagnosis = (struct diagnosis){.tensor = f->tensor, .explained = 1};
    snprintf(result->diagnosis.text, sizeof(result->diagnosis.text),
             "rows of padding of %s are not zero: %.4g at sequence %d, head %d, position %lld",
             report_tensor_name(f->tensor), f->first_bad_got, at->sequence, at->head,
             (long long)at->position);
}

static bool deadline_passed(void *context)
{
    uint64_t deadline_ns = *(const uint64_t *)context;
    return deadline_ns != 0 && clock_now_ns() > deadline_ns;
}

static void diagnose_chunk(const struct evidence *e, const struct figures *f,
                           struct finding *result)
{
    struct collection x = {.e = e, .tensor = (enum report_tensor)f->tensor, .state = e->c->seed};
    uint64_t deadline_ns = e->deadline_ns;
    if (collect(&x, f)) {
        struct diagnosis_input in = {.c = e->c,
                                     .rank = e->rank,
                                     .tensor = x.tensor,
                                     .rows = x.rows,
                                     .count = x.count,
                                     .noise = isfinite(f->twin_rel) ? f->twin_rel : 0,
                                     .only_zero = f->broken == RULE_ZERO,
                                     .unfilled = e->unfilled,
                                     .steps_unknown = e->steps_unknown,
                                     .statistics = e->statistics,
                                     .statistics_context = e->statistics_context,
                                     .enough = deadline_passed,
                                     .enough_context = &deadline_ns};
        diagnosis_find(&in, result);
    }
    free(x.values);
}

// The size of a chunk's error. NaN and infinity come before all others.
static double severity(const struct figures *f)
{
    if (f->broken & RULE_NONFINITE)
        return INFINITY;
    return f->rmse_limit > 0 ? f->rmse_rel / f->rmse_limit : f->rmse_rel;
}

// The worst chunk of a tensor, or its worst padding; NULL if it has not failed.
static const struct figures *worst_chunk(const struct rank_report *report, int tensor, bool padding)
{
    const struct figures *worst = NULL;
    for (int i = 0; i < report->figures_count; i++) {
        const struct figures *f = &report->figures[i];
        if (f->tensor != tensor || f->broken == 0 || (f->chunk == CHUNK_PADDING) != padding)
            continue;
        if (!worst || severity(f) > severity(worst))
            worst = f;
    }
    return worst;
}

void evidence_diagnose(const struct evidence *e, const struct rank_report *report,
                       struct finding *result)
{
    // Each tensor is computed from those before it.
    static const int order[] = {TENSOR_OUT, TENSOR_LSE, TENSOR_MAX_LOGIT, TENSOR_DQ,
                                TENSOR_DV,  TENSOR_DK,  TENSOR_DSINK,     TENSOR_DBIAS};
    bool failed = false;
    *result = (struct finding){.kind = DIAGNOSIS_NONE};
    for (int padding = 0; padding < 2; padding++)
        for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
            const struct figures *f = worst_chunk(report, order[i], padding == 1);
            if (f && padding)
                diagnose_padding(f, result);
            else if (f)
                diagnose_chunk(e, f, result);
            uint64_t deadline_ns = e->deadline_ns;
            // If out or LSE is wrong and no reason is found, gradients are wrong for the same
            // reason.
            bool source = f && !padding && (order[i] == TENSOR_OUT || order[i] == TENSOR_LSE);
            failed = failed || source;
            if (failed && !padding && order[i] != TENSOR_OUT && result->kind == DIAGNOSIS_NONE)
                return;
            if (result->kind != DIAGNOSIS_NONE || deadline_passed(&deadline_ns))
                return;
        }
}
