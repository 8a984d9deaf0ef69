// SPDX-License-Identifier: Apache-2.0
// Hypotheses that need no attention, only the delivered and the right values.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/bias.h"

// ---- a factor -----------------------------------------------------------------------------------

static bool near(double x, double y)
{
    return fabs(x - y) < 2e-3 * fabs(y);
}

// If several numbers of the case are equal, such as the batch and the number of ranks, all of them
// are named. A factor of some rows is none of them.
void trial_factor_name(const struct trial *t, double factor, char *text, size_t size)
{
    const struct cp_case *c = t->c;
    enum report_tensor tensor = t->in->tensor;
    double world = c->world_size, group = (double)c->heads / c->kv_heads, scale = case_scale(c);
    bool shared = tensor == TENSOR_DBIAS && c->heads > 1 && !bias_has_heads(c);
    size_t length = 0;
    const struct {
        double value;
        const char *name;
        bool sensible, count; // possible for this case; a number of the case
    } names[] = {
        {-1, "the sign is wrong", true, false},
        {1 / scale, "the scale of the softmax is missing",
         tensor == TENSOR_DQ || tensor == TENSOR_DK, false},
        {scale, "the scale of the softmax is applied twice", true, false},
        {world, "the world size: it is added up once per rank", world > 1, true},
        {1 / world, "1 / world size: it is averaged over the ranks", world > 1, true},
        {group, "the query heads of a key head", group > 1, true},
        {1 / group, "1 / the query heads of a key head: they are averaged", group > 1, true},
        {M_LOG2E, "log2(e): a logarithm of base 2", true, false},
        {M_LN2, "ln(2): an exponential of base 2", true, false},
        {sqrt(c->head_dim_qk), "sqrt(head_dim_qk)", true, false},
        {sqrt(c->head_dim_v), "sqrt(head_dim_v)", true, false},
        {c->batch, "the batch", c->batch > 1, true},
        {1.0 / c->batch, "1 / batch: it is averaged over the sequences", c->batch > 1, true},
        {1.0 / c->heads, "1 / heads: it is averaged over the heads", shared, true},
    };
    *text = '\0';
    bool single = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !single && length < size; i++) {
        if (!names[i].sensible || !near(factor, names[i].value) ||
            (length > 0 && !names[i].count) || (t->in->some && names[i].count))
            continue;
        length += (size_t)snprintf(text + length, size - length, "%s%s", length ? "; or " : " (",
                                   names[i].name);
        single = !names[i].count;
    }
    if (length > 0 && length < size)
        snprintf(text + length, size - length, ")");
}

static void try_factor(struct trial *t)
{
    double *component = t->right, factor;
    char name[160], text[TRIAL_FACTOR_MAX];
    if (!trial_fit(t, &component, 1, NULL, &factor))
        return;
    bool sign = t->in->tensor == TENSOR_DSINK && near(factor, -1); // DIAGNOSIS_SINK_GRADIENT
    if (sign || fabs(factor) < 1e-3 || trial_is_one(t, factor))
        return;
    trial_factor_name(t, factor, name, sizeof(name));
    trial_factor_text(t, factor, text);
    trial_keep_lse(t);
    for (int i = 0; i < t->rows * t->dim; i++)
        t->tried[i] = factor * t->right[i];
    trial_offer(t, t->in->tensor == TENSOR_LSE ? DIAGNOSIS_LSE : DIAGNOSIS_FACTOR, t->tried,
                "%s is %s times what it should be%s", report_tensor_name(t->in->tensor), text,
                name);
}

// ---- rows ---------------------------------------------------------------------------------------

static const struct diagnosis_row *row_at(const struct trial *t, int row)
{
    return &t->in->rows[t->row_of[row]];
}

static double row_energy(const struct trial *t, const double *values, int row)
{
    double sum = 0;
    for (int k = 0; k < t->dim; k++)
        sum += values[row * t->dim + k] * values[row * t->dim + k];
    return sum;
}

