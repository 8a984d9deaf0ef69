// SPDX-License-Identifier: Apache-2.0
#include "judge/linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/linear_view.h"

// ---- inputs -------------------------------------------------------------------------------------

#define PIECE 256

// Draws `count` elements of a row of the whole tensor, from `first` on, into the memory of a rank,
// from its element `at` on.
static void row_fill(const struct linear *l, enum linear_tensor tensor, int64_t row, int64_t first,
                     int64_t count, void *data, int64_t at)
{
    int bytes = l->dtype == DTYPE_FP32 ? 4 : 2;
    double drawn[PIECE];
    float values[PIECE];
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        linear_draw(l, tensor, row, first + i, n, drawn);
        for (int64_t k = 0; k < n; k++)
            values[k] = (float)drawn[k];
        dtype_write(l->dtype, values, n, (char *)data + (at + i) * bytes);
    }
}

void linear_fill(const struct linear *l, int rank, enum linear_tensor tensor, void *data)
{
    struct linear_shape shape = linear_shape(l, rank, tensor);
    struct linear_axis rows, columns;
    linear_input_axes(l, rank, tensor, &rows, &columns);
    for (int64_t i = 0; i < shape.rows; i++) {
        int64_t row = i / rows.count * rows.stride + rows.base + i % rows.count;
        for (int64_t at = 0; at < shape.columns; at += columns.count)
            row_fill(l, tensor, row, at / columns.count * columns.stride + columns.base,
                     columns.count, data, i * shape.columns + at);
    }
}

// ---- how much is judged -------------------------------------------------------------------------

static struct linear_some tokens_judged(const struct linear *l, int rank)
{
    struct linear_share held = linear_view_tokens(l, rank);
    return (struct linear_some){held.first, held.count, linear_judged_tokens(l, held.count)};
}

static struct linear_some features_judged(const struct linear *l, int rank)
{
    int64_t own = linear_share(linear_sizes(l).middle, rank, l->world_size).count;
    return (struct linear_some){0, own, linear_judged_features(l, own)};
}

// ---- the rules ----------------------------------------------------------------------------------

// The error is tested for the other GELU only if that differs by this many standard deviations of
// the noise: a few roundings may have most of the noise in its direction.
#define RIVAL_NOISE 10
#define FEW         64 // with fewer roundings, the twin's RMS is not a reliable limit

#define SLOPE_DEVIATIONS 4

struct sums {
    double error2, twin2, bound2, right2, along; // sums of squares; along: of error * right
    // Sums of (other GELU - right)^2 and of error * (other GELU - right).
    double rival2, rival_along;
    // Sums over groups of elements: of (twin's error * right)^2, and of its square.
    double chance2, chance4;
};

static void element_judge(const struct linear_view *v, const struct triple *right, int64_t index,
                          double got, struct sums *sums, struct figures *f)
{
    double error = got - right->value[index], twin = right->twin[index] - right->value[index];
    double bound = right->bound[index] * (1 + 1e-6) + 1e-300;
    double used = fabs(error) / bound;
    if (!isfinite(got)) {
        f->nonfinite++;
        f->broken |= RULE_NONFINITE;
        used = INFINITY;
    } else {
        sums->error2 += error * error;
        sums->along += error * right->value[index];
        f->max_abs = fmax(f->max_abs, fabs(error));
    }
    sums->right2 += right->value[index] * right->value[index];
    sums->bound2 += bound * bound;
    sums->twin2 += twin * twin;
    f->worst_element = fmax(f->worst_element, used);
    if (used <= 1 || f->mismatches++ > 0)
        return;
    struct linear_place at = linear_view_place(v, index / right->columns, index % right->columns);
    f->broken |= RULE_ELEMENT;
    f->first_bad = (struct element){.position = at.row, .dim = (int32_t)at.column};
    f->first_bad_got = got;
    f->first_bad_expected = right->value[index];
}

// The number of terms of the longest sums in fp32: over features, then over tokens.
static double terms_of(const struct linear *l)
{
    struct linear_sizes s = linear_sizes(l);
    int64_t most = s.in > s.out ? s.in : s.out;
    most = most > s.middle ? most : s.middle;
    return (double)(l->training ? most + l->tokens : most);
}

// The relative RMS error that sums in fp32, and functions of them, add to that of the twin.
static double fp32_rel(const struct linear *l)
{
    return 0x1p-24 * sqrt(terms_of(l)) + (l->layer == LINEAR_MLP ? 0x1p-22 : 0);
}

// Number of independent roundings behind `judged` elements: in an mlp at most those between the
// layers.
static double roundings_of(const struct linear_view *v, double judged)
{
    struct linear_sizes s = linear_sizes(v->l);
    bool sum = linear_view_is_sum(v->l, v->tensor);
    double between = (double)v->some.count * (double)(sum ? s.middle : v->l->tokens);
    return judged < between || v->l->layer != LINEAR_MLP ? judged : between;
}

