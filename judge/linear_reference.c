// SPDX-License-Identifier: Apache-2.0
#include "judge/linear_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/blas.h"
#include "judge/linear_middle.h"

// Number of features and tokens per block.
#define FEATURES_MAX 128
#define TOKENS_MAX   256

// ---- sums over ranks ----------------------------------------------------------------------------

// Adds the part of a rank to the sum over ranks. As in a collective of the dtype, each part is
// rounded, and the sum is rounded after each addition. A single part is rounded only if a bias
// follows.
static void part_add(const struct reference *r, bool biased, struct triple *part,
                     struct triple *sum)
{
    int ranks = r->l->world_size;
    double unit = linear_roundoff(r->l->dtype);
    if ((ranks > 1 || biased) && !r->rival)
        triple_round(r->l, part);
    for (int64_t i = 0; i < part->rows * part->columns; i++) {
        sum->value[i] += part->value[i];
        sum->twin[i] += part->twin[i];
        sum->bound[i] += part->bound[i] + (ranks + 1) * FP32 * fabs(part->value[i]) +
                         point_bound_added(ranks, unit, part->value[i], part->bound[i]);
    }
    if (ranks > 1 && !r->rival)
        triple_round_twin(r->l, sum);
}

static void bias_add(const struct reference *r, struct triple *y)
{
    double bias;
    for (int64_t column = 0; column < y->columns && r->l->bias; column++) {
        linear_draw(r->l, LINEAR_B2, 0, column, 1, &bias);
        for (int64_t i = column; i < y->rows * y->columns; i += y->columns) {
            y->value[i] += bias;
            y->twin[i] += bias;
            y->bound[i] += 2 * FP32 * fabs(bias);
        }
    }
}

// Computes the part of a rank in y and dx, in blocks of features.
static void part_compute(struct reference *r, int rank, struct middle *m, const int64_t *tokens,
                         struct triple *y, struct triple *dx)
{
    const struct linear_sizes *s = &r->sizes;
    int64_t count = share_count(s->middle, rank, r->l->world_size);
    triple_clear(y);
    triple_clear(dx);
    for (int64_t first = 0; first < count && !r->failed; first += FEATURES_MAX) {
        int64_t n = count - first < FEATURES_MAX ? count - first : FEATURES_MAX;
        struct linear_some some = {first, n, n};
        struct owned owned = owned_by(r, rank, &some);
        middle_resize(m, s->gates, y->rows, n);
        middle_draw_weights(r, m, owned);
        middle_compute(r, m, tokens, owned);
        struct factors forward = {
            .a = &m->a, .b = m->w2, .b_transposed = true, .b_columns = n, .sum = (double)count};
        struct factors backward = {
            .a = &m->dh, .b = m->w1, .b_columns = s->in, .sum = (double)(count * s->gates)};
        product_add(r, &forward, s->out * n, y);
        product_add(r, &backward, m->h.columns * s->in, dx);
    }
}

static struct reference reference_of(const struct linear *l, bool rival)
{
    blas_prepare();
    return (struct reference){.l = l, .sizes = linear_sizes(l), .rival = rival};
}

static enum status reference_end(struct reference *r, struct triple out[LINEAR_TENSORS],
                                 struct error *error)
{
    free(r->terms);
    if (!r->failed)
        return STATUS_OK;
    linear_free(out);
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the reference of a layer");
}

static void sums_compute(struct reference *r, struct linear_some tokens, struct triple *out)
{
    int64_t list[LINEAR_JUDGED_MAX];
    struct triple y = {0}, dx = {0};
    struct middle m = {0};
    int64_t in = r->l->training ? r->sizes.in : 0;
    r->failed = !triple_take(&out[LINEAR_Y], tokens.count, r->sizes.out) ||
                !triple_take(&out[LINEAR_DX], tokens.count, in) ||
                !triple_take(&y, tokens.count, r->sizes.out) ||
                !triple_take(&dx, tokens.count, in) ||
                !middle_take(r, &m, tokens.count, FEATURES_MAX);
    for (int64_t i = 0; i < tokens.count; i++)
        list[i] = linear_some_at(tokens, i);
    for (int rank = 0; rank < r->l->world_size && !r->failed; rank++) {
        part_compute(r, rank, &m, list, &y, &dx);
        part_add(r, r->l->bias, &y, &out[LINEAR_Y]);
        part_add(r, false, &dx, &out[LINEAR_DX]);
    }
    if (!r->failed) {
        bias_add(r, &out[LINEAR_Y]);
        triple_round(r->l, &out[LINEAR_Y]);
        triple_round(r->l, &out[LINEAR_DX]);
    }
    middle_free(&m);
    free(y.value);
    free(dx.value);
}

enum status linear_sums(const struct linear *l, struct linear_some tokens, bool rival,
                        struct triple out[LINEAR_TENSORS], struct error *error)
{
    struct reference r = reference_of(l, rival);
    memset(out, 0, LINEAR_TENSORS * sizeof(*out));
    sums_compute(&r, tokens, out);
    return reference_end(&r, out, error);
}

