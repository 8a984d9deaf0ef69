// SPDX-License-Identifier: Apache-2.0
// Hypotheses that an intermediate value was rounded to fewer bits than any kernel has to. The
// inputs determine the value before its rounding, so the rows can be recomputed with this rounding.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"

static bool backward(const struct trial *t)
{
    return t->in->tensor != TENSOR_OUT && t->in->tensor != TENSOR_LSE;
}

static const char *dtype_name(enum case_dtype dtype)
{
    return case_choice_name(case_dtype_choices, (int)dtype);
}

// ---- logits and weights -------------------------------------------------------------------------

struct rounding {
    enum variant_rounding what;
    enum case_dtype to;
};

static struct variant rounded(const struct panel *p, const void *with)
{
    const struct rounding *x = with;
    struct variant t = variant_none(p);
    t.rounding = x->what;
    t.rounded_to = x->to;
    return t;
}

static void try_logits(struct trial *t, enum case_dtype to)
{
    static const struct {
        enum variant_rounding what;
        bool forward; // only in the forward pass
        const char *text, *before;
    } tries[] = {{VARIANT_ROUND_PRODUCTS, false, "the products of Q and K are", ""},
                 {VARIANT_ROUND_LOGITS, false, "the logits are", ""},
                 {VARIANT_ROUND_EXPONENTS, true, "logit - maximum is", " before the exponential"},
                 {VARIANT_ROUND_SUMMED, true, "the weights are",
                  " before they are added up to the denominator"}};
    for (size_t i = 0; i < sizeof(tries) / sizeof(*tries) && !trial_over(t); i++) {
        struct rounding with = {tries[i].what, to};
        if (tries[i].forward && backward(t))
            continue;
        trial_evaluate(t, rounded, &with);
        trial_offer(t, DIAGNOSIS_ROUNDED, t->tried, "%s%s rounded to %s%s",
                    backward(t) ? "in the backward pass " : "", tries[i].text, dtype_name(to),
                    tries[i].before);
    }
}

static void try_fp8(struct trial *t)
{
    if (t->in->tensor != TENSOR_OUT || trial_over(t))
        return;
    trial_evaluate(t, rounded, &(struct rounding){VARIANT_ROUND_FP8, DTYPE_BF16});
    trial_offer(t, DIAGNOSIS_ROUNDED, t->tried, "the weights P are rounded to fp8 (e4m3)");
}

// ---- other products -----------------------------------------------------------------------------

// Changes the rows' Q before it is multiplied with K. `with`: a factor, or a number of dims.
typedef void change_query(const struct trial *t, double with, enum case_dtype to, double *query);

static void query_rounded(const struct trial *t, double factor, enum case_dtype to, double *query)
{
    for (int k = 0; k < t->c->head_dim_qk; k++)
        query[k] = variant_round(to, query[k] * factor) / factor;
}

static void query_shortened(const struct trial *t, double dims, enum case_dtype to, double *query)
{
    (void)to;
    for (int k = (int)dims; k < t->c->head_dim_qk; k++)
        query[k] = 0;
}

// Fills t->tried with rows of out, lse or dq from products with changed Q. False if memory is
// short.
static bool evaluate_query(struct trial *t, change_query *change, double with, enum case_dtype to)
{
    int d = t->c->head_dim_qk;
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        size_t bytes = (size_t)(p->rows * d) * sizeof(double);
        double *queries = malloc(bytes);
        if (!queries)
            return false;
        memcpy(queries, p->row_qk, bytes);
        for (int row = 0; row < p->rows; row++)
            change(t, with, to, queries + row * d);
        struct variant right = variant_none(p);
        panel_products(p, queries);
        trial_evaluate_panel(t, p, &right, t->panel_first[i], t->tried, t->lse_tried);
        panel_products(p, p->row_qk);
        free(queries);
    }
    return true;
}

