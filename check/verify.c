// SPDX-License-Identifier: Apache-2.0
// The verdict of a check, and the reference's own numbers.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "client/figures.h"
#include "judge/mask.h"
#include "judge/tally.h"

#define CHUNKS      2
#define TEXT_BYTES  4096
#define FIGURES_MAX (CPATTN_TENSORS * (CHUNKS + 1))

struct cpattn_check_verdict {
    bool pass;
    int count;
    struct cpattn_figures figures[FIGURES_MAX];
    char text[TEXT_BYTES];
};

// ---- one side -----------------------------------------------------------------------------------

// A result that is judged, chunk by chunk.
struct judged {
    enum cpattn_tensor tensor;
    const struct cpattn_array *array;
    struct tally tallies[CHUNKS];
    float *errors[CHUNKS], *twins[CHUNKS];
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
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
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
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            free(g->judged[i].errors[chunk]);
            free(g->judged[i].twins[chunk]);
        }
}

// What is expected of row i of a stretch.
static struct tally_expected expected_row(const struct cpattn_check *check,
                                          enum cpattn_tensor tensor, const struct stretch *s,
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
                                   .zero = seen == 0};
}

static enum status stretch_judge(void *context, const struct stretch *s,
                                 const struct expected_rows *e, struct error *error)
{
    struct judging *g = context;
    (void)error;
    for (int64_t i = 0; i < s->count; i++)
        for (int k = 0; k < g->count; k++) {
            struct judged *j = &g->judged[k];
            struct tally *tally = &j->tallies[s->chunk];
            int dim = cpattn_check_shape(g->check, j->tensor).dim;
            array_read(g->check, j->tensor, j->array, s->rows[i], s->head, g->got);
            if (e) {
                struct tally_expected expected = expected_row(g->check, j->tensor, s, e, i);
                tally_row(tally, g->got, &expected, dim);
            } else {
                struct element where = {
                    .sequence = s->sequence, .head = s->head, .position = s->position + i};
                tally_row_again(tally, g->got, where, dim);
            }
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
    const struct cp_case *c = &g->check->c;
    enum shard_side side = tensor_side(j->tensor);
    const struct rows *rows = &g->check->rows[side];
    struct cpattn_shape shape = cpattn_check_shape(g->check, j->tensor);
    struct figures f = {.tensor = tensor_report(j->tensor),
                        .chunk = CHUNK_PADDING,
                        .worst_row.position = -1,
                        .first_bad.position = -1};
    for (int64_t row = 0; row < rows->count; row++) {
        if (rows->position[row] < case_length(c, side, rows->sequence[row]))
            continue;
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

static void figures_append(struct cpattn_check_verdict *v, const struct figures *f)
{
    v->pass = v->pass && f->broken == 0;
    v->figures[v->count++] = figures_public(f);
}

static void judged_append(struct judging *g, struct judged *j, struct cpattn_check_verdict *v)
{
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        struct tally *tally = &j->tallies[chunk];
        if (tally->rows == 0)
            continue;
        tally_finish(tally);
        tally->figures.elements = tally->figures.judged;
        figures_append(v, &tally->figures);
    }
    if (j->tensor == CPATTN_TENSOR_LSE)
        return; // nobody reads that of padding
    struct figures padding = padding_judge(g, j);
    if (padding.elements > 0)
        figures_append(v, &padding);
}

static enum status side_judge(struct cpattn_check *check, enum shard_side side,
                              const struct cpattn_array *results, struct cpattn_check_verdict *v,
                              struct error *error)
{
    struct judging g = {.check = check};
    enum status status = STATUS_OK;
    for (int t = CPATTN_TENSOR_OUT; t < CPATTN_TENSORS && status == STATUS_OK; t++) {
        if (!results[t].data || tensor_side((enum cpattn_tensor)t) != side)
            continue;
        struct judged *j = &g.judged[g.count++];
        *j = (struct judged){.tensor = (enum cpattn_tensor)t, .array = &results[t]};
        status = array_check(check, j->tensor, j->array, error);
        if (status == STATUS_OK)
            status = judged_init(j, check, error);
    }
    if (status == STATUS_OK && g.count > 0)
        status = rows_walk(check, side, true, stretch_judge, &g, error);
    for (int k = 0; k < g.count; k++)
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            tally_turn(&g.judged[k].tallies[chunk]);
    if (status == STATUS_OK && g.count > 0)
        status = rows_walk(check, side, false, stretch_judge, &g, error);
    for (int k = 0; k < g.count && status == STATUS_OK; k++)
        judged_append(&g, &g.judged[k], v);
    judging_fini(&g);
    return status;
}

static enum status results_check(const struct cpattn_check *check,
                                 const struct cpattn_array *results, struct error *error)
{
    int count = 0;
    for (int t = CPATTN_TENSOR_OUT; t < CPATTN_TENSORS; t++) {
        if (!results[t].data)
            continue;
        count++;
        if (t >= CPATTN_TENSOR_DQ && !check->c.training)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s is a gradient, and the case has training false",
                             cpattn_tensor_name((enum cpattn_tensor)t));
    }
    if (count > 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "there is no result to judge: out, lse, dq, dk or dv");
}

// ---- text ---------------------------------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static void text_add(struct cpattn_check_verdict *v,
                                                           const char *format, ...)
{
    size_t used = strlen(v->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(v->text + used, sizeof(v->text) - used, format, arguments);
    va_end(arguments);
}

static void figures_text(struct cpattn_check_verdict *v, const struct cpattn_figures *f)
{
    text_add(v, "%s %s", f->broken ? "FAIL" : "pass", f->tensor);
    if (f->chunk == CPATTN_CHUNK_PADDING) {
        text_add(v, ", padding: %lld of %lld elements are not zero\n", (long long)f->mismatches,
                 (long long)f->elements);
        return;
    }
    text_add(v, ", chunk %d:", f->chunk);
    if (f->twin_rel > 0)
        text_add(v, " error %.3g of %.3g times an honest kernel's,", f->rmse_rel / f->twin_rel,
                 f->rmse_limit / f->twin_rel);
    text_add(v, " rms %.3g of %.3g, slope %.2g of %.2g, worst row %.3g of %.3g", f->rmse_rel,
             f->rmse_limit, f->slope, f->slope_limit, f->worst_row_rel, f->worst_row_limit);
    if (f->nonfinite > 0)
        text_add(v, ", %lld not finite", (long long)f->nonfinite);
    if (f->first_bad.position >= 0)
        text_add(
            v, "; first bad element: sequence %d, position %lld, head %d, dim %d: %g instead of %g",
            f->first_bad.sequence, (long long)f->first_bad.position, f->first_bad.head,
            f->first_bad.dim, f->first_bad_got, f->first_bad_expected);
    text_add(v, "\n");
}

static void verdict_text(struct cpattn_check_verdict *v)
{
    for (int i = 0; i < v->count; i++)
        figures_text(v, &v->figures[i]);
}

enum cpattn_status cpattn_check_verify(struct cpattn_check *check,
                                       const struct cpattn_array *results,
                                       struct cpattn_check_verdict **verdict,
                                       struct cpattn_error *error)
{
    struct error reason = {0};
    struct cpattn_check_verdict *v = calloc(1, sizeof(*v));
    enum status status = STATUS_OK;
    if (!v)
        status = error_set(&reason, STATUS_RESOURCE_EXHAUSTED, "no memory for a verdict");
    else
        v->pass = true;
    if (status == STATUS_OK)
        status = results_check(check, results, &reason);
    for (int side = SIDE_Q; side <= SIDE_KV && status == STATUS_OK; side++)
        status = side_judge(check, (enum shard_side)side, results, v, &reason);
    if (status == STATUS_OK) {
        verdict_text(v);
        *verdict = v;
    } else {
        free(v);
    }
    return status_public(status, &reason, error);
}

void cpattn_check_verdict_destroy(struct cpattn_check_verdict *verdict)
{
    free(verdict);
}

bool cpattn_check_verdict_pass(const struct cpattn_check_verdict *verdict)
{
    return verdict->pass;
}

const struct cpattn_figures *
cpattn_check_verdict_figures(const struct cpattn_check_verdict *verdict, int index)
{
    return index >= 0 && index < verdict->count ? &verdict->figures[index] : NULL;
}

const char *cpattn_check_verdict_text(const struct cpattn_check_verdict *verdict)
{
    return verdict->text;
}

// ---- the reference's numbers --------------------------------------------------------------------

struct filling {
    struct cpattn_check *check;
    enum cpattn_tensor tensor;
    const struct cpattn_array *array;
};

static enum status stretch_fill(void *context, const struct stretch *s,
                                const struct expected_rows *e, struct error *error)
{
    const struct filling *f = context;
    float values[HEAD_DIM_MAX];
    int dim = cpattn_check_shape(f->check, f->tensor).dim;
    (void)error;
    for (int64_t i = 0; i < s->count; i++) {
        struct tally_expected row = expected_row(f->check, f->tensor, s, e, i);
        for (int k = 0; k < dim; k++)
            values[k] = (float)row.reference[k];
        array_write(f->check, f->tensor, f->array, s->rows[i], s->head, values);
    }
    return STATUS_OK;
}

static void padding_fill(const struct filling *f)
{
    const struct cp_case *c = &f->check->c;
    enum shard_side side = tensor_side(f->tensor);
    const struct rows *rows = &f->check->rows[side];
    const float zeros[HEAD_DIM_MAX] = {0};
    for (int64_t row = 0; row < rows->count; row++)
        for (int head = 0; head < cpattn_check_shape(f->check, f->tensor).heads; head++)
            if (rows->position[row] >= case_length(c, side, rows->sequence[row]))
                array_write(f->check, f->tensor, f->array, row, head, zeros);
}

enum cpattn_status cpattn_check_expected(struct cpattn_check *check, enum cpattn_tensor tensor,
                                         const struct cpattn_array *array,
                                         struct cpattn_error *error)
{
    struct error reason = {0};
    struct filling filling = {check, tensor, array};
    enum status status = STATUS_OK;
    if (tensor < CPATTN_TENSOR_OUT || tensor >= CPATTN_TENSORS)
        status =
            error_set(&reason, STATUS_INVALID_ARGUMENT,
                      "tensor %d is no result; results are out, lse, dq, dk and dv", (int)tensor);
    else if (tensor >= CPATTN_TENSOR_DQ && !check->c.training)
        status = error_set(&reason, STATUS_INVALID_ARGUMENT,
                           "%s is a gradient, and the case has training false",
                           cpattn_tensor_name(tensor));
    if (status == STATUS_OK)
        status = array_check(check, tensor, array, &reason);
    if (status == STATUS_OK)
        status = rows_walk(check, tensor_side(tensor), true, stretch_fill, &filling, &reason);
    if (status == STATUS_OK)
        padding_fill(&filling);
    return status_public(status, &reason, error);
}
