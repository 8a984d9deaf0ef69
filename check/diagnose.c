// SPDX-License-Identifier: Apache-2.0
// The sentence that explains a fail.
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "judge/evidence.h"
#include "plan/bias.h"

// Tokens of the check as the judge looks for them: spans of consecutive positions, whose rows are
// those of the caller for the tokens of a rank, and else the numbers of the tokens in their order.
struct search {
    const struct census *x;
    const struct cpattn_array *results;
    struct span *spans[2];
    int span_count[2];
    float *values; // one row
};

static enum cpattn_tensor tensor_of(enum report_tensor report)
{
    enum cpattn_tensor tensor = CPATTN_TENSOR_OUT;
    while (tensor_report(tensor) != report || tensor_is_input(tensor))
        tensor++;
    return tensor;
}

// ---- spans --------------------------------------------------------------------------------------

static bool continues(const struct rows *rows, int64_t i)
{
    int64_t row = rows->order[i], before = rows->order[i - 1];
    return rows->chunk[row] == rows->chunk[before] &&
           rows->sequence[row] == rows->sequence[before] &&
           rows->position[row] == rows->position[before] + 1;
}

static void spans_of_rows(const struct cp_case *c, const struct rows *rows, struct span *spans,
                          int *count)
{
    *count = 0;
    for (int64_t i = 0; i < rows->token_count; i++) {
        int64_t row = rows->order[i];
        if (i > 0 && continues(rows, i))
            spans[*count - 1].len++;
        else
            spans[(*count)++] = (struct span){.sequence = rows->sequence[row],
                                              .chunk = rows->chunk[row],
                                              .row = i * shard_row_step(c),
                                              .len = 1,
                                              .position = rows->position[row]};
    }
}

static bool search_init(struct search *s)
{
    struct cpattn_check *check = s->x->check;
    struct error ignored;
    s->values = values_alloc(&check->c, &ignored);
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        const struct rows *rows = &check->rows[side];
        int64_t most = check->placed ? rows->token_count : shard_spans_max(&check->c);
        s->spans[side] = calloc((size_t)most + 1, sizeof(**s->spans));
        if (s->spans[side] && check->placed)
            spans_of_rows(&check->c, rows, s->spans[side], &s->span_count[side]);
        else if (s->spans[side])
            s->span_count[side] =
                shard_spans(&check->c, (enum shard_side)side, check->rank, s->spans[side]);
    }
    return s->values && s->spans[SIDE_Q] && s->spans[SIDE_KV];
}

static void search_fini(struct search *s)
{
    free(s->values);
    free(s->spans[SIDE_Q]);
    free(s->spans[SIDE_KV]);
}

// ---- reading ------------------------------------------------------------------------------------

// Rows between two heads of LSE, as they are asked for.
static int64_t lse_rows(const struct cpattn_check *check)
{
    const struct rows *rows = &check->rows[SIDE_Q];
    return check->placed ? rows->token_count * shard_row_step(&check->c) : rows->count;
}

static int64_t caller_row(const struct cpattn_check *check, enum shard_side side, int64_t row)
{
    return check->placed ? check->rows[side].order[row / shard_row_step(&check->c)] : row;
}

static bool heads_read(const struct search *s, enum cpattn_tensor tensor, int64_t first,
                       int64_t count, float *values)
{
    if (s->x->check->sums == CPATTN_SUMS_OWN)
        return false; // the suspicions are about sums over all queries
    for (int64_t i = 0; i < count; i++)
        array_read(s->x->check, tensor, &s->results[tensor], 0, (int)(first + i), values + i);
    return true;
}

// Elements are those of the rank's share (plan/bias.h), whose rows the caller has in the same
// order.
static bool bias_read(const struct search *s, int64_t first, int64_t count, float *values)
{
    struct cpattn_check *check = s->x->check;
    struct cpattn_shape shape = cpattn_check_shape(check, CPATTN_TENSOR_DBIAS);
    int64_t at = first + bias_share(&check->c, check->rank).first;
    int64_t column = at % shape.dim, line = at / shape.dim;
    if (check->placed || check->sums == CPATTN_SUMS_OWN || column + count > shape.dim)
        return false;
    array_read(check, CPATTN_TENSOR_DBIAS, &s->results[CPATTN_TENSOR_DBIAS], line % shape.rows,
               (int)(line / shape.rows), s->values);
    memcpy(values, s->values + column, (size_t)count * sizeof(*values));
    return true;
}

static bool result_read(void *context, enum report_tensor report, int64_t first, int64_t count,
                        float *values)
{
    const struct search *s = context;
    struct cpattn_check *check = s->x->check;
    enum cpattn_tensor tensor = tensor_of(report);
    struct cpattn_shape shape = cpattn_check_shape(check, tensor);
    if (!s->results[tensor].data)
        return false;
    if (tensor == CPATTN_TENSOR_DBIAS)
        return bias_read(s, first, count, values);
    if (!tensor_has_tokens(tensor))
        return heads_read(s, tensor, first, count, values);
    bool lse = tensor == CPATTN_TENSOR_LSE;
    int64_t rows = lse_rows(check), unit = first / shape.dim;
    int64_t row = lse ? unit % rows : unit / shape.heads;
    array_read(check, tensor, &s->results[tensor], caller_row(check, tensor_side(tensor), row),
               (int)(lse ? unit / rows : unit % shape.heads), values);
    return true;
}

static bool statistics_read(void *context, int32_t sequence, int32_t head, double *lse,
                            double *delta)
{
    const struct search *s = context;
    const double *lses = census_lse(s->x, sequence, head);
    if (!lses)
        return false;
    size_t bytes = (size_t)case_length(&s->x->check->c, SIDE_Q, sequence) * sizeof(double);
    memcpy(lse, lses, bytes);
    memcpy(delta, census_delta(s->x, sequence, head), bytes);
    return true;
}

void verdict_diagnose(const struct census *x, const struct cpattn_array *results,
                      struct cpattn_check_verdict *v)
{
    struct cpattn_check *check = x->check;
    struct search s = {.x = x, .results = results};
    struct finding finding = {0};
    if (search_init(&s)) {
        const struct evidence e = {.c = &check->c,
                                   .rank = check->rank,
                                   .spans = {s.spans[SIDE_Q], s.spans[SIDE_KV]},
                                   .span_count = {s.span_count[SIDE_Q], s.span_count[SIDE_KV]},
                                   .lse_rows = lse_rows(check),
                                   .read = result_read,
                                   .read_context = &s,
                                   .statistics = x->statistics ? statistics_read : NULL,
                                   .statistics_context = &s};
        evidence_diagnose(&e, &v->report, &finding);
    }
    v->report.diagnosis = finding.said;
    search_fini(&s);
}