// Limit of the error's slope against the right values, beyond chance. Rounding to nearest has no
// slope.
static double slope_honest(const struct linear *l)
{
    return l->dtype == DTYPE_BF16 ? 3e-4 : l->dtype == DTYPE_FP16 ? 1e-4 : 3e-6 + fp32_rel(l);
}

// The slope that rounding causes by chance in a tensor of an mlp. A rounding between the layers
// changes all elements of one token, or in a weight gradient all elements of one feature. So only
// these groups of elements have independent errors.
static double slope_chance(const struct sums *sums)
{
    if (sums->chance4 == 0)
        return 0;
    double groups = fmax(1, sums->chance2 * sums->chance2 / sums->chance4);
    return (1 + 6 / sqrt(groups)) * sqrt(sums->chance2) / sums->right2;
}

static double slope_limit(const struct linear_view *v, const struct sums *sums, double n,
                          const struct figures *f)
{
    if (n < FEW)
        return INFINITY;
    double chance = v->l->layer == LINEAR_MLP ? slope_chance(sums) : f->rmse_limit / sqrt(n);
    return slope_honest(v->l) + SLOPE_DEVIATIONS * chance;
}

static void rules_apply(const struct linear_view *v, const struct sums *sums, struct figures *f)
{
    double n = roundings_of(v, (double)f->judged);
    if (f->judged == 0 || sums->right2 == 0)
        return;
    f->rmse_rel = sqrt(sums->error2 / sums->right2);
    f->twin_rel = sqrt(sums->twin2 / sums->right2);
    f->rmse_limit = n < FEW ? sqrt(sums->bound2 / sums->right2)
                            : (1.5 + 6 / sqrt(n)) * f->twin_rel + fp32_rel(v->l);
    f->slope = sums->along / sums->right2;
    f->slope_limit = slope_limit(v, sums, n, f);
    if (f->rmse_rel > f->rmse_limit)
        f->broken |= RULE_RMSE;
    if (fabs(f->slope) > f->slope_limit)
        f->broken |= RULE_SLOPE;
    // The component of the error towards the other definition of GELU, if it exceeds the noise.
    double noise = sqrt(sums->error2 / n);
    if (sums->rival2 > 0 && RIVAL_NOISE * noise < 0.5 * sqrt(sums->rival2) &&
        sums->rival_along > 0.5 * sums->rival2)
        f->broken |= RULE_SLOPE;
}

// Adds a group of `count` elements, `step` apart. By chance the twin's error may be orthogonal to
// the right values, so its size gives a minimum.
static void group_add(const struct triple *right, int64_t first, int64_t step, int64_t count,
                      struct sums *sums)
{
    double along = 0, twin2 = 0, right2 = 0;
    for (int64_t k = 0; k < count; k++) {
        double value = right->value[first + k * step], twin = right->twin[first + k * step] - value;
        along += twin * value;
        twin2 += twin * twin;
        right2 += value * value;
    }
    double square = fmax(along * along, twin2 * right2 / (double)count);
    sums->chance2 += square;
    sums->chance4 += square * square;
}

// A group is a row. In gradients of the second layer's weights and of biases it is a column, which
// belongs to one feature.
static void groups_add(enum linear_tensor tensor, const struct triple *right, struct sums *sums)
{
    bool columns = tensor == LINEAR_DW2 || tensor == LINEAR_DB1 || tensor == LINEAR_DB2;
    int64_t groups = columns ? right->columns : right->rows;
    for (int64_t i = 0; i < groups; i++)
        if (columns)
            group_add(right, i, right->columns, right->rows, sums);
        else
            group_add(right, i * right->columns, 1, right->columns, sums);
}

// Judges one result. `got`: the rank's elements at the places of the reference.
static void tensor_judge(const struct linear_view *v, const struct triple *right,
                         const struct triple *rival, const double *got, struct figures *f)
{
    struct sums sums = {0};
    struct linear_shape shape = linear_shape(v->l, v->rank, v->tensor);
    f->elements = shape.rows * shape.columns;
    f->judged = right->rows * right->columns;
    for (int64_t i = 0; i < f->judged; i++) {
        element_judge(v, right, i, got[i], &sums, f);
        double way = rival->value ? rival->value[i] - right->value[i] : 0;
        sums.rival2 += way * way;
        sums.rival_along += way * (isfinite(got[i]) ? got[i] - right->value[i] : 0);
    }
    groups_add(v->tensor, right, &sums);
    rules_apply(v, &sums, f);
}

// ---- both halves --------------------------------------------------------------------------------

