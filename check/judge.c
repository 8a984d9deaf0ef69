// SPDX-License-Identifier: Apache-2.0
// The verdict of a check in host memory, and results filled with the reference.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/device.h"
#include "check/state.h"
#include "judge/mask.h"
#include "judge/tally.h"

// ---- judging the rows of one side ---------------------------------------------------------------

// A result that is judged. Each chunk has figures of its own.
struct judged {
    enum cpattn_tensor tensor;
    const struct cpattn_array *array;
    struct tally tallies[CHECK_CHUNKS];
    float *errors[CHECK_CHUNKS], *twins[CHECK_CHUNKS];
};

struct judging {
    struct cpattn_check *check;
    struct judged judged[CPATTN_TENSORS];
    int count;
    float got[HEAD_DIM_MAX];
};

static int64_t chunk_tokens(const struct rows *rows, int chunk)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < rows->token_count; i++)
        tokens += rows->chunk[rows->order[i]] == chunk;
    return tokens;
}

static enum status judged_init(struct judged *j, const struct cpattn_check *check,
                               struct error *error)
{
    const struct cp_case *c = &check->c;
    struct cpattn_shape shape = cpattn_check_shape(check, j->tensor);
    enum report_tensor report = tensor_report(j->tensor);
    for (int chunk = 0; chunk < CHECK_CHUNKS; chunk++) {
        size_t rows =
            (size_t)chunk_tokens(&check->rows[tensor_side(j->tensor)], chunk) * (size_t)shape.heads;
        j->errors[chunk] = calloc(rows * (size_t)shape.dim + 1, sizeof(float));
        j->twins[chunk] = calloc(rows + 1, sizeof(float));
        if (!j->errors[chunk] || !j->twins[chunk])
            return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu rows of %s", rows,
                             cpattn_tensor_name(j->tensor));
        tally_init(&j->tallies[chunk], rules_of(c, report), report, chunk, shape.dim,
                   j->errors[chunk], j->twins[chunk]);
    }
    return STATUS_OK;
}

static void judging_fini(struct judging *g)
{
    for (int i = 0; i < g->count; i++)
        for (int chunk = 0; chunk < CHECK_CHUNKS; chunk++) {
            free(g->judged[i].errors[chunk]);
            free(g->judged[i].twins[chunk]);
        }
}

// The expected values of a tensor for row i of a range.
static struct tally_expected expected_row(const struct cpattn_check *check,
                                          enum cpattn_tensor tensor, const struct position_range *s,
                                          const struct expected_rows *e, int64_t i)
{
    struct mask mask = mask_of(&check->c, s->sequence);
    struct range sight = s->side == SIDE_Q ? mask_keys(&mask, s->position + i)
                                           : mask_queries(&mask, s->position + i);
    int64_t seen = sight.end - sight.begin;
    int dim = cpattn_check_shape(check, tensor).dim;
    bool cancels = tensor == CPATTN_TENSOR_DQ || tensor == CPATTN_TENSOR_DK;
    if (tensor == CPATTN_TENSOR_LSE)
        return (struct tally_expected){.reference = e->lse + i, .keys = seen};
    return (struct tally_expected){.reference = (cancels ? e->other : e->wide) + i * dim,
                                   .twin = (cancels ? e->other_twin : e->wide_twin) + i * dim,
                                   .terms = cancels ? e->terms[i] : 0,
                                   .row_terms = cancels ? e->terms[i] : 0,
                                   .zero = seen == 0};
}

static void row_judge(struct judging *g, const struct position_range *s,
                      const struct expected_rows *e, int64_t i, int64_t row)
{
    int chunk = g->check->rows[s->side].chunk[row];
    const struct element where = {
        .sequence = s->sequence, .head = s->head, .position = s->position + i};
    for (int k = 0; k < g->count; k++) {
        struct judged *j = &g->judged[k];
        int dim = cpattn_check_shape(g->check, j->tensor).dim;
        array_read(g->check, j->tensor, j->array, row, s->head, g->got);
        if (e) {
            struct tally_expected expected = expected_row(g->check, j->tensor, s, e, i);
            tally_row(&j->tallies[chunk], g->got, &expected, dim);
        } else {
            tally_row_again(&j->tallies[chunk], g->got, where, dim);
        }
    }
}

