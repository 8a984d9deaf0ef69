// SPDX-License-Identifier: Apache-2.0
// Results that are maxima or sums over queries: max_logit, dsink and dbias.
#include <math.h>
#include <stdlib.h>

#include "check/state.h"
#include "judge/dtype.h"
#include "judge/tally.h"
#include "plan/bias.h"

// ---- the gradient of the bias -------------------------------------------------------------------

struct bias_judging {
    const struct census *x;
    const struct cpattn_array *array;
    struct cpattn_shape shape;
    double terms;
    float *got, *twin;     // one row
    double *nothing;       // one row of zeros
    float *errors, *twins; // buffers of the tally
};

static enum status bias_init(struct bias_judging *b, struct error *error)
{
    size_t columns = (size_t)b->shape.dim;
    size_t lines = (size_t)b->shape.rows * (size_t)b->shape.heads;
    b->got = values_alloc(&b->x->check->c, error);
    b->twin = values_alloc(&b->x->check->c, error);
    b->nothing = calloc(columns + 1, sizeof(*b->nothing));
    b->errors = calloc(lines * columns + 1, sizeof(*b->errors));
    b->twins = calloc(lines + 1, sizeof(*b->twins));
    if (b->got && b->twin && b->nothing && b->errors && b->twins)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu rows of dbias", lines);
}

static void bias_fini(struct bias_judging *b)
{
    free(b->got);
    free(b->twin);
    free(b->nothing);
    free(b->errors);
    free(b->twins);
}

// RMS of the terms that cancel in an element of dbias.
static double bias_terms(const struct census *x, const struct cpattn_shape *shape)
{
    const struct cp_case *c = &x->check->c;
    double squares = 0, elements = (double)shape->rows * shape->heads * shape->dim;
    for (int rank = 0; rank < c->world_size; rank++)
        for (int head = 0; head < c->heads; head++)
            squares += x->heads.heads[rank][TOTALS_BIAS_TERMS * c->heads + head];
    return sqrt(squares / (elements > 1 ? elements : 1));
}

// The row of `sums` for a row and head of the caller's dbias; NULL: the row belongs to padding.
static const double *bias_sums(const struct census *x, const double *sums, int64_t row, int head)
{
    const struct bias_lines *lines = &x->check->bias;
    if (lines->line_of_row[row] < 0)
        return NULL;
    return sums + (head * lines->lines + lines->line_of_row[row]) * x->check->c.seqlen_kv;
}

static void bias_row(struct bias_judging *b, int64_t row, int head, bool again, struct tally *tally)
{
    const struct cpattn_check *check = b->x->check;
    const double *reference = bias_sums(b->x, b->x->bias, row, head);
    const double *twin = bias_sums(b->x, b->x->bias_twin, row, head);
    array_read(check, CPATTN_TENSOR_DBIAS, b->array, row, head, b->got);
    if (again) {
        const struct element where = {.head = head, .position = row};
        tally_row_again(tally, b->got, where, b->shape.dim);
        return;
    }
    for (int i = 0; i < b->shape.dim; i++)
        b->twin[i] = twin ? (float)twin[i] : 0;
    dtype_round(check->c.dtype, b->twin, b->shape.dim);
    const struct tally_expected e = {.reference = reference ? reference : b->nothing,
                                     .twin = b->twin,
                                     .terms = b->terms,
                                     .sparse = true};
    tally_row(tally, b->got, &e, b->shape.dim);
}

// Tallies all rows of dbias. `again`: the second pass, after tally_turn().
static void bias_pass(struct bias_judging *b, bool again, struct tally *tally)
{
    for (int head = 0; head < b->shape.heads && b->shape.dim > 0; head++)
        for (int64_t row = 0; row < b->shape.rows; row++)
            bias_row(b, row, head, again, tally);
}

// at->position is a row of dbias: replaces it by the sequence and position of that row.
static void bias_place(const struct cpattn_check *check, struct element *at)
{
    if (at->position < 0)
        return;
    struct element row = bias_row_element(check, at->position);
    at->sequence = row.sequence;
    at->position = row.position;
}

