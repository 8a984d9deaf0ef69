// SPDX-License-Identifier: Apache-2.0
#include "judge/diagnosis/variant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/inputs.h"
#include "plan/bias.h"
#include "plan/slice.h"

struct variant variant_none(const struct panel *p)
{
    return (struct variant){.scale = 1,
                            .band = case_band(p->c, p->setup.sequence),
                            .cap = p->c->softcap != 0,
                            .slope = p->c->softcap != 0,
                            .cap_factor = 1,
                            .sinks = 1,
                            .sink_factor = 1};
}

double variant_round(enum case_dtype dtype, double x)
{
    float value = (float)x;
    dtype_round(dtype, &value, 1);
    return value;
}

double variant_round_tf32(double x, bool cut)
{
    float value = (float)x;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits = (bits + (cut ? 0 : 0x1000)) & ~UINT32_C(0x1fff);
    memcpy(&value, &bits, sizeof(bits));
    return value;
}

// Rounds to e4m3, which has 3 mantissa bits; larger numbers become 448, its largest.
static double round_fp8(double x)
{
    int exponent;
    frexp(x, &exponent);
    double step = ldexp(1, (exponent > -5 ? exponent : -5) - 4);
    return fmin(448, nearbyint(x / step) * step);
}

// ---- visibility ---------------------------------------------------------------------------------

// True if `where` includes the pair.
static bool concerns(const struct panel *p, enum variant_where where, int64_t query, int64_t key)
{
    int q, k, size = team_size(p->c);
    switch (where) {
    case WHERE_ALL:
        return true;
    case WHERE_REMOTE:
        break;
    }
    q = p->q_chunks.ranks[chunks_find(&p->q_chunks, query)];
    k = p->k_chunks.ranks[chunks_find(&p->k_chunks, key)];
    return q / size != k / size;
}

static bool band_has(const struct case_band *band, int64_t query, int64_t key)
{
    int64_t distance = key - query + band->shift;
    return (band->left >= SLICE_UNBOUNDED || -band->left <= distance) &&
           (band->right >= SLICE_UNBOUNDED || distance <= band->right);
}

static bool sees(const struct panel *p, const struct variant *t, const struct case_band *right,
                 int64_t query, int64_t key)
{
    bool varianted = band_has(&t->band, query, key);
    if (t->band_where == WHERE_ALL)
        return varianted;
    bool as_it_is = band_has(right, query, key);
    return varianted == as_it_is || !concerns(p, t->band_where, query, key) ? as_it_is : varianted;
}

// ---- logits -------------------------------------------------------------------------------------

static double bias_at(const struct panel *p, int32_t sequence, int head, int64_t query, int64_t key)
{
    float value = 0;
    if (key >= 0 && key < p->c->seqlen_kv && query >= 0 && query < p->c->seqlen_q)
        input_bias(p->c, sequence, head, query, key, 1, &value);
    return value;
}

static double one_bias(const struct panel *p, int head, int64_t query, int64_t key)
{
    return bias_at(p, p->setup.sequence, head, query, key);
}

static double bias_of(const struct panel *p, const struct variant *t, int head, int64_t query,
                      int64_t key)
{
    double right = one_bias(p, head, query, key);
    int64_t edge = p->k_chunks.begin[chunks_find(&p->k_chunks, key)];
    if (t->bias == VARIANT_BIAS_RIGHT || !concerns(p, t->bias_where, query, key))
        return right;
    switch (t->bias) {
    case VARIANT_BIAS_MISSING:
        return 0;
    case VARIANT_BIAS_SCALED:
        return right * case_scale(p->c);
    case VARIANT_BIAS_COLUMN: // the first chunk has no column before it
        return edge + t->bias_shift < 0 ? right : one_bias(p, head, query, key + t->bias_shift);
    case VARIANT_BIAS_ROW:
        return one_bias(p, head, query + t->bias_shift, key);
    case VARIANT_BIAS_HEAD:
        return one_bias(p, (int)(head + t->bias_shift + p->c->heads) % p->c->heads, query, key);
    case VARIANT_BIAS_LOCAL:
        return one_bias(p, head, query, chunks_place(&p->k_chunks, p->c, key));
    case VARIANT_BIAS_SUBTRACTED:
        return -right;
    case VARIANT_BIAS_FIRST:
        return bias_at(p, 0, head, query, key);
    case VARIANT_BIAS_FIRST_HEAD:
        return one_bias(p, 0, query, key);
    case VARIANT_BIAS_SEQUENCE:
        return bias_at(p, (p->setup.sequence + 1) % p->c->batch, head, query, key);
    case VARIANT_BIAS_TRANSPOSED:
        return one_bias(p, head, key, query);
    default:
        return right;
    }
}

