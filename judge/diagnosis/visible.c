// SPDX-License-Identifier: Apache-2.0
// Hypotheses about single keys: keys of other packed sequences that are visible, and one key that
// is left out. They are computed from the right rows and the LSE, key by key.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis.h"
#include "judge/diagnosis/trial.h"
#include "judge/inputs.h"
#include "plan/slice.h"

static bool concerned(const struct trial *t)
{
    enum report_tensor tensor = t->in->tensor;
    return tensor == TENSOR_OUT || tensor == TENSOR_LSE || tensor == TENSOR_DQ;
}

// ---- other sequences ----------------------------------------------------------------------------

// Which keys of other sequences a query sees.
enum leak {
    LEAK_BY_PLACE,    // the mask is applied to places in the packed sequences
    LEAK_BY_POSITION, // as if they were keys of its own sequence
    LEAK_LAST,        // the last key of the sequence before
    LEAK_FIRST,       // the first key of the sequence after
    LEAKS
};

struct leaking {
    enum leak leak;
    bool remote; // only keys that another rank has
};

// A key of another sequence.
struct foreign {
    int32_t sequence;
    int64_t position;
    float k[HEAD_DIM_MAX], v[HEAD_DIM_MAX];
};

static bool in_band(const struct case_band *band, int64_t distance)
{
    return (band->left >= SLICE_UNBOUNDED || -band->left <= distance) &&
           (band->right >= SLICE_UNBOUNDED || distance <= band->right);
}

static int rank_of_key(const struct trial *t, const struct foreign *key)
{
    struct chunks chunks;
    chunks_init(&chunks, t->c, SIDE_KV, key->sequence);
    return chunks.ranks[chunks_find(&chunks, key->position)];
}

static bool leaks(const struct trial *t, const struct panel *p, enum leak leak, int64_t query,
                  const struct foreign *key)
{
    struct case_band band = case_band(t->c, p->setup.sequence);
    int64_t distance = key->position - query + band.shift;
    int32_t other = key->sequence, own = p->setup.sequence;
    if (leak == LEAK_LAST)
        return other == own - 1 && key->position == case_length(t->c, SIDE_KV, other) - 1;
    if (leak == LEAK_FIRST)
        return other == own + 1 && key->position == 0;
    for (int32_t i = other; i < own && leak == LEAK_BY_PLACE; i++)
        distance -= case_length(t->c, SIDE_KV, i);
    for (int32_t i = own; i < other && leak == LEAK_BY_PLACE; i++)
        distance += case_length(t->c, SIDE_KV, i);
    return in_band(&band, distance);
}