static enum status bias_judge(const struct census *x, const struct cpattn_array *array,
                              struct cpattn_check_verdict *v, struct error *error)
{
    struct bias_judging b = {
        .x = x, .array = array, .shape = cpattn_check_shape(x->check, CPATTN_TENSOR_DBIAS)};
    struct tally tally;
    b.terms = bias_terms(x, &b.shape);
    enum status status = bias_init(&b, error);
    if (status == STATUS_OK) {
        tally_init(&tally, rules_of(&x->check->c, TENSOR_DBIAS), TENSOR_DBIAS, 0, b.shape.dim,
                   b.errors, b.twins);
        bias_pass(&b, false, &tally);
        tally_turn(&tally);
        bias_pass(&b, true, &tally);
        tally_finish(&tally);
        tally.figures.elements = tally.figures.judged;
        bias_place(x->check, &tally.figures.worst_row);
        bias_place(x->check, &tally.figures.first_bad);
        verdict_append(v, &tally.figures);
    }
    bias_fini(&b);
    return status;
}

// ---- numbers of heads ---------------------------------------------------------------------------

static void heads_read(const struct cpattn_check *check, enum cpattn_tensor tensor,
                       const struct cpattn_array *array, float got[HEADS_MAX])
{
    for (int head = 0; head < check->c.heads; head++)
        array_read(check, tensor, array, 0, head, &got[head]);
}

enum status sums_judge(const struct census *x, const struct cpattn_array *results,
                       struct cpattn_check_verdict *v, struct error *error)
{
    const struct cp_case *c = &x->check->c;
    float got[HEADS_MAX];
    struct figures f;
    if (results[CPATTN_TENSOR_MAX_LOGIT].data) {
        heads_read(x->check, CPATTN_TENSOR_MAX_LOGIT, &results[CPATTN_TENSOR_MAX_LOGIT], got);
        f = totals_judge_max_logit(c, x->heads.heads, got, false);
        verdict_append(v, &f);
    }
    if (results[CPATTN_TENSOR_DSINK].data) {
        heads_read(x->check, CPATTN_TENSOR_DSINK, &results[CPATTN_TENSOR_DSINK], got);
        f = totals_judge_dsink(c, x->heads.heads, got);
        verdict_append(v, &f);
    }
    if (results[CPATTN_TENSOR_DBIAS].data)
        return bias_judge(x, &results[CPATTN_TENSOR_DBIAS], v, error);
    return STATUS_OK;
}

// ---- the reference's numbers --------------------------------------------------------------------

static double head_expected(const struct census *x, enum cpattn_tensor tensor, int head)
{
    const struct cp_case *c = &x->check->c;
    bool largest = tensor == CPATTN_TENSOR_MAX_LOGIT;
    double result = largest ? -INFINITY : 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        const double *numbers = x->heads.heads[rank] + head;
        if (largest)
            result = fmax(result, numbers[TOTALS_MAX_LOGIT * c->heads]);
        else
            result += numbers[TOTALS_DSINK * c->heads];
    }
    return result;
}

static void bias_fill(const struct census *x, const struct cpattn_array *array, float *values)
{
    struct cpattn_shape shape = cpattn_check_shape(x->check, CPATTN_TENSOR_DBIAS);
    for (int head = 0; head < shape.heads; head++)
        for (int64_t row = 0; row < shape.rows; row++) {
            const double *sums = bias_sums(x, x->bias, row, head);
            for (int i = 0; i < shape.dim; i++)
                values[i] = sums ? (float)sums[i] : 0;
            array_write(x->check, CPATTN_TENSOR_DBIAS, array, row, head, values);
        }
}

enum status sums_fill(const struct census *x, enum cpattn_tensor tensor,
                      const struct cpattn_array *array, struct error *error)
{
    float *values = values_alloc(&x->check->c, error);
    if (!values)
        return STATUS_RESOURCE_EXHAUSTED;
    if (tensor == CPATTN_TENSOR_DBIAS)
        bias_fill(x, array, values);
    for (int head = 0; head < x->check->c.heads && tensor != CPATTN_TENSOR_DBIAS; head++) {
        values[0] = (float)head_expected(x, tensor, head);
        array_write(x->check, tensor, array, 0, head, values);
    }
    free(values);
    return STATUS_OK;
}