struct logit {
    double value, slope;
};

static struct logit capped(const struct panel *p, const struct variant *t, double x, double scale)
{
    double cap = p->c->softcap * t->cap_factor, after = t->cap_first ? scale : 1;
    double tangent = tanh((t->cap_first ? x : x * scale) / cap);
    return (struct logit){cap * tangent * after, t->slope ? 1 - tangent * tangent : 1};
}

static struct logit logit_of(const struct panel *p, const struct variant *t, int head,
                             double product, int64_t query, int64_t key)
{
    double scale = case_scale(p->c);
    if (t->scale != 1 && concerns(p, t->scale_where, query, key))
        scale *= t->scale;
    if (t->rounding == VARIANT_ROUND_PRODUCTS)
        product = variant_round(t->rounded_to, product);
    struct logit x = {product * scale, 1};
    bool first = t->bias == VARIANT_BIAS_CAPPED && scale > 0;
    if (first)
        product += one_bias(p, head, query, key) / scale;
    if (t->cap)
        x = capped(p, t, product, scale);
    if (p->c->bias != BIAS_NONE && !first)
        x.value += bias_of(p, t, head, query, key);
    if (t->rounding == VARIANT_ROUND_LOGITS)
        x.value = variant_round(t->rounded_to, x.value);
    return x;
}

// ---- query rows ---------------------------------------------------------------------------------

// Fills the logits of a row and the slopes of their softcap by position of the key; -inf: the key
// is not visible. Returns the largest logit.
static double row_logits(const struct panel *p, const struct variant *t, int row, double *logits,
                         double *slopes)
{
    struct case_band right = case_band(p->c, p->setup.sequence);
    int64_t query = p->setup.positions[row];
    const double *products = p->products + row * p->columns;
    int64_t seen_as = t->seen_as ? t->seen_as[row] : query;
    double most = -INFINITY;
    for (int64_t key = 0; key < p->keys; key++) {
        int64_t from = t->source ? t->source[key] : key;
        struct logit x = {-INFINITY, 0};
        int64_t key_seen_as = t->key_seen_as ? t->key_seen_as[key] : key;
        bool seen =
            t->seen ? t->seen[row * p->columns + key] : sees(p, t, &right, seen_as, key_seen_as);
        if (from >= 0 && seen)
            x = logit_of(p, t, p->setup.head, products[from], query, key);
        logits[key] = x.value;
        slopes[key] = x.slope;
        most = x.value > most ? x.value : most;
    }
    return most;
}

static double sink_of(const struct panel *p, const struct variant *t)
{
    int heads = p->c->heads, head = (p->setup.head + t->sink_shift + heads) % heads;
    if (t->sinks <= 0)
        return -INFINITY;
    return input_sink(p->c, head) * t->sink_factor + log(t->sinks);
}

// Replaces the logits of a row by weights exp(logit - top). Returns the sum of the weights.
static double row_weights(const struct panel *p, const struct variant *t, double top,
                          double *weights)
{
    double sum = 0;
    for (int64_t key = 0; key < p->keys; key++) {
        double exponent = weights[key] - top;
        if (t->rounding == VARIANT_ROUND_EXPONENTS && isfinite(exponent))
            exponent = variant_round(t->rounded_to, exponent);
        double weight = exp(exponent);
        weights[key] = t->rounding == VARIANT_ROUND_FP8    ? round_fp8(weight)
                       : t->rounding == VARIANT_ROUND_TF32 ? variant_round_tf32(weight, t->cut)
                                                           : weight;
        sum += t->rounding == VARIANT_ROUND_SUMMED ? variant_round(t->rounded_to, weight) : weight;
    }
    return sum;
}

// Fills the probabilities of a row by position of the key. Returns the LSE.
static double row_softmax(const struct panel *p, const struct variant *t, int row, double *weights)
{
    double most = row_logits(p, t, row, weights, p->slope + row * p->columns);
    double sink = sink_of(p, t);
    double top = fmax(fmax(most, sink), t->ghosts > 0 ? 0 : -INFINITY);
    if (top == -INFINITY) {
        memset(weights, 0, (size_t)p->keys * sizeof(double));
        return -INFINITY;
    }
    double sum = exp(sink - top) + t->ghosts * exp(-top) + row_weights(p, t, top, weights);
    for (int64_t key = 0; key < p->keys; key++) {
        weights[key] /= sum;
        if (t->rounding == VARIANT_ROUND_TF32_P)
            weights[key] = variant_round_tf32(weights[key], t->cut);
    }
    return top + log(sum);
}

