// SPDX-License-Identifier: Apache-2.0
// Finds the sentence that explains a fail.
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "judge/evidence.h"
#include "plan/bias.h"

struct search {
    struct cpattn_check *check;
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

static bool search_init(struct search *s)
{
    struct error ignored;
    s->values = values_alloc(&s->check->c, &ignored);
    for (int side = SIDE_Q; side <= SIDE_KV; side++)
        s->spans[side] = spans_of_check(s->check, (enum shard_side)side,
                                        shard_row_step(&s->check->c), &s->span_count[side]);
    return s->values && s->spans[SIDE_Q] && s->spans[SIDE_KV];
}

static void search_fini(struct search *s)
{
    free(s->values);
    free(s->spans[SIDE_Q]);
    free(s->spans[SIDE_KV]);
}

// ---- reading ------------------------------------------------------------------------------------

// Row stride between two heads of LSE in the layout that the diagnosis reads.
static int64_t lse_rows(const struct cpattn_check *check)
{
    const struct rows *rows = &check->rows[SIDE_Q];
    return check->placed ? rows->token_count * shard_row_step(&check->c) : rows->count;
}

// The caller's row for a row of that layout.
static int64_t caller_row(const struct cpattn_check *check, enum shard_side side, int64_t row)
{
    return check->placed ? check->rows[side].order[row / shard_row_step(&check->c)] : row;
}

static bool heads_read(const struct search *s, enum cpattn_tensor tensor, int64_t first,
                       int64_t count, float *values)
{
    if (s->check->sums == CPATTN_SUMS_OWN)
        return false; // the diagnosis needs the sums over all queries
    for (int64_t i = 0; i < count; i++)
        array_read(s->check, tensor, &s->results[tensor], 0, (int)(first + i), values + i);
    return true;
}

// Reads elements of dbias, whose index counts from the begin of the rank's share (plan/bias.h). The
// caller's rows have the same order.
static bool bias_read(const struct search *s, int64_t first, int64_t count, float *values)
{
    struct cpattn_check *check = s->check;
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
    struct cpattn_check *check = s->check;
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

void verdict_diagnose(struct cpattn_check *check, const struct cpattn_array *results,
                      diagnosis_statistics *statistics, void *statistics_context,
                      struct rank_report *report)
{
    struct search s = {.check = check, .results = results};
    struct finding finding = {0};
    if (search_init(&s)) {
        const struct evidence e = {.c = &check->c,
                                   .rank = check->rank,
                                   .spans = {s.spans[SIDE_Q], s.spans[SIDE_KV]},
                                   .span_count = {s.span_count[SIDE_Q], s.span_count[SIDE_KV]},
                                   .lse_rows = lse_rows(check),
                                   .unfilled = true,
                                   .steps_unknown = true,
                                   .read = result_read,
                                   .read_context = &s,
                                   .statistics = statistics,
                                   .statistics_context = statistics_context};
        evidence_diagnose(&e, report, &finding);
    }
    report->diagnosis = finding.diagnosis;
    search_fini(&s);
}
