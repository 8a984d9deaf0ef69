// SPDX-License-Identifier: Apache-2.0
// Hypotheses of another scale, mask, window, sink, bias or softcap. Rows of a gradient have the
// right LSE and delta, so that these hypotheses are about the backward pass.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/bias.h"
#include "plan/slice.h"

// Changes of a band, sink, bias or softcap.
struct change {
    enum diagnosis_kind kind;
    const char *text;
    int64_t left, right; // added to the bounds of the mask
    bool no_left, no_right;
    bool of_window;    // on the right
    bool counted_on;   // from the sequences before
    bool other_corner; // top left for bottom right and the other way round
    enum twist_where where;
    double sinks, ghosts; // are added
    enum twist_bias bias;
    int64_t bias_shift;
    bool no_cap, no_slope;
};

static const struct change changes[] = {
    {DIAGNOSIS_MASK, "the mask admits one key too many", .right = 1},
    {DIAGNOSIS_MASK, "the mask admits one key too few", .right = -1},
    {DIAGNOSIS_MASK, "the mask is ignored: keys behind the diagonal are seen", .no_right = true},
    {DIAGNOSIS_MASK, "the mask is ignored in the keys of other ranks", .no_right = true,
     .where = WHERE_REMOTE},
    {DIAGNOSIS_WINDOW, "the window is one key narrower on the left", .left = -1},
    {DIAGNOSIS_WINDOW, "the window is one key wider on the left", .left = 1},
    {DIAGNOSIS_WINDOW, "the window is ignored", .no_left = true},
    {DIAGNOSIS_WINDOW, "the window is ignored in the keys of other ranks", .no_left = true,
     .where = WHERE_REMOTE},
    {DIAGNOSIS_WINDOW, "the window is one key narrower on the right", .right = -1,
     .of_window = true},
    {DIAGNOSIS_WINDOW, "the window is one key wider on the right", .right = 1, .of_window = true},
    {DIAGNOSIS_WINDOW, "the window is ignored", .no_left = true, .no_right = true,
     .of_window = true},
    {DIAGNOSIS_ALIGNMENT, NULL, .other_corner = true},
    {DIAGNOSIS_ALIGNMENT,
     "the positions of a packed sequence continue those of the sequence before",
     .counted_on = true},
    {DIAGNOSIS_SINK, "the sink is left out of the denominator", .sinks = -1},
    {DIAGNOSIS_SINK, "the sink is in the denominator twice", .sinks = 1},
    {DIAGNOSIS_BIAS, "the bias is missing", .bias = TWIST_BIAS_MISSING},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is missing", .bias = TWIST_BIAS_MISSING,
     .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias is multiplied by the scale of the softmax",
     .bias = TWIST_BIAS_SCALED},
    {DIAGNOSIS_BIAS, "the bias is subtracted", .bias = TWIST_BIAS_SUBTRACTED},
    {DIAGNOSIS_BIAS, "the bias is read one column too far to the left", .bias = TWIST_BIAS_COLUMN,
     .bias_shift = -1},
    {DIAGNOSIS_BIAS, "the bias is read one column too far to the right", .bias = TWIST_BIAS_COLUMN,
     .bias_shift = 1},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is read one column too far to the left",
     .bias = TWIST_BIAS_COLUMN, .bias_shift = -1, .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is read one column too far to the right",
     .bias = TWIST_BIAS_COLUMN, .bias_shift = 1, .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias is read at the place of the key in its rank's memory",
     .bias = TWIST_BIAS_LOCAL},
    {DIAGNOSIS_BIAS, "the bias is that of the query before", .bias = TWIST_BIAS_ROW,
     .bias_shift = -1},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is that of the query before",
     .bias = TWIST_BIAS_ROW, .bias_shift = -1, .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is that of the query after",
     .bias = TWIST_BIAS_ROW, .bias_shift = 1, .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias is that of the query after", .bias = TWIST_BIAS_ROW,
     .bias_shift = 1},
    {DIAGNOSIS_BIAS, "the bias is that of the next head", .bias = TWIST_BIAS_HEAD},
    {DIAGNOSIS_SOFTCAP, "the softcap is missing", .no_cap = true},
    {DIAGNOSIS_SOFTCAP, "the slope of the softcap is missing", .no_slope = true},
};

