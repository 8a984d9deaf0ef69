// SPDX-License-Identifier: Apache-2.0
#include "judge/linear_variant.h"

#include <cblas.h>
#include <string.h>

#include "judge/linear_point.h"

// Index of the token that is read in place of token i. `one`: MISTAKE_TOKENS_X when x is read,
// MISTAKE_TOKENS_DY when dy is read.
static int64_t token_read(const struct linear_sample *m, struct linear_variant t,
                          enum linear_mistake one, int64_t i)
{
    int ranks = m->l->world_size;
    if (t.mistake != MISTAKE_TOKENS_BOTH && t.mistake != one)
        return i;
    int owner = linear_sample_owner(m, linear_sample_token(m, i));
    int other = owner == t.a ? t.b : owner == t.b ? t.a : -1;
    if (other < 0)
        return i;
    if (!m->of_all_tokens)
        return m->partner[i * SAMPLE_PAIRS + other];
    int64_t at = i - share_first(m->l->tokens, owner, ranks);
    return at < share_count(m->l->tokens, other, ranks)
               ? share_first(m->l->tokens, other, ranks) + at
               : i;
}

// True if the sum over tokens includes the token.
static bool token_counts(const struct linear_sample *m, struct linear_variant t, int64_t i)
{
    if (t.mistake != MISTAKE_TOKENS_MISSING && t.mistake != MISTAKE_TOKENS_OF_ONE)
        return true;
    bool of_a = linear_sample_owner(m, linear_sample_token(m, i)) == t.a;
    return of_a == (t.mistake == MISTAKE_TOKENS_OF_ONE);
}

static enum activation activation_of(const struct linear_sample *m, struct linear_variant t)
{
    enum activation it = m->l->activation;
    if (t.mistake == MISTAKE_OTHER_GELU)
        return it == ACTIVATION_GELU ? ACTIVATION_GELU_TANH : ACTIVATION_GELU;
    return it;
}

// Indices of one token in x and in dy, and of one feature in the weights of the first and of the
// second layer.
struct spot {
    int64_t x, dy, first, second;
};

struct values {
    double a, dh[2];
};

static struct values between(const struct linear_sample *m, struct linear_variant t, struct spot s)
{
    int64_t known = m->known_features;
    double bias = t.mistake == MISTAKE_NO_FIRST_BIAS ? 0 : 1;
    const double *h = m->h + s.x * m->gates * known + s.first, *b = m->b1 + s.first;
    double d = m->needs_d ? m->d[s.dy * known + s.second] : 0;
    struct values v = {d, {d, 0}};
    if (m->needs_h)
        v.a = h[0] + bias * b[0];
    if (m->l->layer != LINEAR_MLP)
        return v;
    bool gated = m->gates == 2;
    int swapped = gated && t.mistake == MISTAKE_GATES_SWAPPED;
    double gate[2] = {v.a, gated ? h[known] + bias * b[known] : 1};
    struct curve c = point_curve(activation_of(m, t), gate[swapped]);
    double value = t.mistake == MISTAKE_NO_ACTIVATION ? gate[swapped] : c.value;
    double slope = t.mistake == MISTAKE_NO_SLOPE ? 1 : c.slope, up = gated ? gate[!swapped] : 1;
    v.a = value * up;
    v.dh[swapped] = d * up * slope;
    if (gated)
        v.dh[!swapped] = d * value;
    return v;
}

// Factor of the part of a rank in the sum over ranks.
static double times_of(struct linear_variant t, int rank, int ranks)
{
    bool mine = rank == t.a;
    if (t.mistake == MISTAKE_DIVIDED || t.mistake == MISTAKE_MULTIPLIED)
        return t.mistake == MISTAKE_DIVIDED ? 1.0 / ranks : ranks;
    return t.mistake == MISTAKE_RANK_MISSING && mine  ? 0
           : t.mistake == MISTAKE_RANK_ALONE && !mine ? 0
           : t.mistake == MISTAKE_RANK_TWICE && mine  ? 2
                                                      : 1;
}

