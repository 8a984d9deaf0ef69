// SPDX-License-Identifier: Apache-2.0
// Hypotheses of a wrong scale, mask, window, sink, bias or softcap. For rows of a gradient, LSE and
// delta are right, so the hypotheses are about the backward pass only.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/bias.h"
#include "plan/slice.h"

// Value of sink_factor for the scale of the softmax.
#define OF_SCALE (-1)

// Changes of a band, sink, bias or softcap.
struct change {
    enum diagnosis_kind kind;
    const char *text;               // NULL: depends on the mask (try_changes())
    int64_t left, right;            // added to the bounds of the mask
    double left_times, right_times; // factors of the bounds; 0: 1
    bool no_left, no_right;         // without these bounds
    bool of_window;                 // for windows that are bounded on the right
    bool exchanged;                 // left and right bound
    bool counted_on;                // positions continue those of the sequences before
    bool other_corner;              // top left instead of bottom right, or vice versa
    bool made_causal;               // a causal mask in a case without one
    enum variant_where where;
    double sinks, ghosts; // added to those of the variant
    double sink_factor;   // 0: 1
    int sink_shift;
    enum variant_bias bias;
    int64_t bias_shift;
    bool no_cap, no_slope, cap_first;
    double cap_factor; // 0: 1
};

static const struct change changes[] = {
    {DIAGNOSIS_MASK, "the mask admits one key too many", .right = 1},
    {DIAGNOSIS_MASK, "the mask admits one key too few", .right = -1},
    {DIAGNOSIS_MASK, "the mask admits one key too many in the keys of other ranks", .right = 1,
     .where = WHERE_REMOTE},
    {DIAGNOSIS_MASK, "the mask admits one key too few in the keys of other ranks", .right = -1,
     .where = WHERE_REMOTE},
    {DIAGNOSIS_MASK, "the mask is ignored: keys behind the diagonal are seen", .no_right = true},
    {DIAGNOSIS_MASK, "the mask is ignored in the keys of other ranks", .no_right = true,
     .where = WHERE_REMOTE},
    {DIAGNOSIS_MASK, "a causal mask is applied, which the case does not have", .made_causal = true},
    {DIAGNOSIS_MASK, "a causal mask of the other corner is applied, and the case has none",
     .made_causal = true, .other_corner = true},
    {DIAGNOSIS_WINDOW, "the window is one key narrower on the left", .left = -1},
    {DIAGNOSIS_WINDOW, "the window is one key wider on the left", .left = 1},
    {DIAGNOSIS_WINDOW, "the window is ignored on its left", .no_left = true},
    {DIAGNOSIS_WINDOW, "the window is ignored on its right", .no_right = true, .of_window = true},
    {DIAGNOSIS_WINDOW, "the window is ignored on its left in the keys of other ranks",
     .no_left = true, .where = WHERE_REMOTE},
    {DIAGNOSIS_WINDOW, "the window is ignored in the keys of other ranks", .no_left = true,
     .no_right = true, .of_window = true, .where = WHERE_REMOTE},
    {DIAGNOSIS_WINDOW, "the window is one key narrower on the right", .right = -1,
     .of_window = true},
    {DIAGNOSIS_WINDOW, "the window is one key wider on the right", .right = 1, .of_window = true},
    {DIAGNOSIS_WINDOW, "the window is ignored", .no_left = true, .no_right = true,
     .of_window = true},
    {DIAGNOSIS_WINDOW, "the left and the right bound of the window are exchanged",
     .exchanged = true},
    {DIAGNOSIS_WINDOW, "the window has half its size on the left", .left_times = 0.5},
    {DIAGNOSIS_WINDOW, "the window has twice its size on the left", .left_times = 2},
    {DIAGNOSIS_WINDOW, "the window has half its size on the right", .right_times = 0.5,
     .of_window = true},
    {DIAGNOSIS_WINDOW, "the window has twice its size on the right", .right_times = 2,
     .of_window = true},
    {DIAGNOSIS_WINDOW, "the window has half its size on both sides", .left_times = 0.5,
     .right_times = 0.5, .of_window = true},
    {DIAGNOSIS_WINDOW, "the window has twice its size on both sides", .left_times = 2,
     .right_times = 2, .of_window = true},
    {DIAGNOSIS_ALIGNMENT, NULL, .other_corner = true},
    {DIAGNOSIS_ALIGNMENT,
     "the positions of a packed sequence continue those of the sequence before",
     .counted_on = true},
    {DIAGNOSIS_SINK, "the sink is left out of the denominator", .sinks = -1},
    {DIAGNOSIS_SINK, "the sink is in the denominator twice", .sinks = 1},
    {DIAGNOSIS_SINK, "the sink is multiplied by the scale of the softmax", .sink_factor = OF_SCALE},
    {DIAGNOSIS_SINK, "the sink is log2(e) times what it should be: a logarithm of base 2",
     .sink_factor = M_LOG2E},
    {DIAGNOSIS_SINK, "the sink is ln(2) times what it should be: an exponential of base 2",
     .sink_factor = M_LN2},
    {DIAGNOSIS_SINK, "the sink is that of the next head", .sink_shift = 1},
    {DIAGNOSIS_SINK, "the sink is that of the head before", .sink_shift = -1},
    {DIAGNOSIS_BIAS, "the bias is missing", .bias = VARIANT_BIAS_MISSING},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is missing", .bias = VARIANT_BIAS_MISSING,
     .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias is multiplied by the scale of the softmax",
     .bias = VARIANT_BIAS_SCALED},
    {DIAGNOSIS_BIAS, "the bias is subtracted", .bias = VARIANT_BIAS_SUBTRACTED},
    {DIAGNOSIS_BIAS, "the bias is read one column too far to the left", .bias = VARIANT_BIAS_COLUMN,
     .bias_shift = -1},
    {DIAGNOSIS_BIAS, "the bias is read one column too far to the right",
     .bias = VARIANT_BIAS_COLUMN, .bias_shift = 1},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is read one column too far to the left",
     .bias = VARIANT_BIAS_COLUMN, .bias_shift = -1, .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is read one column too far to the right",
     .bias = VARIANT_BIAS_COLUMN, .bias_shift = 1, .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias is read at the place of the key in its rank's memory",
     .bias = VARIANT_BIAS_LOCAL},
    {DIAGNOSIS_BIAS, "the bias is that of the query before", .bias = VARIANT_BIAS_ROW,
     .bias_shift = -1},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is that of the query before",
     .bias = VARIANT_BIAS_ROW, .bias_shift = -1, .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias of keys of other ranks is that of the query after",
     .bias = VARIANT_BIAS_ROW, .bias_shift = 1, .where = WHERE_REMOTE},
    {DIAGNOSIS_BIAS, "the bias is that of the query after", .bias = VARIANT_BIAS_ROW,
     .bias_shift = 1},
    {DIAGNOSIS_BIAS, "the bias is that of the next head", .bias = VARIANT_BIAS_HEAD,
     .bias_shift = 1},
    {DIAGNOSIS_BIAS, "the bias is that of the head before", .bias = VARIANT_BIAS_HEAD,
     .bias_shift = -1},
    {DIAGNOSIS_BIAS, "the bias of every sequence is that of the first", .bias = VARIANT_BIAS_FIRST},
    {DIAGNOSIS_BIAS, "the bias of every head is that of the first",
     .bias = VARIANT_BIAS_FIRST_HEAD},
    {DIAGNOSIS_BIAS, "the bias is that of the next sequence", .bias = VARIANT_BIAS_SEQUENCE},
    {DIAGNOSIS_BIAS, "the bias is transposed: queries read it as keys",
     .bias = VARIANT_BIAS_TRANSPOSED},
    {DIAGNOSIS_BIAS, "the bias is added before the softcap", .bias = VARIANT_BIAS_CAPPED},
    {DIAGNOSIS_SOFTCAP, "the softcap is missing", .no_cap = true},
    {DIAGNOSIS_SOFTCAP, "the slope of the softcap is missing", .no_slope = true},
    {DIAGNOSIS_SOFTCAP, "the softcap is applied before the scale of the softmax",
     .cap_first = true},
    {DIAGNOSIS_SOFTCAP, "the softcap is log2(e) times what it should be", .cap_factor = M_LOG2E},
    {DIAGNOSIS_SOFTCAP, "the softcap is ln(2) times what it should be", .cap_factor = M_LN2},
};