static void try_query(struct trial *t, enum case_dtype to)
{
    const char *pass = backward(t) ? "in the backward pass " : "";
    for (int base = 0; base < 2 && !trial_over(t); base++)
        if (evaluate_query(t, query_rounded, case_scale(t->c) * (base ? M_LOG2E : 1), to))
            trial_offer(t, DIAGNOSIS_ROUNDED, t->tried,
                        "%sQ is rounded to %s after it is multiplied by the scale%s", pass,
                        dtype_name(to), base ? " and log2(e)" : "");
}

// Tries products of Q and K without the last dims, those behind a multiple of a tile.
static void try_dims(struct trial *t)
{
    static const int tiles[] = {8, 16, 32, 64, 128};
    int d = t->c->head_dim_qk, before = d;
    const char *pass = backward(t) ? "in the backward pass " : "";
    for (size_t i = 0; i < sizeof(tiles) / sizeof(*tiles) && !trial_over(t); i++) {
        int dims = (d - 1) / tiles[i] * tiles[i];
        if (dims == 0 || dims == before || !evaluate_query(t, query_shortened, dims, DTYPE_FP32))
            continue;
        before = dims;
        trial_offer(t, DIAGNOSIS_DIMS, t->tried,
                    "%sthe dims from %d on are left out of the products of Q and K", pass, dims);
    }
}

// ---- TF32 ---------------------------------------------------------------------------------------

static void values_round(double *values, int64_t count, bool cut)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = variant_round_tf32(values[i], cut);
}

// Fills t->tried with rows of out or lse of panel i, with Q, K, V and weights rounded to TF32. Room
// for rounded inputs: queries [rows][d_qk], columns [columns][d_qk + d_v].
static void evaluate_panel_tf32(struct trial *t, int i, const struct variant *with, double *queries,
                                double *columns)
{
    struct panel *p = &t->panels[i];
    struct panel right = *p;
    int64_t qk = p->columns * p->c->head_dim_qk, v = p->columns * p->c->head_dim_v;
    memcpy(queries, p->row_qk, (size_t)(p->rows * p->c->head_dim_qk) * sizeof(double));
    memcpy(columns, p->col_qk, (size_t)qk * sizeof(double));
    memcpy(columns + qk, p->col_v, (size_t)v * sizeof(double));
    values_round(queries, (int64_t)p->rows * p->c->head_dim_qk, with->cut);
    values_round(columns, qk + v, with->cut);
    p->col_qk = columns;
    p->col_v = columns + qk;
    panel_products(p, queries);
    trial_evaluate_panel(t, p, with, t->panel_first[i], t->tried, t->lse_tried);
    *p = right;
    panel_products(p, p->row_qk);
}

// False if memory is short.
static bool evaluate_tf32(struct trial *t, enum variant_rounding rounding, bool cut)
{
    bool fine = true;
    for (int i = 0; i < t->panel_count && fine; i++) {
        const struct panel *p = &t->panels[i];
        int64_t dims = p->c->head_dim_qk + p->c->head_dim_v;
        double *queries = malloc((size_t)(p->rows * dims) * sizeof(double));
        double *columns = malloc((size_t)(p->columns * dims) * sizeof(double));
        struct variant with = variant_none(p);
        with.rounding = rounding;
        with.cut = cut;
        fine = queries && columns;
        if (fine)
            evaluate_panel_tf32(t, i, &with, queries, columns);
        free(queries);
        free(columns);
    }
    return fine;
}

static void try_tf32(struct trial *t)
{
    bool forward = t->in->tensor == TENSOR_OUT || t->in->tensor == TENSOR_LSE;
    if (t->c->dtype != DTYPE_FP32 || !forward)
        return;
    for (int i = 0; i < 4 && !trial_over(t); i++) {
        bool cut = i >= 2;
        if (evaluate_tf32(t, i % 2 ? VARIANT_ROUND_TF32_P : VARIANT_ROUND_TF32, cut))
            trial_offer(t, DIAGNOSIS_ROUNDED, t->tried,
                        "fp32 is multiplied in TF32: Q, K and V are %s to 10 bits",
                        cut ? "cut off" : "rounded");
    }
}