static bool backward(const struct trial *t)
{
    return t->in->tensor != TENSOR_OUT && t->in->tensor != TENSOR_LSE;
}

static bool applies(const struct trial *t, const struct change *x)
{
    const struct cp_case *c = t->c;
    struct case_band band = case_band(c, t->panels[0].setup.sequence);
    bool causal = c->mask == MASK_CAUSAL || c->mask == MASK_CAUSAL_BOTTOM_RIGHT;
    switch (x->kind) {
    case DIAGNOSIS_MASK:
        return causal;
    case DIAGNOSIS_WINDOW:
        return x->of_window ? band.right < SLICE_UNBOUNDED && !causal : band.left < SLICE_UNBOUNDED;
    case DIAGNOSIS_ALIGNMENT:
        if (x->counted_on && c->format != FORMAT_THD)
            return false;
        return band.left < SLICE_UNBOUNDED || band.right < SLICE_UNBOUNDED;
    case DIAGNOSIS_SINK: // in the backward pass it is in the LSE
        return c->softmax != SOFTMAX_VANILLA && !backward(t);
    case DIAGNOSIS_BIAS:
        return c->bias != BIAS_NONE;
    case DIAGNOSIS_SOFTCAP:
        return c->softcap != 0 && (!x->no_slope || backward(t));
    default:
        return true;
    }
}

static struct twist changed(const struct panel *p, const void *with)
{
    const struct change *x = with;
    struct twist t = twist_none(p);
    t.band.left = x->no_left ? SLICE_UNBOUNDED : t.band.left + x->left;
    t.band.right = x->no_right ? SLICE_UNBOUNDED : t.band.right + x->right;
    if (x->other_corner)
        t.band.shift = t.band.shift != 0 ? 0 : p->queries - p->keys;
    for (int32_t i = 0; i < p->setup.sequence && x->counted_on; i++)
        t.band.shift -= case_length(p->c, SIDE_Q, i);
    t.band_where = t.bias_where = x->where;
    t.sinks += x->sinks;
    t.ghosts = x->ghosts;
    t.bias = x->bias;
    t.bias_shift = x->bias_shift;
    t.cap = t.cap && !x->no_cap;
    t.slope = t.slope && !x->no_slope;
    return t;
}

// "dq, only in the backward pass: "
static const char *where_text(const struct trial *t)
{
    return backward(t) ? "in the backward pass " : "";
}

static void try_changes(struct trial *t)
{
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        const struct change *x = &changes[i];
        const char *text = x->text;
        if (!applies(t, x))
            continue;
        if (trial_over(t))
            return;
        if (!text)
            text = t->c->mask == MASK_CAUSAL || t->c->mask == MASK_NONE
                       ? "the diagonal ends in the bottom right corner instead "
                         "of beginning in the top left one"
                       : "the diagonal begins in the top left corner instead "
                         "of ending in the bottom right one";
        trial_evaluate(t, changed, x);
        trial_offer(t, x->kind, t->tried, "%s%s", where_text(t), text);
    }
}

// Visible keys that are zero: those that fill a tile, or padding.
static void try_ghosts(struct trial *t)
{
    static const int tiles[] = {0, 16, 32, 64, 128, 256};
    int64_t before = 0;
    if (backward(t))
        return;
    for (size_t i = 0; i < sizeof(tiles) / sizeof(*tiles) && !trial_over(t); i++) {
        int64_t keys = t->panels[0].keys;
        int64_t count = tiles[i] ? (tiles[i] - keys % tiles[i]) % tiles[i] : 1;
        struct change x = {DIAGNOSIS_PADDING, .ghosts = (double)count};
        if (count == 0 || count == before)
            continue;
        trial_evaluate(t, changed, &x);
        trial_offer(t, x.kind, t->tried,
                    "padding is visible: the softmax includes %lld keys of zeros",
                    (long long)count);
        before = count;
    }
}

