// SPDX-License-Identifier: Apache-2.0
// Hypotheses about LSE and delta in the backward pass.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/bias.h"

// ---- the LSE ------------------------------------------------------------------------------------

// Fills t->tried with dQ for the given LSE [rows] and delta [rows] (NULL: the right one).
static void evaluate_dq(struct trial *t, const double *lse, const double *delta)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        int first = t->panel_first[i];
        struct variant right = variant_none(p);
        variant_gradient(p, &right, lse + first, delta ? delta + first : p->delta, true);
        variant_dq(p, &right, 0, p->columns, t->tried + (int64_t)first * t->dim);
    }
}

static void gradients_right(struct trial *t)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct variant right = variant_none(&t->panels[i]);
        variant_gradient(&t->panels[i], &right, t->panels[i].lse, t->panels[i].delta, true);
    }
}

// Weight of the sink in a row. Needs p->p of the right attention.
static double sink_share(const struct panel *p, int row)
{
    double share = 1;
    for (int64_t key = 0; key < p->keys; key++)
        share -= p->p[row * p->columns + key];
    return share > 1e-12 ? share : 0;
}

static double largest_weight(const struct panel *p, int row)
{
    double most = 0;
    for (int64_t key = 0; key < p->keys; key++)
        most = fmax(most, p->p[row * p->columns + key]);
    return most;
}

// LSE of a row over only the keys of a team of `size` ranks, and the sink.
static double partial_lse(const struct panel *p, int row, int team, int size)
{
    double sum = sink_share(p, row);
    for (int64_t key = 0; key < p->keys; key++) {
        int rank = p->k_chunks.ranks[chunks_find(&p->k_chunks, key)];
        sum += rank / size == team ? p->p[row * p->columns + key] : 0;
    }
    return sum > 0 ? p->lse[row] + log(sum) : -INFINITY;
}

// Tries the LSE over the team `distance` after the query's own one: 0: its own; 1: the next one.
static void try_partial_lse(struct trial *t, int distance)
{
    double lse[DIAGNOSIS_ROWS_MAX];
    int size = team_size(t->c), teams = t->c->world_size / size;
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        struct variant right = variant_none(p);
        variant_gradient(p, &right, p->lse, p->delta, true);
        for (int row = 0; row < p->rows; row++) {
            int own = p->q_chunks.ranks[chunks_find(&p->q_chunks, p->setup.positions[row])] / size;
            lse[t->panel_first[i] + row] =
                partial_lse(p, row, (own + distance + teams) % teams, size);
        }
    }
    evaluate_dq(t, lse, NULL);
    trial_offer(
        t, DIAGNOSIS_LSE, t->tried, "the backward pass uses the LSE of %s instead of the final one",
        t->in->steps_unknown ? distance == 0 ? "its own rank's keys" : "the next rank's keys"
        : distance == 0      ? "the first ring step"
                             : "the last ring step");
}

// Tries the largest logit of each row, and an LSE without the sink.
static void try_other_lse(struct trial *t)
{
    double largest[DIAGNOSIS_ROWS_MAX], sinkless[DIAGNOSIS_ROWS_MAX];
    gradients_right(t);
    for (int i = 0; i < t->panel_count; i++)
        for (int row = 0; row < t->panels[i].rows; row++) {
            const struct panel *p = &t->panels[i];
            double most = largest_weight(p, row);
            int at = t->panel_first[i] + row;
            largest[at] = p->lse[row] + (most > 0 ? log(most) : 0);
            sinkless[at] = p->lse[row] + log1p(-fmin(sink_share(p, row), 1 - 1e-12));
        }
    evaluate_dq(t, largest, NULL);
    trial_offer(t, DIAGNOSIS_LSE, t->tried,
                "the backward pass uses the largest logit of each row instead of the LSE");
    if (t->c->softmax == SOFTMAX_VANILLA)
        return;
    evaluate_dq(t, sinkless, NULL);
    trial_offer(t, DIAGNOSIS_LSE, t->tried, "the backward pass uses an LSE without the sink");
}

// Tries P = 2^(logit - LSE).
static void try_base(struct trial *t)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        double lse[DIAGNOSIS_ROWS_MAX], *dq = t->tried + (int64_t)t->panel_first[i] * t->dim;
        struct variant variant = variant_none(p);
        variant.scale = M_LN2;
        for (int row = 0; row < p->rows; row++)
            lse[row] = p->lse[row] * M_LN2;
        variant_gradient(p, &variant, lse, p->delta, true);
        variant.scale = 1;
        variant_dq(p, &variant, 0, p->columns, dq);
    }
    trial_offer(t, DIAGNOSIS_LSE, t->tried,
                "the backward pass computes P with base 2 instead of e: log2(e) is missing");
}