static bool backward(const struct trial *t)
{
    return t->in->tensor != TENSOR_OUT && t->in->tensor != TENSOR_LSE;
}

static bool bias_applies(const struct cp_case *c, enum variant_bias bias)
{
    switch (bias) {
    case VARIANT_BIAS_FIRST:
    case VARIANT_BIAS_SEQUENCE:
        return c->bias != BIAS_NONE && bias_has_batch(c) && c->batch > 1;
    case VARIANT_BIAS_FIRST_HEAD:
        return c->bias != BIAS_NONE && bias_has_heads(c) && c->heads > 1;
    case VARIANT_BIAS_TRANSPOSED:
        return c->bias != BIAS_NONE && bias_has_queries(c);
    case VARIANT_BIAS_CAPPED:
        return c->bias != BIAS_NONE && c->softcap != 0;
    default:
        return c->bias != BIAS_NONE;
    }
}

static bool applies(const struct trial *t, const struct change *x)
{
    const struct cp_case *c = t->c;
    struct case_band band = case_band(c, t->panels[0].setup.sequence);
    bool causal = c->mask == MASK_CAUSAL || c->mask == MASK_CAUSAL_BOTTOM_RIGHT;
    switch (x->kind) {
    case DIAGNOSIS_MASK:
        if (x->made_causal)
            return band.right >= SLICE_UNBOUNDED &&
                   (!x->other_corner || t->panels[0].queries != t->panels[0].keys);
        return causal;
    case DIAGNOSIS_WINDOW:
        if (x->exchanged && (band.left >= SLICE_UNBOUNDED || band.left == band.right))
            return false;
        return x->of_window ? band.right < SLICE_UNBOUNDED && !causal : band.left < SLICE_UNBOUNDED;
    case DIAGNOSIS_ALIGNMENT:
        if (x->counted_on && c->format != FORMAT_THD)
            return false;
        return band.left < SLICE_UNBOUNDED || band.right < SLICE_UNBOUNDED;
    case DIAGNOSIS_SINK: // in the backward pass the LSE contains the sink
        if (c->softmax == SOFTMAX_OFF_BY_ONE && (x->sink_factor != 0 || x->sink_shift != 0))
            return false; // its sink is 0 in all heads
        return c->softmax != SOFTMAX_VANILLA && !backward(t);
    case DIAGNOSIS_BIAS:
        return bias_applies(c, x->bias);
    case DIAGNOSIS_SOFTCAP:
        return c->softcap != 0 && (!x->no_slope || backward(t));
    default:
        return true;
    }
}