// Moves values from the positions of keys to the columns of the inputs that the keys use;
// source[key] is the column, -1: none. NULL: the values stay, and the extra columns become 0.
// `place`: scratch.
static void gather(const struct panel *p, const int64_t *source, double *place, double *values)
{
    if (!source) {
        memset(values + p->keys, 0, (size_t)p->extra * sizeof(double));
        return;
    }
    memset(place, 0, (size_t)p->columns * sizeof(double));
    for (int64_t key = 0; key < p->keys; key++)
        if (source[key] >= 0)
            place[source[key]] += values[key];
    memcpy(values, place, (size_t)p->columns * sizeof(double));
}

static const int64_t *source_of_values(const struct variant *t)
{
    return t->values ? t->values : t->source;
}

void variant_forward(struct panel *p, const struct variant *t, double *out, double *lse)
{
    for (int row = 0; row < p->rows; row++) {
        lse[row] = row_softmax(p, t, row, p->p + row * p->columns);
        gather(p, source_of_values(t), p->ds, p->p + row * p->columns);
    }
    memset(out, 0, (size_t)(p->rows * p->c->head_dim_v) * sizeof(double));
    panel_add_v(p, p->p, 0, p->columns, out);
}

bool variant_statistics(struct panel *p)
{
    struct variant right = variant_none(p);
    int d = p->c->head_dim_v;
    double *out = calloc((size_t)p->rows * (size_t)d, sizeof(double));
    if (!out)
        return false;
    variant_forward(p, &right, out, p->lse);
    for (int i = 0; i < p->rows; i++) {
        p->delta[i] = 0;
        for (int k = 0; k < d; k++)
            p->delta[i] += out[i * d + k] * p->row_v[i * d + k];
    }
    free(out);
    return true;
}

void variant_lse(struct panel *p, const struct variant *t, double *lse)
{
    for (int row = 0; row < p->rows; row++)
        lse[row] = row_softmax(p, t, row, p->p + row * p->columns);
}

static void row_gradient(struct panel *p, const struct variant *t, int row, double lse,
                         double delta, bool scores)
{
    double *weights = p->p + row * p->columns, *ds = p->ds + row * p->columns;
    double *slopes = p->slope + row * p->columns;
    const double *dp = p->dp + row * p->columns;
    const int64_t *values = source_of_values(t);
    row_logits(p, t, row, weights, slopes);
    for (int64_t key = 0; key < p->keys; key++) {
        int64_t from = values ? values[key] : key;
        bool seen = weights[key] > -INFINITY && lse > -INFINITY;
        weights[key] = seen ? exp(weights[key] - lse) : 0;
        ds[key] = seen ? weights[key] * (dp[from] - delta) * (scores ? slopes[key] : 1) : 0;
    }
}

void variant_gradient(struct panel *p, const struct variant *t, const double *lse,
                      const double *delta, bool scores)
{
    for (int row = 0; row < p->rows; row++) {
        row_gradient(p, t, row, lse[row], delta[row], scores);
        double *place = p->slope + row * p->columns; // its values are not used after this
        gather(p, t->source, place, p->p + row * p->columns);
        gather(p, t->source, place, p->ds + row * p->columns);
    }
}

void variant_dq(struct panel *p, const struct variant *t, int64_t begin, int64_t end, double *dq)
{
    int64_t count = (int64_t)p->rows * p->c->head_dim_qk;
    double scale = case_scale(p->c) * t->scale;
    memset(dq, 0, (size_t)count * sizeof(double));
    panel_add_qk(p, p->ds, begin, end, dq);
    for (int64_t i = 0; i < count; i++)
        dq[i] *= scale;
}

// ---- key rows -----------------------------------------------------------------------------------

static void key_row(struct panel *p, const struct variant *t, int row, const double *lse,
                    const double *delta)
{
    struct case_band right = case_band(p->c, p->setup.sequence);
    int64_t key = p->setup.positions[row], first = row * p->columns;
    for (int64_t column = 0; column < p->columns; column++) {
        int64_t query = column % p->queries, at = first + column;
        p->p[at] = p->ds[at] = 0;
        bool seen = t->seen ? t->seen[at] : sees(p, t, &right, query, key);
        if (lse[column] == -INFINITY || !seen)
            continue;
        int head = panel_column_head(p, column);
        struct logit x = logit_of(p, t, head, p->products[at], query, key);
        p->p[at] = exp(x.value - lse[column]);
        p->ds[at] = p->p[at] * (p->dp[at] - delta[column]) * x.slope;
    }
}

void variant_key_gradient(struct panel *p, const struct variant *t, const double *lse,
                          const double *delta)
{
    for (int row = 0; row < p->rows; row++)
        key_row(p, t, row, lse, delta);
}