static double product(const double *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

// Adds a key to row `i` of a panel, and its weight, relative to the right sum of weights, to *sum.
// For dq, *sum is unchanged.
static void row_add(struct trial *t, const struct panel *p, int i, const struct foreign *key,
                    double *values, double *sum)
{
    int d_qk = t->c->head_dim_qk, d_v = t->c->head_dim_v;
    double logit = product(p->row_qk + i * d_qk, key->k, d_qk) * case_scale(t->c);
    if (t->c->softcap != 0)
        logit = t->c->softcap * tanh(logit / t->c->softcap);
    double weight = exp(fmin(logit - p->lse[i], 300));
    if (t->in->tensor == TENSOR_DQ) { // with the right LSE and delta
        double ds = weight * (product(p->row_v + i * d_v, key->v, d_v) - p->delta[i]);
        for (int k = 0; k < d_qk; k++)
            values[k] += ds * key->k[k] * case_scale(t->c);
        return;
    }
    *sum += weight;
    for (int k = 0; k < d_v && t->in->tensor == TENSOR_OUT; k++)
        values[k] += weight * key->v[k];
}

static void panel_leak(struct trial *t, int i, const struct leaking *x, double *sums)
{
    struct panel *p = &t->panels[i];
    struct foreign key;
    for (key.sequence = 0; key.sequence < t->c->batch; key.sequence++) {
        int64_t length = case_length(t->c, SIDE_KV, key.sequence);
        for (key.position = 0; key.position < length && key.sequence != p->setup.sequence;
             key.position++) {
            if (x->remote && rank_of_key(t, &key) == t->in->rank)
                continue;
            input_token_head(t->c, INPUT_K, key.sequence, key.position, p->setup.key_head, key.k);
            input_token_head(t->c, INPUT_V, key.sequence, key.position, p->setup.key_head, key.v);
            for (int row = 0; row < p->rows; row++)
                if (p->lse[row] > -INFINITY && leaks(t, p, x->leak, p->setup.positions[row], &key))
                    row_add(t, p, row, &key, t->tried + (t->panel_first[i] + row) * t->dim,
                            &sums[t->panel_first[i] + row]);
        }
    }
}

static void try_leak(struct trial *t, const struct leaking *x)
{
    static const char *const which[LEAKS] = {
        "keys of other packed sequences are visible",
        "keys of other packed sequences are visible, as if they belonged to the query's own",
        "the last key of the packed sequence before is visible",
        "the first key of the packed sequence after is visible"};
    double sums[DIAGNOSIS_ROWS_MAX];
    memcpy(t->tried, t->right, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int row = 0; row < t->rows; row++)
        sums[row] = 1;
    for (int i = 0; i < t->panel_count; i++)
        panel_leak(t, i, x, sums);
    for (int row = 0; row < t->rows; row++) {
        t->lse_tried[row] = t->lse_right[row] + log(sums[row]);
        for (int k = 0; k < t->dim; k++)
            t->tried[row * t->dim + k] /= sums[row];
        if (t->in->tensor == TENSOR_LSE)
            t->tried[row] = t->lse_tried[row];
    }
    trial_offer(t, DIAGNOSIS_BOUNDARY, t->tried, "%s%s%s: look at the cumulative lengths",
                t->in->tensor == TENSOR_DQ ? "in the backward pass " : "", which[x->leak],
                x->remote ? ", if another rank has them" : "");
}

static void try_other_sequences(struct trial *t)
{
    int64_t keys = 0;
    for (int32_t i = 0; i < t->c->batch; i++)
        keys += case_length(t->c, SIDE_KV, i);
    bool small = keys * t->rows <= DIAGNOSIS_PAIRS_MAX;
    if (t->c->format != FORMAT_THD || !small)
        return;
    for (int i = 0; i < 2 * LEAKS && !trial_over(t); i++) {
        struct leaking x = {.leak = (enum leak)(i % LEAKS), .remote = i >= LEAKS};
        if (!x.remote || (t->c->world_size > 1 && t->in->rank >= 0))
            try_leak(t, &x);
    }
}

// ---- one key ------------------------------------------------------------------------------------

// Computes one row without one key: its values and its LSE. `i`: its index in the panel; `row`: in
// the trial.
static void row_without(const struct trial *t, const struct panel *p, int i, int64_t key, int row,
                        double *values, double *lse)
{
    const double *right = t->right + (int64_t)row * t->dim;
    int64_t at = i * p->columns + key;
    double weight = p->p[at], rest = 1 - weight;
    bool dq = t->in->tensor == TENSOR_DQ;
    const double *column = dq ? p->col_qk + key * t->dim : p->col_v + key * t->dim;
    double factor = dq ? p->ds[at] * case_scale(t->c) : weight;
    *lse = rest > 1e-12 ? t->lse_right[row] + log(rest) : -INFINITY;
    for (int k = 0; k < t->dim; k++) {
        if (t->in->tensor == TENSOR_LSE)
            values[k] = *lse;
        else
            values[k] = (right[k] - factor * column[k]) / (dq ? 1 : fmax(rest, 1e-12));
    }
}

// Energy of the error that the absence of `key` from the rows of a panel explains.
static double key_gain(const struct trial *t, int i, int64_t key)
{
    const struct panel *p = &t->panels[i];
    double values[HEAD_DIM_MAX], lse, gain = 0;
    for (int k = 0; k < p->rows; k++) {
        int row = t->panel_first[i] + k;
        if (p->p[k * p->columns + key] < 1e-7)
            continue;
        row_without(t, p, k, key, row, values, &lse);
        for (int m = 0; m < t->dim; m++) {
            double got = t->got[row * t->dim + m], right = t->right[row * t->dim + m];
            double change = pow(got - right, 2) - pow(got - values[m], 2);
            gain += isfinite(change) ? change : 0;
        }
    }
    return gain;
}

static void key_remove(struct trial *t, int i, int64_t key)
{
    const struct panel *p = &t->panels[i];
    for (int k = 0; k < p->rows; k++) {
        int row = t->panel_first[i] + k;
        if (p->p[k * p->columns + key] > 0)
            row_without(t, p, k, key, row, t->tried + (int64_t)row * t->dim, &t->lse_tried[row]);
    }
}

// Returns the key whose absence explains the most error in all panels of a sequence; -1: none.
static int64_t missing_key(const struct trial *t, int32_t sequence, int64_t keys)
{
    double most = 0;
    int64_t best = -1;
    for (int64_t key = 0; key < keys; key++) {
        double gain = 0;
        for (int i = 0; i < t->panel_count; i++)
            if (t->panels[i].setup.sequence == sequence)
                gain += key_gain(t, i, key);
        if (gain > most) {
            most = gain;
            best = key;
        }
    }
    return best;
}

static void try_missing_key(struct trial *t)
{
    int64_t named = -1;
    int32_t sequence = 0;
    memcpy(t->tried, t->right, (size_t)(t->rows * t->dim) * sizeof(double));
    trial_keep_lse(t);
    for (int i = 0; i < t->panel_count; i++) {
        struct variant right = variant_none(&t->panels[i]);
        variant_gradient(&t->panels[i], &right, t->panels[i].lse, t->panels[i].delta, true);
    }
    for (int i = 0; i < t->panel_count && !trial_over(t); i++) {
        const struct panel *p = &t->panels[i];
        int64_t key = missing_key(t, p->setup.sequence, p->keys);
        if (key < 0)
            continue;
        key_remove(t, i, key);
        sequence = named < 0 ? p->setup.sequence : sequence;
        named = named < 0 ? key : named;
    }
    if (named >= 0)
        trial_offer(t, DIAGNOSIS_MISSING_KEYS, t->tried,
                    "one key is missing from %s: position %lld of sequence %d",
                    t->in->tensor == TENSOR_DQ ? "dq" : "the softmax", (long long)named, sequence);
}

void try_visible(struct trial *t)
{
    if (!concerned(t))
        return;
    if (t->c->bias == BIAS_NONE)
        try_other_sequences(t);
    if (!trial_solved(t))
        try_missing_key(t);
}