// ---- the scale ----------------------------------------------------------------------------------

static struct twist scaled(const struct panel *p, const void *with)
{
    struct twist t = twist_none(p);
    t.scale = *(const double *)with;
    return t;
}

static double scale_energy(struct trial *t, double factor)
{
    trial_evaluate(t, scaled, &factor);
    return trial_energy(t, t->tried);
}

// One step of Gauss and Newton from `factor`.
static double scale_step(struct trial *t, double factor)
{
    double moved = factor * (1 + 1e-4), up = 0, down = 0;
    trial_evaluate(t, scaled, &moved);
    memcpy(t->moved, t->tried, (size_t)(t->rows * t->dim) * sizeof(double));
    trial_evaluate(t, scaled, &factor);
    for (int i = 0; i < t->rows * t->dim; i++) {
        double slope = (t->moved[i] - t->tried[i]) / (moved - factor);
        if (!isfinite(slope))
            continue;
        up += slope * (t->got[i] - t->tried[i]);
        down += slope * slope;
    }
    double step = down > 0 ? up / down : 0;
    return factor + fmax(-0.5 * factor, fmin(factor, step));
}

static void scale_name(const struct cp_case *c, double factor, char *text, size_t size)
{
    double scale = case_scale(c), d = c->head_dim_qk;
    const struct {
        double value;
        const char *name;
    } names[] = {{1 / scale, "none"},
                 {1 / (scale * d), "1/head_dim_qk"},
                 {1 / (scale * sqrt(d)), "1/sqrt(head_dim_qk)"},
                 {1 / (scale * sqrt(c->head_dim_v)), "1/sqrt(head_dim_v)"},
                 {scale, "its square"},
                 {M_LOG2E, "times log2(e)"},
                 {M_LN2, "times ln(2)"}};
    *text = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (fabs(factor - names[i].value) < 5e-3 * names[i].value &&
            fabs(names[i].value - 1) > 1e-9) {
            snprintf(text, size, " (%s)", names[i].name);
            return;
        }
}

static void try_scale(struct trial *t)
{
    double scale = case_scale(t->c), d = t->c->head_dim_qk, least = t->error, best = 1;
    const double starts[] = {0.25,
                             0.5,
                             0.8,
                             1.25,
                             2,
                             4,
                             M_LN2,
                             M_LOG2E,
                             1 / scale,
                             1 / (scale * d),
                             1 / (scale * sqrt(t->c->head_dim_v)),
                             scale};
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts) && !trial_over(t); i++) {
        double energy = scale_energy(t, starts[i]);
        if (energy < least) {
            least = energy;
            best = starts[i];
        }
    }
    for (int i = 0; i < 6 && !trial_over(t); i++) {
        double next = scale_step(t, best), energy = scale_energy(t, next);
        if (!(energy < least))
            break;
        bool settled = fabs(next - best) < 1e-6 * best;
        best = next;
        least = energy;
        if (settled)
            break;
    }
    char name[40];
    if (trial_is_one(t, best))
        return;
    scale_name(t->c, best, name, sizeof(name));
    scale_energy(t, best);
    trial_offer(t, DIAGNOSIS_SCALE, t->tried,
                "%sthe softmax scale is %.5g times what it should be%s", where_text(t), best, name);
}

// ---- LSE and delta that the backward pass starts from
// --------------------------------------------

// Query rows of dQ, with LSE and delta of the caller's choice for each panel.
static void evaluate_dq(struct trial *t, const double *lse, const double *delta)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        int first = t->panel_first[i];
        struct twist right = twist_none(p);
        twist_gradient(p, &right, lse + first, delta ? delta + first : p->delta, true);
        twist_dq(p, &right, 0, p->columns, t->tried + (int64_t)first * t->dim);
    }
}

// LSE over only the keys of the query's own team.
static double partial_lse(const struct panel *p, int row, int team, int size)
{
    double sink_share = 1, sum = 0;
    for (int64_t key = 0; key < p->keys; key++) {
        int rank = p->k_chunks.ranks[chunks_find(&p->k_chunks, key)];
        double weight = p->p[row * p->columns + key];
        sink_share -= weight;
        sum += rank / size == team ? weight : 0;
    }
    sum += sink_share > 1e-12 ? sink_share : 0;
    return sum > 0 ? p->lse[row] + log(sum) : -INFINITY;
}