bool trial_rows_name(const struct trial *t, const bool *is_bad, char *text, size_t size)
{
    int bad = 0, first = -1, of_last = 0, bad_of_last = 0;
    for (int row = 0; row < t->rows; row++) {
        bool last = row_at(t, row)->sequence == t->c->batch - 1;
        first = is_bad[row] && first < 0 ? row : first;
        bad += is_bad[row];
        of_last += last;
        bad_of_last += last && is_bad[row];
    }
    bool whole = t->c->batch > 1 && bad == bad_of_last && bad == of_last && of_last < t->rows;
    const struct diagnosis_row *row = row_at(t, first < 0 ? 0 : first);
    if (whole)
        snprintf(text, size, "in all %d examined rows of sequence %d, the last one", bad,
                 row->sequence);
    else if (bad == t->rows)
        snprintf(text, size, "in all %d examined rows", bad);
    else
        snprintf(text, size,
                 "in %d of %d examined rows, such as sequence %d, head %d, position %lld", bad,
                 t->rows, row->sequence, row->head, (long long)row->position);
    return whole || bad == t->rows;
}

static void try_zeros(struct trial *t)
{
    bool bad[DIAGNOSIS_ROWS_MAX] = {false}, blind = t->in->tensor == TENSOR_OUT;
    int zeros = 0;
    char where[120];
    memcpy(t->tried, t->right, (size_t)(t->rows * t->dim) * sizeof(double));
    trial_keep_lse(t);
    for (int row = 0; row < t->rows; row++) {
        if (row_energy(t, t->got, row) > 0 || row_energy(t, t->right, row) == 0)
            continue;
        if (!isnan(t->lse_got[row])) // it may be that of a row that sees no key
            t->lse_tried[row] = t->lse_got[row];
        memset(t->tried + row * t->dim, 0, (size_t)t->dim * sizeof(double));
        bad[row] = true;
        blind = blind && t->lse_got[row] == -INFINITY;
        zeros++;
    }
    if (zeros == 0)
        return;
    t->partly = !trial_rows_name(t, bad, where, sizeof(where));
    trial_offer(t, DIAGNOSIS_ZERO, t->tried, "%s is zero %s%s", report_tensor_name(t->in->tensor),
                where, blind ? "; their LSE is -infinity: they see no key" : "");
    t->partly = false;
}

// The same dims are zero in all rows.
static void try_zero_dims(struct trial *t)
{
    int first = -1, last = -1, zeros = 0;
    memcpy(t->tried, t->right, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int k = 0; k < t->dim; k++) {
        double got = 0, right = 0;
        for (int row = 0; row < t->rows; row++) {
            got += fabs(t->got[row * t->dim + k]);
            right += fabs(t->right[row * t->dim + k]);
        }
        if (got > 0 || right == 0)
            continue;
        for (int row = 0; row < t->rows; row++)
            t->tried[row * t->dim + k] = 0;
        first = first < 0 ? k : first;
        last = k;
        zeros++;
    }
    if (zeros == 0 || zeros == t->dim)
        return;
    trial_keep_lse(t);
    trial_offer(t, DIAGNOSIS_ZERO, t->tried, "%s is zero in %d dims%s, %d to %d",
                report_tensor_name(t->in->tensor), zeros,
                t->in->alone ? "" : " of every examined row", first, last);
}

// Rows with the right values of another row.
static void try_swapped(struct trial *t)
{
    int moved = 0, to = 0, from = 0, moved_row = -1;
    memcpy(t->tried, t->right, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int row = 0; row < t->rows && t->dim > 1; row++)
        for (int other = 0; other < t->rows; other++) {
            double own = 0, foreign = 0;
            for (int k = 0; k < t->dim; k++) {
                double got = t->got[row * t->dim + k];
                own += pow(got - t->right[row * t->dim + k], 2);
                foreign += pow(got - t->right[other * t->dim + k], 2);
            }
            bool is_other = own > 0 && foreign <= 0.05 * fmin(own, row_energy(t, t->got, row));
            if (row == other || !is_other || moved_row == row)
                continue;
            moved_row = row;
            memcpy(t->tried + row * t->dim, t->right + other * t->dim,
                   (size_t)t->dim * sizeof(double));
            moved++;
            to = row;
            from = other;
        }
    if (moved == 0)
        return;
    trial_keep_lse(t);
    trial_offer(t, DIAGNOSIS_SHIFTED_ROWS, t->tried,
                "the row of sequence %d, head %d, position %lld of %s is that of sequence %d, "
                "head %d, position %lld (%d such rows of %d)",
                row_at(t, to)->sequence, row_at(t, to)->head, (long long)row_at(t, to)->position,
                report_tensor_name(t->in->tensor), row_at(t, from)->sequence, row_at(t, from)->head,
                (long long)row_at(t, from)->position, moved, t->rows);
}