static enum status range_judge(void *context, const struct position_range *s,
                               const struct expected_rows *e, struct error *error)
{
    struct judging *g = context;
    (void)error;
    for (int64_t i = 0; i < s->count; i++) {
        int64_t row = row_of_token(g->check, s->side, s->sequence, s->position + i);
        if (row >= 0)
            row_judge(g, s, e, i, row);
    }
    return STATUS_OK;
}

// ---- padding ------------------------------------------------------------------------------------

static void padding_element(struct figures *f, struct element where, float got)
{
    f->elements++;
    if (got == 0)
        return;
    f->nonfinite += !isfinite(got);
    if (isfinite(got) && fabs(got) > f->max_abs)
        f->max_abs = fabs(got);
    f->broken = RULE_PADDING;
    if (f->mismatches++ > 0)
        return;
    f->first_bad = where;
    f->first_bad_got = got;
}

static struct figures padding_judge(struct judging *g, const struct judged *j)
{
    enum shard_side side = tensor_side(j->tensor);
    const struct rows *rows = &g->check->rows[side];
    struct cpattn_shape shape = cpattn_check_shape(g->check, j->tensor);
    struct figures f = {.tensor = tensor_report(j->tensor),
                        .chunk = CHUNK_PADDING,
                        .worst_row.position = -1,
                        .first_bad.position = -1};
    for (int64_t i = rows->token_count; i < rows->count; i++) {
        int64_t row = rows->order[i];
        for (int head = 0; head < shape.heads; head++) {
            array_read(g->check, j->tensor, j->array, row, head, g->got);
            for (int dim = 0; dim < shape.dim; dim++)
                padding_element(&f,
                                (struct element){.sequence = rows->sequence[row],
                                                 .position = rows->position[row],
                                                 .head = head,
                                                 .dim = dim},
                                g->got[dim]);
        }
    }
    f.judged = f.elements;
    return f;
}

// ---- the verdict --------------------------------------------------------------------------------

static void judged_append(struct judging *g, struct judged *j, struct cpattn_check_verdict *v)
{
    for (int chunk = 0; chunk < CHECK_CHUNKS; chunk++) {
        struct tally *tally = &j->tallies[chunk];
        if (tally->rows == 0)
            continue;
        tally_finish(tally);
        tally->figures.elements = tally->figures.judged;
        verdict_append(v, &tally->figures);
    }
    if (j->tensor == CPATTN_TENSOR_LSE)
        return; // LSE of padding is never read
    struct figures padding = padding_judge(g, j);
    if (padding.elements > 0)
        verdict_append(v, &padding);
}

static enum status judging_init(struct judging *g, enum shard_side side,
                                const struct cpattn_array *results, struct error *error)
{
    enum status status = STATUS_OK;
    for (int t = 0; t < CPATTN_TENSORS && status == STATUS_OK; t++) {
        enum cpattn_tensor tensor = (enum cpattn_tensor)t;
        if (!results[t].data || !tensor_has_tokens(tensor) || tensor_side(tensor) != side)
            continue;
        int last = g->count;
        g->judged[last] = (struct judged){.tensor = tensor, .array = &results[t]};
        status = judged_init(&g->judged[last], g->check, error);
        g->count = last + 1; // even on failure: judging_fini() frees its memory
    }
    return status;
}