// ---- delta of a part of O -----------------------------------------------------------------------

// Shares of the keys of each rank, [rank][rows]: in the sum of P, and in delta.
struct shares {
    double *weights, *deltas;
};

// Needs p->p of the right attention.
static void shares_fill(const struct trial *t, struct shares *x)
{
    for (int i = 0; i < t->panel_count; i++) {
        const struct panel *p = &t->panels[i];
        for (int64_t key = 0; key < p->keys; key++) {
            int rank = p->k_chunks.ranks[chunks_find(&p->k_chunks, key)];
            for (int row = 0; row < p->rows; row++) {
                int64_t at = row * p->columns + key;
                int64_t to = (int64_t)rank * t->rows + t->panel_first[i] + row;
                x->weights[to] += p->p[at];
                x->deltas[to] += p->p[at] * p->dp[at];
            }
        }
    }
}

static void lse_right(const struct trial *t, double *lse)
{
    for (int i = 0; i < t->panel_count; i++)
        memcpy(lse + t->panel_first[i], t->panels[i].lse,
               (size_t)t->panels[i].rows * sizeof(double));
}

// Which part of O delta is computed from.
enum partial_delta {
    DELTA_WITHOUT,      // all keys but those of a rank, as merged before them
    DELTA_LACKS,        // the same, of the final O
    DELTA_ALONE,        // the keys of a rank, with their own LSE
    DELTA_ALONE_SCALED, // the same, with the final LSE
    DELTA_WAYS
};

static double partial_delta(enum partial_delta way, double all, double weight, double share)
{
    switch (way) {
    case DELTA_WITHOUT:
        return 1 - weight > 1e-9 ? (all - share) / (1 - weight) : 0;
    case DELTA_LACKS:
        return all - share;
    case DELTA_ALONE:
        return weight > 1e-30 ? share / weight : 0;
    default:
        return share;
    }
}

// Tries a delta from a part of O.
static void try_partial_delta(struct trial *t, const struct shares *x, enum partial_delta way,
                              int rank)
{
    static const struct {
        const char *before, *after; // of the rank
    } texts[DELTA_WAYS] = {[DELTA_WITHOUT] = {"is computed from an O without the keys of rank",
                                              ", before they were merged"},
                           [DELTA_LACKS] = {"lacks the part of the keys of rank", ""},
                           [DELTA_ALONE] = {"is computed from the O of the keys of rank",
                                            " alone, before others were merged"},
                           [DELTA_ALONE_SCALED] = {"is the part of the keys of rank", " alone"}};
    double lse[DIAGNOSIS_ROWS_MAX], delta[DIAGNOSIS_ROWS_MAX];
    lse_right(t, lse);
    for (int i = 0; i < t->panel_count; i++)
        for (int row = 0; row < t->panels[i].rows; row++) {
            int to = t->panel_first[i] + row;
            int64_t at = (int64_t)rank * t->rows + to;
            delta[to] = partial_delta(way, t->panels[i].delta[row], x->weights[at], x->deltas[at]);
        }
    evaluate_dq(t, lse, delta);
    trial_offer(t, DIAGNOSIS_DELTA, t->tried, "delta = rowsum(dO * O) %s %d%s", texts[way].before,
                rank, texts[way].after);
}

// Tries a delta of its own for the keys of each rank. own_lse: from an O with the LSE of these
// keys.
static void try_delta_of_steps(struct trial *t, const struct shares *x, bool own_lse)
{
    gradients_right(t);
    memset(t->tried, 0, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        double *values = t->tried + (int64_t)t->panel_first[i] * t->dim;
        for (int64_t key = 0; key < p->keys; key++) {
            int rank = p->k_chunks.ranks[chunks_find(&p->k_chunks, key)];
            for (int row = 0; row < p->rows; row++) {
                int64_t at = row * p->columns + key;
                int64_t of = (int64_t)rank * t->rows + t->panel_first[i] + row;
                double weight = own_lse ? x->weights[of] : 1;
                double delta = weight > 1e-30 ? x->deltas[of] / weight : 0;
                p->ds[at] = p->p[at] * (p->dp[at] - delta) * p->slope[at];
            }
        }
        struct variant right = variant_none(p);
        variant_dq(p, &right, 0, p->keys, values);
    }
    trial_offer(t, DIAGNOSIS_DELTA, t->tried,
                "each ring step of the backward pass uses the delta of its own %s instead of the "
                "final one",
                own_lse ? "partial O" : "keys");
}