// Returns the dim of the right values that is nearest to dim `k` of the delivered values.
static int nearest_dim(const struct trial *t, int k)
{
    int best = k;
    double least = INFINITY;
    for (int i = 0; i < t->dim; i++) {
        double sum = 0;
        for (int row = 0; row < t->rows && sum < least; row++)
            sum += pow(t->got[row * t->dim + k] - t->right[row * t->dim + i], 2);
        if (sum < least) {
            least = sum;
            best = i;
        }
    }
    return best;
}

// The dims of all rows are in another order.
static void try_dims_moved(struct trial *t)
{
    int moved = 0, to = 0, from = 0;
    bool taken[HEAD_DIM_MAX] = {false};
    for (int k = 0; k < t->dim && t->rows > 3; k++) {
        int i = nearest_dim(t, k);
        if (taken[i])
            return;
        taken[i] = true;
        for (int row = 0; row < t->rows; row++)
            t->tried[row * t->dim + k] = t->right[row * t->dim + i];
        to = i != k && moved == 0 ? k : to;
        from = i != k && moved == 0 ? i : from;
        moved += i != k;
    }
    if (moved < 2)
        return;
    trial_keep_lse(t);
    trial_offer(t, DIAGNOSIS_LAYOUT, t->tried,
                "%d dims of %s are in another order: dim %d is dim %d", moved,
                report_tensor_name(t->in->tensor), to, from);
}

// Returns the position of the token whose row is delivered for `position`.
typedef int64_t taken_from(const struct panel *p, int64_t position, int with);

static int64_t shifted(const struct panel *p, int64_t position, int with)
{
    int64_t from = position + with, most = p->setup.side == SIDE_Q ? p->queries : p->keys;
    return from < 0 || from >= most ? position : from;
}

// The token at the same place in the memory of rank `with`; ~with: in the other chunk of the rank.
static int64_t elsewhere(const struct panel *p, int64_t position, int with)
{
    const struct chunks *x = p->setup.side == SIDE_Q ? &p->q_chunks : &p->k_chunks;
    int chunk = chunks_find(x, position), half = x->halves[chunk];
    int other = shard_chunk_of(p->c, with < 0 ? ~with : with, with < 0 ? 1 - half : half);
    int64_t from = x->begin[other] + position - x->begin[chunk];
    return from < x->begin[other + 1] ? from : position;
}

// Fills t->tried with rows of other tokens, which need not be examined rows.
static bool evaluate_taken(struct trial *t, taken_from *from, int with)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct panel_setup setup = t->panels[i].setup;
        int64_t positions[DIAGNOSIS_ROWS_MAX];
        for (int row = 0; row < setup.count; row++)
            positions[row] = from(&t->panels[i], setup.positions[row], with);
        setup.positions = positions;
        if (trial_over(t) || !trial_evaluate_other(t, i, &setup, true, t->tried))
            return false;
    }
    return true;
}

static void try_shifted(struct trial *t, int shift)
{
    if (!evaluate_taken(t, shifted, shift))
        return;
    trial_offer(t, DIAGNOSIS_SHIFTED_ROWS, t->tried, "the rows of %s are those of the tokens %s",
                report_tensor_name(t->in->tensor), shift < 0 ? "before them" : "after them");
}