// Judges the results of one side in two walks: the first computes the reference, the second reads
// the results again after tally_turn(). The first walk over the queries also computes the sums and
// the statistics for keys, even if no result of this side is judged.
static enum status side_judge(struct census *x, enum shard_side side,
                              const struct cpattn_array *results, struct cpattn_check_verdict *v,
                              struct error *error)
{
    struct judging g = {.check = x->check};
    bool wanted = side == SIDE_Q && (x->all || x->wants_sums);
    enum status status = judging_init(&g, side, results, error);
    if (status == STATUS_OK && (g.count > 0 || wanted))
        status = census_walk(x, side, true, g.count > 0 ? range_judge : NULL, &g, error);
    for (int k = 0; k < g.count; k++)
        for (int chunk = 0; chunk < CHECK_CHUNKS; chunk++)
            tally_turn(&g.judged[k].tallies[chunk]);
    if (status == STATUS_OK && g.count > 0)
        status = census_walk(x, side, false, range_judge, &g, error);
    for (int k = 0; k < g.count && status == STATUS_OK; k++)
        judged_append(&g, &g.judged[k], v);
    judging_fini(&g);
    return status;
}

// Checks the results that have memory, and copies their arrays to taken[]. Ignores inputs.
static enum status results_take(const struct cpattn_check *check,
                                const struct cpattn_array *results, int count,
                                struct cpattn_array taken[CPATTN_TENSORS],
                                bool wanted[CPATTN_TENSORS], struct error *error)
{
    enum status status = STATUS_OK;
    int there = 0;
    for (int t = 0; t < CPATTN_TENSORS && t < count && status == STATUS_OK; t++) {
        enum cpattn_tensor tensor = (enum cpattn_tensor)t;
        if (!results[t].data || tensor_is_input(tensor))
            continue;
        taken[t] = results[t];
        wanted[t] = true;
        there++;
        status = tensor_check(&check->c, tensor, error);
        if (status == STATUS_OK)
            status = array_check(check, tensor, &results[t], error);
    }
    if (status != STATUS_OK || there > 0)
        return status;
    return error_set(
        error, STATUS_INVALID_ARGUMENT,
        "there is no result to judge: out, lse, dq, dk, dv, dbias, dsink or max_logit");
}

static bool census_statistics(void *context, int32_t sequence, int32_t head, double *lse,
                              double *delta)
{
    const struct census *x = context;
    size_t bytes = (size_t)case_length(&x->check->c, SIDE_Q, sequence) * sizeof(double);
    memcpy(lse, census_lse(x, sequence, head), bytes);
    memcpy(delta, census_delta(x, sequence, head), bytes);
    return true;
}

static enum status host_judge(struct cpattn_check *check, const struct cpattn_array *results,
                              const bool wanted[CPATTN_TENSORS], struct cpattn_check_verdict *v,
                              struct error *error)
{
    struct census x;
    enum status status = census_init(&x, check, wanted, error);
    if (status == STATUS_OK)
        status = side_judge(&x, SIDE_Q, results, v, error);
    if (status == STATUS_OK)
        status = sums_judge(&x, results, v, error);
    if (status == STATUS_OK)
        status = side_judge(&x, SIDE_KV, results, v, error);
    if (status == STATUS_OK && !v->report.pass)
        verdict_diagnose(check, results, x.statistics ? census_statistics : NULL, &x, &v->report);
    census_fini(&x);
    return status;
}

enum cpattn_status cpattn_check_verify(struct cpattn_check *check,
                                       const struct cpattn_array *results, int count,
                                       struct cpattn_check_verdict **verdict,
                                       struct cpattn_error *error)
{
    struct error reason = {0};
    struct cpattn_array taken[CPATTN_TENSORS] = {0};
    bool wanted[CPATTN_TENSORS] = {false};
    struct cpattn_check_verdict *v = calloc(1, sizeof(*v));
    enum status status = STATUS_OK;
    if (!v)
        status = error_set(&reason, STATUS_RESOURCE_EXHAUSTED, "no memory for a verdict");
    else
        v->report = (struct rank_report){.rank = check->rank, .pass = true};
    if (status == STATUS_OK)
        status = results_take(check, results, count, taken, wanted, &reason);
    if (status == STATUS_OK)
        status = check->device ? device_verify(check, taken, v, &reason)
                               : host_judge(check, taken, wanted, v, &reason);
    if (status == STATUS_OK) {
        verdict_write(v);
        *verdict = v;
    } else {
        free(v);
    }
    return status_public(status, &reason, error);
}