// Tries a delta from an O that is not divided by the sum of exp(logit - largest logit).
static void try_undivided_delta(struct trial *t)
{
    double lse[DIAGNOSIS_ROWS_MAX], delta[DIAGNOSIS_ROWS_MAX];
    gradients_right(t);
    lse_right(t, lse);
    for (int i = 0; i < t->panel_count; i++)
        for (int row = 0; row < t->panels[i].rows; row++) {
            const struct panel *p = &t->panels[i];
            double most = largest_weight(p, row);
            delta[t->panel_first[i] + row] = most > 0 ? p->delta[row] / most : 0;
        }
    evaluate_dq(t, lse, delta);
    trial_offer(
        t, DIAGNOSIS_DELTA, t->tried,
        "delta = rowsum(dO * O) is computed from an O that is not divided by the sum of the "
        "softmax");
}

#define RANKS_OF_WAYS_MAX 8 // largest world size for which all ways are tried

static void try_partial_deltas(struct trial *t)
{
    int world = t->c->world_size;
    // With two ranks, all but one rank is the other one alone.
    int ways = world > RANKS_OF_WAYS_MAX ? DELTA_WITHOUT + 1
               : world > 2               ? DELTA_WAYS
                                         : DELTA_LACKS + 1;
    size_t count = (size_t)world * (size_t)t->rows;
    struct shares x = {.weights = calloc(2 * count, sizeof(double))};
    if (!x.weights || world == 1) {
        free(x.weights);
        return;
    }
    x.deltas = x.weights + count;
    gradients_right(t);
    shares_fill(t, &x);
    for (int way = 0; way < ways; way++)
        for (int rank = 0; rank < world && !trial_over(t); rank++)
            try_partial_delta(t, &x, (enum partial_delta)way, rank);
    if (team_size(t->c) < world && !trial_over(t)) {
        try_delta_of_steps(t, &x, true);
        try_delta_of_steps(t, &x, false);
    }
    free(x.weights);
}

// ---- all ----------------------------------------------------------------------------------------

static void try_statistics(struct trial *t)
{
    double lse[DIAGNOSIS_ROWS_MAX];
    if (t->in->tensor != TENSOR_DQ)
        return;
    for (int base = 0; base < 2; base++) {
        for (int i = 0; i < t->panel_count; i++)
            for (int row = 0; row < t->panels[i].rows; row++)
                lse[t->panel_first[i] + row] = t->panels[i].lse[row] * (base ? M_LOG2E : M_LN2);
        evaluate_dq(t, lse, NULL);
        trial_offer(t, DIAGNOSIS_LSE, t->tried,
                    "the backward pass reads the LSE as a logarithm of base %s",
                    base ? "2, but its base is e" : "e, but its base is 2");
    }
    try_base(t);
    try_other_lse(t);
    try_partial_deltas(t);
    try_undivided_delta(t);
    if (team_size(t->c) < t->c->world_size) {
        try_partial_lse(t, 0);
        try_partial_lse(t, 1);
    }
}

// Fills t->tried with rows of dq or dk from the right delta times a factor.
static void evaluate_delta(struct trial *t, double factor)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        int64_t count = p->setup.side == SIDE_Q ? p->rows : p->columns;
        double *right = p->delta, *changed_delta = malloc((size_t)count * sizeof(double));
        if (!changed_delta)
            return;
        for (int64_t k = 0; k < count; k++)
            changed_delta[k] = factor * right[k];
        struct variant none = variant_none(p);
        p->delta = changed_delta;
        trial_evaluate_panel(t, p, &none, t->panel_first[i], t->tried, t->lse_tried);
        p->delta = right;
        free(changed_delta);
    }
}

// Tries a missing delta, and a delta with a factor that is found by least squares.
static void try_delta(struct trial *t)
{
    double factor;
    if (t->in->tensor != TENSOR_DQ && t->in->tensor != TENSOR_DK)
        return;
    evaluate_delta(t, 0);
    trial_offer(t, DIAGNOSIS_DELTA, t->tried,
                "delta = rowsum(dO * O) is missing: dS is P * dP instead of P * (dP - delta)");
    memcpy(t->moved, t->tried, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int i = 0; i < t->rows * t->dim; i++)
        t->tried[i] = t->right[i] - t->moved[i];
    if (!trial_fit(t, &t->tried, 1, t->moved, &factor) || fabs(factor) < 0.05 ||
        trial_is_one(t, factor))
        return;
    evaluate_delta(t, factor);
    trial_offer(t, DIAGNOSIS_DELTA, t->tried,
                "delta = rowsum(dO * O) is %.4g times what it should be", factor);
}

void try_backward(struct trial *t)
{
    try_delta(t); // a missing delta is also that of a rank whose keys no row sees
    try_statistics(t);
}