// Fills m->between, the left factor of m->w, for one token and the features of a rank.
static void part_fill(struct linear_sample *m, struct linear_variant t, int rank, int64_t i)
{
    int64_t known = m->known_features, own = linear_sample_features(m, rank);
    int other = t.mistake != MISTAKE_SHARDS_SWAPPED ? rank
                : rank == t.a                       ? t.b
                : rank == t.b                       ? t.a
                                                    : rank;
    double times = times_of(t, rank, m->l->world_size);
    bool forward = m->tensor == LINEAR_Y;
    struct spot s = {token_read(m, t, MISTAKE_TOKENS_X, i), token_read(m, t, MISTAKE_TOKENS_DY, i),
                     m->slot[rank], m->slot[other]};
    double *to = m->between + i * (forward ? 1 : m->gates) * known;
    for (int64_t f = 0; f < own; f++, s.first++, s.second++) {
        struct values v = between(m, t, s);
        if (forward)
            to[s.second] = times * v.a;
        for (int gate = 0; gate < m->gates && !forward; gate++)
            to[gate * known + s.first] = times * v.dh[gate];
    }
}

static void sum_compute(struct linear_sample *m, struct linear_variant t, double *values)
{
    bool forward = m->tensor == LINEAR_Y;
    int64_t terms = (forward ? 1 : m->gates) * m->known_features;
    double bias = t.mistake == MISTAKE_NO_BIAS       ? 0
                  : t.mistake == MISTAKE_BIAS_OF_ALL ? m->l->world_size
                                                     : 1;
    for (int64_t i = 0; i < m->tokens; i++)
        for (int rank = 0; rank < m->l->world_size; rank++)
            part_fill(m, t, rank, i);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, forward ? CblasTrans : CblasNoTrans, (int)m->tokens,
                (int)m->columns, (int)terms, 1, m->between, (int)terms, m->w,
                (int)(forward ? terms : m->columns), 0, values, (int)m->columns);
    for (int64_t i = 0; i < m->tokens * m->columns && forward; i++)
        values[i] += bias * m->b2[i % m->columns];
}

static struct spot spot_of(const struct linear_sample *m, struct linear_variant t, int64_t token,
                           int64_t feature)
{
    int64_t at = m->slot[t.mistake == MISTAKE_OTHER_SHARD ? t.a : m->rank] + feature;
    return (struct spot){token_read(m, t, MISTAKE_TOKENS_X, token),
                         token_read(m, t, MISTAKE_TOKENS_DY, token), at, at};
}

// y of a column layer, dx of a row layer.
static void activity_compute(const struct linear_sample *m, struct linear_variant t, double *values)
{
    for (int64_t i = 0; i < m->tokens * m->features; i++) {
        int64_t token = i / m->features;
        struct values v = between(m, t, spot_of(m, t, token, i % m->features));
        values[i] = token_counts(m, t, token) ? v.a : 0;
    }
}

// Computes a sum over tokens: dw1 = dh' x, dw2 = dy' a, db1 = sum of dh, db2 = sum of dy.
static void gradient_compute(struct linear_sample *m, struct linear_variant t, double *values)
{
    bool of_x = m->tensor == LINEAR_DW1, of_a = m->tensor == LINEAR_DW2;
    int64_t n = m->features, wide = of_a ? n : m->gates * n;
    for (int64_t i = 0; i < m->tokens; i++) {
        double counts = token_counts(m, t, i) ? 1 : 0;
        int64_t read = token_read(m, t, of_x ? MISTAKE_TOKENS_X : MISTAKE_TOKENS_DY, i);
        for (int64_t c = 0; c < m->columns; c++)
            m->lines[i * m->columns + c] = counts * m->drawn[read * m->columns + c];
        for (int64_t f = 0; f < n; f++) {
            struct values v = between(m, t, spot_of(m, t, i, f));
            for (int gate = 0; gate < (of_a ? 1 : m->gates); gate++)
                m->between[i * wide + gate * n + f] = counts * (of_a ? v.a : v.dh[gate]);
        }
    }
    const double *left = of_a ? m->lines : m->between, *right = of_a ? m->between : m->lines;
    int64_t rows = of_a ? m->columns : wide, columns = of_a ? n : m->columns;
    memset(values, 0, (size_t)linear_sample_count(m) * sizeof(*values));
    if (of_a || of_x)
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)rows, (int)columns,
                    (int)m->tokens, 1, left, (int)rows, right, (int)columns, 0, values,
                    (int)columns);
    const double *summed = m->tensor == LINEAR_DB1 ? m->between : m->lines;
    int64_t count = linear_sample_count(m);
    for (int64_t i = 0; i < m->tokens * count && !of_a && !of_x; i++)
        values[i % count] += summed[i];
}

void linear_variant_compute(struct linear_sample *m, struct linear_variant variant, double *values)
{
    if (m->of_all_tokens)
        gradient_compute(m, variant, values);
    else if (m->is_sum)
        sum_compute(m, variant, values);
    else
        activity_compute(m, variant, values);
}