// ---- the reference's numbers --------------------------------------------------------------------

struct filling {
    struct cpattn_check *check;
    enum cpattn_tensor tensor;
    const struct cpattn_array *array;
};

static void row_put(const struct filling *f, const struct position_range *s,
                    const struct expected_rows *e, int64_t i, int64_t row)
{
    float values[HEAD_DIM_MAX];
    struct tally_expected expected = expected_row(f->check, f->tensor, s, e, i);
    for (int k = 0; k < cpattn_check_shape(f->check, f->tensor).dim; k++)
        values[k] = (float)expected.reference[k];
    array_write(f->check, f->tensor, f->array, row, s->head, values);
}

static enum status range_put(void *context, const struct position_range *s,
                             const struct expected_rows *e, struct error *error)
{
    const struct filling *f = context;
    (void)error;
    for (int64_t i = 0; i < s->count; i++) {
        int64_t row = row_of_token(f->check, s->side, s->sequence, s->position + i);
        if (row >= 0)
            row_put(f, s, e, i, row);
    }
    return STATUS_OK;
}

static void padding_put(const struct filling *f)
{
    enum shard_side side = tensor_side(f->tensor);
    const float zeros[HEAD_DIM_MAX] = {0};
    const struct rows *rows = &f->check->rows[side];
    for (int64_t i = rows->token_count; i < rows->count; i++)
        for (int head = 0; head < cpattn_check_shape(f->check, f->tensor).heads; head++)
            array_write(f->check, f->tensor, f->array, rows->order[i], head, zeros);
}

static enum status expected_put(struct filling *f, struct error *error)
{
    bool wanted[CPATTN_TENSORS] = {false};
    bool tokens = tensor_has_tokens(f->tensor), keys = tokens && tensor_side(f->tensor) == SIDE_KV;
    struct census x;
    wanted[f->tensor] = true;
    enum status status = census_init(&x, f->check, wanted, error);
    if (status == STATUS_OK)
        status = census_walk(&x, SIDE_Q, true, tokens && !keys ? range_put : NULL, f, error);
    if (status == STATUS_OK && keys)
        status = census_walk(&x, SIDE_KV, true, range_put, f, error);
    if (status == STATUS_OK && tokens)
        padding_put(f);
    else if (status == STATUS_OK)
        status = sums_fill(&x, f->tensor, f->array, error);
    census_fini(&x);
    return status;
}

static enum status expected_fill(struct cpattn_check *check, enum cpattn_tensor tensor,
                                 const struct cpattn_array *array, struct error *error)
{
    struct cpattn_array host;
    if (!check->device)
        return expected_put(&(struct filling){check, tensor, array}, error);
    enum status status = device_mirror(check, tensor, &host, error);
    if (status == STATUS_OK)
        status = expected_put(&(struct filling){check, tensor, &host}, error);
    if (status == STATUS_OK)
        status = device_put(check, tensor, array, &host, error);
    free(host.data);
    return status;
}

enum cpattn_status cpattn_check_expected(struct cpattn_check *check, enum cpattn_tensor tensor,
                                         const struct cpattn_array *array,
                                         struct cpattn_error *error)
{
    struct error reason = {0};
    enum status status = STATUS_OK;
    if (!tensor_exists(tensor) || tensor_is_input(tensor))
        status = error_set(
            &reason, STATUS_INVALID_ARGUMENT,
            "tensor %d is no result; results are out, lse, dq, dk, dv, dbias, dsink and max_logit",
            (int)tensor);
    if (status == STATUS_OK)
        status = tensor_check(&check->c, tensor, &reason);
    if (status == STATUS_OK)
        status = array_check(check, tensor, array, &reason);
    if (status == STATUS_OK)
        status = expected_fill(check, tensor, array, &reason);
    return status_public(status, &reason, error);
}