// ---- LSE and delta of the backward pass ---------------------------------------------------------

static void evaluate_statistics(struct trial *t, enum case_dtype to, bool lse)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        int64_t count = p->setup.side == SIDE_Q ? p->rows : p->columns;
        double **of_panel = lse ? &p->lse : &p->delta, *right = *of_panel;
        double *values = malloc((size_t)count * sizeof(double));
        if (!values)
            return;
        for (int64_t k = 0; k < count; k++)
            values[k] = variant_round(to, right[k]);
        struct variant none = variant_none(p);
        *of_panel = values;
        trial_evaluate_panel(t, p, &none, t->panel_first[i], t->tried, t->lse_tried);
        *of_panel = right;
        free(values);
    }
}

static void try_statistics(struct trial *t, enum case_dtype to)
{
    int last = t->in->tensor == TENSOR_DV; // dv does not depend on delta
    for (int lse = 1; lse >= last && backward(t) && !trial_over(t); lse--) {
        evaluate_statistics(t, to, lse);
        trial_offer(t, DIAGNOSIS_ROUNDED, t->tried,
                    "the backward pass uses %s that is rounded to %s",
                    lse ? "an LSE" : "a delta = rowsum(dO * O)", dtype_name(to));
    }
}

// ---- results ------------------------------------------------------------------------------------

// True if the dtype represents all finite values exactly, and at least 4 of them are not zero.
static bool are_all(const struct trial *t, enum case_dtype dtype)
{
    int numbers = 0;
    for (int row = 0; row < t->rows; row++) {
        bool bias = t->in->tensor == TENSOR_DBIAS; // its rows are in the order of the input
        const struct diagnosis_row *x = &t->in->rows[bias ? row : t->row_of[row]];
        int64_t count = bias ? x->count : t->dim;
        for (int64_t k = 0; k < count; k++) {
            if (x->got[k] == 0 || !isfinite(x->got[k]))
                continue;
            if (variant_round(dtype, x->got[k]) != (double)x->got[k])
                return false;
            numbers++;
        }
    }
    return numbers >= 4;
}

void try_stored(struct trial *t)
{
    static const enum case_dtype dtypes[] = {DTYPE_BF16, DTYPE_FP16};
    enum report_tensor tensor = t->in->tensor;
    bool fp32 = tensor == TENSOR_LSE || tensor == TENSOR_DSINK || tensor == TENSOR_MAX_LOGIT;
    enum case_dtype own = fp32 ? DTYPE_FP32 : t->c->dtype;
    for (size_t i = 0; i < 2; i++) {
        double step = dtypes[i] == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
        if (own == DTYPE_BF16 || own == dtypes[i] || !are_all(t, dtypes[i]))
            continue;
        for (int at = 0; at < t->rows * t->dim; at++) {
            bool near = fabs(t->got[at] - t->right[at]) <= 1.01 * step * fabs(t->right[at]);
            t->tried[at] = near ? t->got[at] : t->right[at];
        }
        trial_keep_lse(t);
        trial_offer(t, DIAGNOSIS_ROUNDED, t->tried,
                    "%s has only numbers of %s: it is stored in 16 bits on its way",
                    report_tensor_name(tensor), dtype_name(dtypes[i]));
    }
}

void try_roundings(struct trial *t)
{
    enum case_dtype first = t->c->dtype == DTYPE_FP16 ? DTYPE_FP16 : DTYPE_BF16;
    try_stored(t);
    try_tf32(t);
    for (int i = 0; i < 2 && !trial_solved(t); i++) {
        enum case_dtype to = (first == DTYPE_BF16) == (i == 0) ? DTYPE_BF16 : DTYPE_FP16;
        try_logits(t, to);
        try_statistics(t, to);
        if (t->panels[0].setup.side == SIDE_Q)
            try_query(t, to);
    }
    try_fp8(t);
    if (t->panels[0].setup.side == SIDE_Q)
        try_dims(t);
}