struct job {
    const struct linear_tools *tools;
    void *queue;
    const struct linear *l;
    int rank;
    const void *const *tensors;
    struct figures *figures;
};

static bool has_rival(const struct linear *l)
{
    return l->layer == LINEAR_MLP && l->activation != ACTIVATION_SWIGLU;
}

typedef enum status compute_fn(const struct job *j, struct linear_some some, bool rival,
                               struct triple out[LINEAR_TENSORS], struct error *error);

static enum status compute_sums(const struct job *j, struct linear_some some, bool rival,
                                struct triple out[LINEAR_TENSORS], struct error *error)
{
    return j->tools->sums(j->queue, j->l, some, rival, out, error);
}

static enum status compute_shares(const struct job *j, struct linear_some some, bool rival,
                                  struct triple out[LINEAR_TENSORS], struct error *error)
{
    return j->tools->shares(j->queue, j->l, j->rank, some, rival, out, error);
}

static enum status result_judge(const struct job *j, const struct linear_view *view,
                                const struct triple *right, const struct triple *rival,
                                struct error *error)
{
    double *got = malloc((size_t)(right->rows * right->columns) * sizeof(*got));
    if (!got)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the judge of a layer");
    enum status status = j->tools->read(j->queue, view, right->rows, right->columns, got, error);
    if (status == STATUS_OK)
        tensor_judge(view, right, rival, got, &j->figures[view->tensor]);
    free(got);
    return status;
}

static enum status half_judge(const struct job *j, struct linear_some some, compute_fn *compute,
                              struct error *error)
{
    struct triple right[LINEAR_TENSORS] = {0}, rival[LINEAR_TENSORS] = {0};
    bool sum = compute == compute_sums;
    enum status status = compute(j, some, false, right, error);
    if (status == STATUS_OK && has_rival(j->l))
        status = compute(j, some, true, rival, error);
    for (int t = LINEAR_Y; t < LINEAR_TENSORS && status == STATUS_OK; t++) {
        struct linear_view view = {j->l, j->rank, (enum linear_tensor)t, some, j->tensors[t]};
        if (right[t].rows * right[t].columns > 0 && j->tensors[t] &&
            linear_view_is_sum(j->l, view.tensor) == sum)
            status = result_judge(j, &view, &right[t], &rival[t], error);
    }
    linear_free(right);
    linear_free(rival);
    return status;
}

enum status linear_judge_where(const struct linear_tools *tools, void *queue,
                               const struct linear *l, int rank,
                               const void *const tensors[LINEAR_TENSORS],
                               struct figures figures[LINEAR_TENSORS], struct error *error)
{
    const struct job j = {tools, queue, l, rank, tensors, figures};
    struct linear_some tokens = tokens_judged(l, rank), features = features_judged(l, rank);
    bool sums = l->training || l->layer != LINEAR_COLUMN;
    bool shares = l->training || l->layer == LINEAR_COLUMN;
    enum status status = STATUS_OK;
    if (sums && tokens.count > 0)
        status = half_judge(&j, tokens, compute_sums, error);
    // A rank without features still has the gradient of the second bias.
    if (status == STATUS_OK && shares)
        status = half_judge(&j, features, compute_shares, error);
    return status;
}

enum status linear_judge(const struct linear *l, int rank,
                         const void *const tensors[LINEAR_TENSORS],
                         struct figures figures[LINEAR_TENSORS], struct error *error)
{
    return linear_judge_where(&linear_tools_host, NULL, l, rank, tensors, figures, error);
}

// ---- on the host --------------------------------------------------------------------------------

static enum status host_fill(void *queue, const struct linear *l, int rank,
                             enum linear_tensor tensor, void *data, struct error *error)
{
    (void)queue;
    (void)error;
    linear_fill(l, rank, tensor, data);
    return STATUS_OK;
}

static enum status host_sums(void *queue, const struct linear *l, struct linear_some tokens,
                             bool rival, struct triple out[LINEAR_TENSORS], struct error *error)
{
    (void)queue;
    return linear_sums(l, tokens, rival, out, error);
}

static enum status host_shares(void *queue, const struct linear *l, int rank,
                               struct linear_some features, bool rival,
                               struct triple out[LINEAR_TENSORS], struct error *error)
{
    (void)queue;
    return linear_shares(l, rank, features, rival, out, error);
}

static enum status host_read(void *queue, const struct linear_view *v, int64_t rows,
                             int64_t columns, double *values, struct error *error)
{
    (void)queue;
    (void)error;
    for (int64_t row = 0; row < rows; row++)
        linear_view_read(v, row, columns, values + row * columns);
    return STATUS_OK;
}

const struct linear_tools linear_tools_host = {host_fill, host_sums, host_shares, host_read};