#define PLACES_RANKS_MAX 8 // largest world size for which the rows of other ranks are tried

// Offers each hypothesis with the LSE of the other rows, then with the right one.
static void try_elsewhere(struct trial *t)
{
    const char *name = report_tensor_name(t->in->tensor);
    int world = t->c->world_size, own = t->in->rank;
    if (world == 1 || own < 0)
        return;
    if (shard_chunks_per_rank(t->c) > 1 && evaluate_taken(t, elsewhere, ~own))
        for (int i = 0; i < 2; i++, trial_keep_lse(t))
            trial_offer(t, DIAGNOSIS_SHIFTED_ROWS, t->tried,
                        "the rows of %s of the two chunks of rank %d are exchanged", name, own);
    for (int rank = 0; rank < world && world <= PLACES_RANKS_MAX; rank++)
        if (rank != own && evaluate_taken(t, elsewhere, rank))
            for (int i = 0; i < 2; i++, trial_keep_lse(t))
                trial_offer(t, DIAGNOSIS_SHIFTED_ROWS, t->tried,
                            "the rows of %s are those of rank %d at the same places", name, rank);
}

// ---- elements -----------------------------------------------------------------------------------

static int digits_of(enum case_dtype dtype)
{
    return dtype == DTYPE_BF16 ? 8 : dtype == DTYPE_FP16 ? 11 : 24;
}

// Rounding error of an element: a unit in its last place, or the usual error in the rows if that is
// larger.
static double rounding_of(const struct trial *t, int at)
{
    double usual = sqrt(t->noise / (t->rows * t->dim));
    return fmax(usual, ldexp(fabs(t->right[at]), -digits_of(t->c->dtype)));
}

static void try_element(struct trial *t)
{
    int worst = -1, count = t->rows * t->dim;
    double most = 0;
    for (int i = 0; i < count; i++)
        if (fabs(t->got[i] - t->right[i]) > most) {
            most = fabs(t->got[i] - t->right[i]);
            worst = i;
        }
    if (worst < 0 || t->dim == 1 || most < 12 * rounding_of(t, worst))
        return;
    memcpy(t->tried, t->right, (size_t)count * sizeof(double));
    t->tried[worst] = t->got[worst];
    const struct diagnosis_row *row = row_at(t, worst / t->dim);
    trial_keep_lse(t);
    trial_offer(t, DIAGNOSIS_ELEMENT, t->tried,
                "one element of %s is %.6g instead of %.6g: sequence %d, head %d, position %lld, "
                "dim %d",
                report_tensor_name(t->in->tensor), t->got[worst], t->right[worst], row->sequence,
                row->head, (long long)row->position, worst % t->dim);
}

// True if a value with `digits` digits is as good as exact.
static bool is_short(double x, double unit)
{
    double rest = x / unit;
    return fabs(rest - round(rest)) < 1e-4;
}

// Truncated results are on average half a unit in the last place nearer to zero, except values that
// need no rounding, such as rows that see one key.
static void try_truncated(struct trial *t)
{
    int digits = digits_of(t->c->dtype);
    double sum = 0, count = 0;
    for (int i = 0; i < t->rows * t->dim; i++) {
        int exponent;
        frexp(t->right[i], &exponent);
        double unit = copysign(ldexp(1, exponent - digits), t->right[i]);
        t->tried[i] = t->right[i];
        if (t->right[i] == 0 || is_short(t->right[i], unit))
            continue;
        t->tried[i] -= unit / 2;
        sum += fmax(-2, fmin(2, (t->got[i] - t->right[i]) / unit));
        count++;
    }
    if (count < 256 || fabs(sum / count + 0.5) > 0.1)
        return;
    trial_keep_lse(t);
    trial_offer(t, DIAGNOSIS_TRUNCATED, t->tried,
                "%s is cut off to the dtype instead of rounded: on average its elements are %.2f "
                "units in the last place too near to zero",
                report_tensor_name(t->in->tensor), -sum / count);
}

// Moments of the errors of elements, in units in the last place towards zero (y), by the size of
// the element in such units (x).
struct moments {
    double count, x, y, xx, xy, yy;
};