static int64_t bound_of(int64_t bound, double times, int64_t more, bool none)
{
    if (none || bound >= SLICE_UNBOUNDED)
        return none ? SLICE_UNBOUNDED : bound + more;
    return (int64_t)((double)bound * (times != 0 ? times : 1)) + more;
}

static struct variant changed(const struct panel *p, const void *with)
{
    const struct change *x = with;
    struct variant t = variant_none(p);
    t.band.left = bound_of(t.band.left, x->left_times, x->left, x->no_left);
    t.band.right = bound_of(t.band.right, x->right_times, x->right, x->no_right);
    if (x->made_causal)
        t.band.right = 0;
    if (x->other_corner)
        t.band.shift = t.band.shift != 0 ? 0 : p->queries - p->keys;
    if (x->exchanged) {
        int64_t left = t.band.left;
        t.band.left = t.band.right;
        t.band.right = left;
    }
    for (int32_t i = 0; i < p->setup.sequence && x->counted_on; i++)
        t.band.shift -= case_length(p->c, SIDE_Q, i);
    t.band_where = t.bias_where = x->where;
    t.sinks += x->sinks;
    t.sink_shift = x->sink_shift;
    if (x->sink_factor != 0)
        t.sink_factor = x->sink_factor == OF_SCALE ? case_scale(p->c) : x->sink_factor;
    t.ghosts = x->ghosts;
    t.cap_first = x->cap_first;
    t.cap_factor = x->cap_factor != 0 ? x->cap_factor : 1;
    t.bias = x->bias;
    t.bias_shift = x->bias_shift;
    t.cap = t.cap && !x->no_cap;
    t.slope = t.slope && !x->no_slope;
    return t;
}

const char *trial_pass(const struct trial *t)
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
        if (x->kind == DIAGNOSIS_SINK && t->c->softmax == SOFTMAX_OFF_BY_ONE)
            trial_offer(t, x->kind, t->tried, "the 1 of the off-by-one softmax%s",
                        text + strlen("the sink"));
        else
            trial_offer(t, x->kind, t->tried, "%s%s", trial_pass(t), text);
    }
}

// Largest number of sinks that is tried, apart from the number of ring steps.
#define SINKS_MOST 8

// Tries a sink that is counted in the partial result of every ring step, or of every split of the
// keys. One of many counts may fit an LSE by chance, so splits are only tried with rows of out.
static void try_repeated_sink(struct trial *t)
{
    int steps = t->c->world_size / team_size(t->c);
    const char *name =
        t->c->softmax == SOFTMAX_OFF_BY_ONE ? "the 1 of the off-by-one softmax" : "the sink";
    for (int times = 3; times <= SINKS_MOST || times <= steps; times++) {
        struct change x = {DIAGNOSIS_SINK, .sinks = times - 1};
        if (times != steps && (times > SINKS_MOST || t->in->tensor != TENSOR_OUT))
            continue;
        if (!applies(t, &x) || trial_over(t))
            return;
        trial_evaluate(t, changed, &x);
        trial_offer(t, x.kind, t->tried, "%s is in the denominator %d times%s", name, times,
                    times == steps ? ": once for each ring step" : "");
    }
}