// ---- results of a rank's own features -----------------------------------------------------------

// Adds the sum over tokens of d to a bias gradient.
static void columns_add(const struct reference *r, const struct triple *d, struct triple *to)
{
    for (int64_t i = 0; i < d->rows * to->columns; i++) {
        int64_t column = i % to->columns;
        to->value[column] += d->value[i];
        to->twin[column] += d->twin[i];
        to->bound[column] += d->bound[i] + (double)r->l->tokens * FP32 * fabs(d->value[i]);
    }
}

static void gradients_add(struct reference *r, const struct middle *m, struct triple *out)
{
    const struct linear_sizes *s = &r->sizes;
    double sum = (double)r->l->tokens;
    double *zeros = calloc((size_t)(m->tokens * s->out) + 1, sizeof(double));
    struct triple dy = {m->tokens, s->out, m->dy, zeros, m->dy};
    struct factors first = {
        .a = &m->dh, .b = m->x, .a_transposed = true, .b_columns = s->in, .sum = sum};
    struct factors second = {
        .a = &m->a, .b = m->dy, .exact_first = true, .b_columns = s->out, .sum = sum};
    product_add(r, &first, m->tokens * s->in, &out[LINEAR_DW1]);
    product_add(r, &second, m->tokens * s->out, &out[LINEAR_DW2]);
    if (zeros && r->l->bias) {
        columns_add(r, &m->dh, &out[LINEAR_DB1]);
        columns_add(r, &dy, &out[LINEAR_DB2]);
    }
    r->failed = r->failed || !zeros;
    free(zeros);
}

// Copies the rows of a block to rows `first`... of a result.
static void rows_copy(const struct triple *from, int64_t first, struct triple *to)
{
    size_t bytes = (size_t)(from->rows * from->columns) * sizeof(double);
    memcpy(to->value + first * to->columns, from->value, bytes);
    memcpy(to->bound + first * to->columns, from->bound, bytes);
    memcpy(to->twin + first * to->columns, from->twin, bytes);
}

static void block_compute(struct reference *r, struct middle *m, struct owned owned, int64_t first,
                          int64_t end, struct triple *out)
{
    int64_t list[TOKENS_MAX], n = end - first;
    bool gradients = r->l->training;
    for (int64_t i = 0; i < n; i++)
        list[i] = first + i;
    middle_resize(m, r->sizes.gates, n, owned.some->count);
    middle_compute(r, m, list, owned);
    if (r->l->layer == LINEAR_COLUMN)
        rows_copy(&m->h, first, &out[LINEAR_Y]);
    if (r->l->layer == LINEAR_ROW && gradients)
        rows_copy(&m->da, first, &out[LINEAR_DX]);
    if (gradients)
        gradients_add(r, m, out);
}

static bool shares_take(const struct reference *r, int64_t features, struct triple *out)
{
    const struct linear *l = r->l;
    const struct linear_sizes *s = &r->sizes;
    int64_t wide = s->gates * features;
    bool training = l->training, bias = training && l->bias;
    bool first = s->in > 0, second = s->out > 0;
    return triple_take(&out[LINEAR_Y], l->layer == LINEAR_COLUMN ? l->tokens : 0, features) &&
           triple_take(&out[LINEAR_DX], l->layer == LINEAR_ROW && training ? l->tokens : 0,
                       features) &&
           triple_take(&out[LINEAR_DW1], training && first ? wide : 0, s->in) &&
           triple_take(&out[LINEAR_DB1], 1, bias && first ? wide : 0) &&
           triple_take(&out[LINEAR_DW2], training ? s->out : 0, features) &&
           triple_take(&out[LINEAR_DB2], 1, bias && second ? s->out : 0);
}

enum status linear_shares(const struct linear *l, int rank, struct linear_some features, bool rival,
                          struct triple out[LINEAR_TENSORS], struct error *error)
{
    struct reference r = reference_of(l, rival);
    struct middle m = {0};
    struct owned owned = owned_by(&r, rank, &features);
    memset(out, 0, LINEAR_TENSORS * sizeof(*out));
    r.failed =
        !shares_take(&r, features.count, out) || !middle_take(&r, &m, TOKENS_MAX, features.count);
    if (!r.failed) {
        middle_resize(&m, r.sizes.gates, 0, features.count);
        middle_draw_weights(&r, &m, owned);
    }
    for (int64_t first = 0; first < l->tokens && !r.failed; first += TOKENS_MAX) {
        int64_t end = first + TOKENS_MAX < l->tokens ? first + TOKENS_MAX : l->tokens;
        block_compute(&r, &m, owned, first, end, out);
    }
    for (int t = LINEAR_DW1; t <= LINEAR_DB2 && !r.failed; t++)
        triple_round(l, &out[t]);
    middle_free(&m);
    return reference_end(&r, out, error);
}