static struct moments moments_of(const struct trial *t)
{
    int digits = digits_of(t->c->dtype);
    struct moments m = {0};
    for (int i = 0; i < t->rows * t->dim; i++) {
        int exponent;
        frexp(t->right[i], &exponent);
        double unit = copysign(ldexp(1, exponent - digits), t->right[i]), x = t->right[i] / unit;
        double y = (t->right[i] - t->got[i]) / unit;
        if (t->right[i] == 0 || is_short(t->right[i], unit) || fabs(y) > 8)
            continue;
        m.count++;
        m.x += x;
        m.y += y;
        m.xx += x * x;
        m.xy += x * y;
        m.yy += y * y;
    }
    return m;
}

#define CUT_COUNT   512 // minimum number of elements
#define CUT_CERTAIN 10  // minimum shift in standard errors

// Elements that are cut off are too near to zero by half a unit, whatever their size. Those with a
// wrong factor are off in proportion to it.
void cut_find(const struct trial *t, struct finding *result)
{
    struct moments m = moments_of(t);
    if (m.count < CUT_COUNT || t->in->tensor == TENSOR_LSE)
        return;
    double shift = m.y / m.count, variance = m.yy / m.count - shift * shift;
    double rise = (m.count * m.xy - m.x * m.y) / (m.count * m.xx - m.x * m.x);
    bool certain = shift > CUT_CERTAIN * sqrt(variance / m.count);
    bool constant = shift - rise * m.x / m.count > 0.25;
    if (!certain || !constant || fabs(shift - 0.5) > 0.1)
        return;
    result->kind = DIAGNOSIS_TRUNCATED;
    result->diagnosis =
        (struct diagnosis){.tensor = t->in->tensor, .explained = shift * shift * m.count / m.yy};
    snprintf(result->diagnosis.text, sizeof(result->diagnosis.text),
             "%s is cut off to the dtype instead of rounded: on average its elements are %.2f "
             "units in the last place too near to zero",
             report_tensor_name(t->in->tensor), shift);
}

// ---- LSE of rows that see nothing ---------------------------------------------------------------

static void try_empty(struct trial *t)
{
    int row;
    if (t->in->tensor != TENSOR_LSE)
        return;
    memcpy(t->tried, t->right, (size_t)t->rows * sizeof(double));
    for (row = 0; row < t->rows; row++)
        if (t->right[row] == -INFINITY && t->got[row] != -INFINITY)
            t->tried[row] = t->got[row];
    for (row = 0; row < t->rows && t->tried[row] == t->right[row]; row++)
        ;
    if (row == t->rows)
        return;
    trial_offer(t, DIAGNOSIS_EMPTY_ROW, t->tried,
                "the LSE of a row that sees no key is %.4g instead of -infinity (head %d, "
                "position %lld)",
                t->got[row], row_at(t, row)->head, (long long)row_at(t, row)->position);
}

// True if a row sees nothing, or nothing sees it. Needs p->p of the right attention.
static bool meets_nothing(const struct trial *t, int row)
{
    int i = 0;
    while (row >= t->panel_first[i + 1])
        i++;
    const struct panel *p = &t->panels[i];
    const double *weights = p->p + (row - t->panel_first[i]) * p->columns;
    int64_t column = 0;
    while (column < p->columns && weights[column] == 0)
        column++;
    return column == p->columns;
}

// A row that sees nothing has to be zero.
void try_filled(struct trial *t)
{
    bool bad[DIAGNOSIS_ROWS_MAX] = {false};
    char where[120];
    int filled = 0;
    memcpy(t->tried, t->right, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int row = 0; row < t->rows && t->dim > 1; row++) {
        if (!meets_nothing(t, row) || row_energy(t, t->got, row) == 0)
            continue;
        memcpy(t->tried + row * t->dim, t->got + row * t->dim, (size_t)t->dim * sizeof(double));
        bad[row] = true;
        filled++;
    }
    if (filled == 0)
        return;
    trial_keep_lse(t);
    trial_rows_name(t, bad, where, sizeof(where));
    trial_offer(t, DIAGNOSIS_EMPTY_ROW, t->tried,
                "%s must be zero where nothing is seen; it is not zero %s",
                report_tensor_name(t->in->tensor), where);
}