// Tries additional visible keys of zeros: those that fill up a tile, or a single one.
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
        bool is_sink = count == 1 && t->c->softmax == SOFTMAX_OFF_BY_ONE;
        if (count == 0 || count == before || is_sink)
            continue;
        trial_evaluate(t, changed, &x);
        trial_offer(t, x.kind, t->tried,
                    "padding is visible: the softmax includes %lld key%s of zeros",
                    (long long)count, count == 1 ? "" : "s");
        before = count;
    }
}

// ---- the scale ----------------------------------------------------------------------------------

struct scaling {
    double factor;
    enum variant_where where;
};

static struct variant scaled(const struct panel *p, const void *with)
{
    const struct scaling *x = with;
    struct variant t = variant_none(p);
    t.scale = x->factor;
    t.scale_where = x->where;
    return t;
}

static double scale_energy(struct trial *t, double factor, enum variant_where where)
{
    trial_evaluate(t, scaled, &(struct scaling){factor, where});
    return trial_energy(t, t->tried);
}

// One Gauss-Newton step. Returns the next factor, between half and twice `factor`.
static double scale_step(struct trial *t, double factor, enum variant_where where)
{
    double moved = factor * (1 + 1e-4), up = 0, down = 0;
    trial_evaluate(t, scaled, &(struct scaling){moved, where});
    memcpy(t->moved, t->tried, (size_t)(t->rows * t->dim) * sizeof(double));
    trial_evaluate(t, scaled, &(struct scaling){factor, where});
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

// Names a wrong scale if a factor near this one is that of a common mistake. Returns that factor.
static double scale_name(const struct cp_case *c, double factor, char *text, size_t size)
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
                 {M_LN2, "times ln(2)"},
                 {variant_round(DTYPE_BF16, scale) / scale, "rounded to bf16"}};
    *text = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (fabs(factor / names[i].value - 1) < fmin(5e-3, 0.2 * fabs(1 - 1 / names[i].value))) {
            snprintf(text, size, " (%s)", names[i].name);
            return names[i].value;
        }
    return factor;
}

#define SCALED_LEAST 4 // minimum number of elements, to which a scale does not fit by chance

static void try_scale(struct trial *t, enum variant_where where)
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
        double energy = scale_energy(t, starts[i], where);
        if (energy < least) {
            least = energy;
            best = starts[i];
        }
    }
    for (int i = 0; i < 6 && !trial_over(t); i++) {
        double next = scale_step(t, best, where), energy = scale_energy(t, next, where);
        if (!(energy < least))
            break;
        bool settled = fabs(next - best) < 1e-6 * best;
        best = next;
        least = energy;
        if (settled)
            break;
    }
    char name[40], factor[TRIAL_FACTOR_MAX];
    if (trial_is_one(t, best) || t->rows * t->dim < SCALED_LEAST)
        return;
    double named = scale_name(t->c, best, name, sizeof(name));
    best = scale_energy(t, named, where) < least + t->noise ? named : best;
    trial_factor_text(t, best, factor);
    scale_energy(t, best, where);
    if (fabs(best - M_LN2) < 5e-3 && where == WHERE_ALL && t->in->tensor == TENSOR_OUT) {
        double lse[DIAGNOSIS_ROWS_MAX]; // the LSE, whose base may be right, is not compared
        memcpy(lse, t->lse_tried, sizeof(lse));
        memcpy(t->lse_tried, t->lse_got, sizeof(lse));
        trial_offer(t, DIAGNOSIS_SCALE, t->tried,
                    "the exponential function has base 2 instead of e: log2(e) is missing");
        memcpy(t->lse_tried, lse, sizeof(lse));
    }
    trial_offer(t, DIAGNOSIS_SCALE, t->tried,
                "%sthe softmax scale%s is %s times what it should be%s", trial_pass(t),
                where == WHERE_REMOTE ? " of keys of other ranks" : "", factor, name);
}

void try_variants(struct trial *t)
{
    try_changes(t);
    try_repeated_sink(t);
    try_scale(t, WHERE_ALL);
    if (team_size(t->c) < t->c->world_size && !trial_solved(t))
        try_scale(t, WHERE_REMOTE);
    try_ghosts(t);
}