static void try_partial_lse(struct trial *t, int distance)
{
    double lse[DIAGNOSIS_ROWS_MAX];
    int size = team_size(t->c), teams = t->c->world_size / size;
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        struct twist right = twist_none(p);
        twist_gradient(p, &right, p->lse, p->delta, true);
        for (int row = 0; row < p->rows; row++) {
            int own = p->q_chunks.ranks[chunks_find(&p->q_chunks, p->setup.positions[row])] / size;
            lse[t->panel_first[i] + row] =
                partial_lse(p, row, (own + distance + teams) % teams, size);
        }
    }
    evaluate_dq(t, lse, NULL);
    trial_offer(t, DIAGNOSIS_LSE, t->tried,
                "the backward pass uses the LSE of %s instead of the final one",
                distance == 0 ? "the first ring step" : "the last ring step");
}

// delta of an O without the keys of a rank; false if the rows are not query rows.
static void try_early_delta(struct trial *t, int rank)
{
    double lse[DIAGNOSIS_ROWS_MAX], delta[DIAGNOSIS_ROWS_MAX];
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        struct twist right = twist_none(p);
        twist_gradient(p, &right, p->lse, p->delta, true);
        for (int row = 0; row < p->rows; row++) {
            double weight = 0, sum = 0;
            for (int64_t key = 0; key < p->keys; key++) {
                if (p->k_chunks.ranks[chunks_find(&p->k_chunks, key)] != rank)
                    continue;
                weight += p->p[row * p->columns + key];
                sum += p->p[row * p->columns + key] * p->dp[row * p->columns + key];
            }
            double left = 1 - weight;
            lse[t->panel_first[i] + row] = p->lse[row];
            delta[t->panel_first[i] + row] = left > 1e-9 ? (p->delta[row] - sum) / left : 0;
        }
    }
    evaluate_dq(t, lse, delta);
    trial_offer(t, DIAGNOSIS_DELTA, t->tried,
                "delta = rowsum(dO * O) is computed from an O without the keys of rank %d, before "
                "they were merged",
                rank);
}

static void try_statistics(struct trial *t)
{
    double lse[DIAGNOSIS_ROWS_MAX], zero[DIAGNOSIS_ROWS_MAX] = {0};
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
    for (int rank = 0; rank < t->c->world_size && t->c->world_size > 1 && !trial_over(t); rank++)
        try_early_delta(t, rank);
    if (team_size(t->c) < t->c->world_size) {
        try_partial_lse(t, 0);
        try_partial_lse(t, 1);
    }
    for (int i = 0; i < t->panel_count; i++)
        memcpy(lse + t->panel_first[i], t->panels[i].lse,
               (size_t)t->panels[i].rows * sizeof(double));
    evaluate_dq(t, lse, zero);
    trial_offer(t, DIAGNOSIS_DELTA, t->tried,
                "delta = rowsum(dO * O) is missing: dS is P * dP instead of P * (dP - delta)");
}

// The same for key rows.
static void try_key_statistics(struct trial *t)
{
    if (t->in->tensor != TENSOR_DK)
        return;
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        double *delta = p->delta;
        double *zeros = calloc((size_t)p->columns, sizeof(double));
        if (!zeros)
            return;
        struct twist right = twist_none(p);
        p->delta = zeros;
        trial_evaluate_panel(t, p, &right, t->panel_first[i], t->tried, t->lse_tried);
        p->delta = delta;
        free(zeros);
    }
    trial_offer(t, DIAGNOSIS_DELTA, t->tried,
                "delta = rowsum(dO * O) is missing: dS is P * dP instead of P * (dP - delta)");
}

void try_twists(struct trial *t)
{
    try_changes(t);
    try_scale(t);
    try_statistics(t);
    try_key_statistics(t);
    try_ghosts(t);
}