// LSE with the same error in all rows.
static void try_offset(struct trial *t)
{
    double sum = 0, count = 0;
    for (int row = 0; row < t->rows; row++)
        if (isfinite(t->got[row]) && isfinite(t->right[row])) {
            sum += t->got[row] - t->right[row];
            count++;
        }
    if (t->in->tensor != TENSOR_LSE || count < 4)
        return;
    double offset = sum / count, squares = 0;
    for (int row = 0; row < t->rows; row++)
        if (isfinite(t->got[row]) && isfinite(t->right[row]))
            squares += pow(t->got[row] - t->right[row] - offset, 2);
    if (squares > 0.01 * count * offset * offset)
        return;
    for (int row = 0; row < t->rows; row++)
        t->tried[row] = t->right[row] + offset;
    trial_offer(t, DIAGNOSIS_LSE, t->tried, "the LSE of every row is too %s by %.5g%s",
                offset > 0 ? "large" : "small", fabs(offset),
                near(fabs(offset), M_LN2) ? ", ln(2): a sum that is doubled or halved" : "");
}

// LSE that is -infinity, as in rows that see no key.
static void try_no_keys(struct trial *t)
{
    bool bad[DIAGNOSIS_ROWS_MAX] = {false};
    char where[120];
    int lost = 0;
    memcpy(t->tried, t->right, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int row = 0; row < t->rows && t->in->tensor == TENSOR_LSE; row++) {
        bad[row] = t->got[row] == -INFINITY && t->right[row] > -INFINITY;
        t->tried[row] = bad[row] ? t->got[row] : t->right[row];
        lost += bad[row];
    }
    if (lost == 0)
        return;
    t->partly = !trial_rows_name(t, bad, where, sizeof(where));
    trial_offer(t, DIAGNOSIS_ZERO, t->tried, "lse is -infinity %s: they see no key", where);
    t->partly = false;
}

// LSE of another base, in some rows or in all.
static void try_base(struct trial *t, double factor)
{
    bool bad[DIAGNOSIS_ROWS_MAX] = {false};
    char name[160], text[TRIAL_FACTOR_MAX], where[120] = "";
    int of_base = 0, wrong = 0;
    memcpy(t->tried, t->right, (size_t)t->rows * sizeof(double));
    for (int row = 0; row < t->rows && t->in->tensor == TENSOR_LSE; row++) {
        if (!trial_row_is_wrong(t, row))
            continue;
        t->tried[row] = factor * t->right[row];
        bad[row] = pow(t->got[row] - t->tried[row], 2) < TRIAL_WRONG * t->row_noise[row];
        of_base += bad[row];
        wrong++;
    }
    if (wrong == 0 || of_base < wrong)
        return;
    t->partly = wrong < t->rows;
    if (t->partly)
        trial_rows_name(t, bad, where, sizeof(where));
    trial_factor_name(t, factor, name, sizeof(name));
    trial_factor_text(t, factor, text);
    trial_offer(t, DIAGNOSIS_LSE, t->tried, "lse is %s times what it should be%s%s%s", text, name,
                t->partly ? " " : "", where);
    t->partly = false;
}

void try_shifts(struct trial *t)
{
    try_shifted(t, -1);
    try_shifted(t, 1);
    try_elsewhere(t);
}

void try_plain(struct trial *t)
{
    try_empty(t);
    try_filled(t);
    try_no_keys(t);
    try_zeros(t);
    try_zero_dims(t);
    try_element(t);
    try_swapped(t);
    try_dims_moved(t);
    try_offset(t);
    try_base(t, M_LOG2E);
    try_base(t, M_LN2);
    try_factor(t);
    try_truncated(t);
}

void try_plain_values(struct trial *t)
{
    try_factor(t);
}
