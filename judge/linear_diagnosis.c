// SPDX-License-Identifier: Apache-2.0
// Names the mistake behind a wrong layer. Each known mistake is computed for some elements; the one
// nearest to the delivered results is reported.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/linear.h"
#include "judge/linear_variant.h"
#include "judge/linear_view.h"

// Minimum share of the error that a reported mistake explains.
#define EXPLAINS_MIN 0.9

struct search {
    const struct linear *l;
    int rank;
    enum linear_tensor tensor;
    struct linear_sample *sample;
    int64_t count;
    double *got, *right, *wrong; // [count]
    double error2;               // energy of got - right
    const struct figures *figures;
    struct linear_variant best;
    double explained, factor; // share of error2 that `best` explains; factor of MISTAKE_NONE
};

// ---- single mistakes ----

static bool fits(const struct linear *l, struct linear_variant t)
{
    struct linear_sizes s = linear_sizes(l);
    int64_t middle_a = linear_share(s.middle, t.a, l->world_size).count;
    int64_t middle_b = linear_share(s.middle, t.b, l->world_size).count;
    bool gelu = l->activation != ACTIVATION_SWIGLU, mlp = l->layer == LINEAR_MLP;
    switch (t.mistake) {
    case MISTAKE_BIAS_OF_ALL:
    case MISTAKE_NO_BIAS:
    case MISTAKE_DIVIDED: // without a bias this is a plain factor
    case MISTAKE_MULTIPLIED:
        return l->bias && l->layer != LINEAR_COLUMN;
    case MISTAKE_NO_FIRST_BIAS:
        return l->bias && l->layer != LINEAR_ROW;
    case MISTAKE_SHARDS_SWAPPED:
        return t.a != t.b && middle_a == middle_b && l->layer != LINEAR_COLUMN;
    case MISTAKE_TOKENS_X:
    case MISTAKE_TOKENS_DY:
    case MISTAKE_TOKENS_BOTH:
        return t.a != t.b;
    case MISTAKE_RANK_ALONE: // with two ranks, MISTAKE_RANK_MISSING says the same
        return l->world_size > 2;
    case MISTAKE_NO_ACTIVATION:
    case MISTAKE_NO_SLOPE:
        return mlp;
    case MISTAKE_OTHER_GELU:
        return mlp && gelu;
    case MISTAKE_GATES_SWAPPED:
        return mlp && !gelu;
    default:
        return true;
    }
}

// True if the mistake can affect the tensor. Some mistakes affect only sums over ranks, some only
// tensors of one rank, most affect both.
static bool concerns(const struct search *s, enum linear_mistake mistake)
{
    bool sum = linear_view_is_sum(s->l, s->tensor);
    switch (mistake) {
    case MISTAKE_DIVIDED:
    case MISTAKE_MULTIPLIED:
        return sum && s->tensor == LINEAR_Y && s->l->world_size > 1;
    case MISTAKE_BIAS_OF_ALL:
    case MISTAKE_RANK_MISSING:
    case MISTAKE_RANK_TWICE:
    case MISTAKE_RANK_ALONE:
    case MISTAKE_SHARDS_SWAPPED:
        return sum;
    case MISTAKE_OTHER_SHARD:
    case MISTAKE_TOKENS_MISSING:
    case MISTAKE_TOKENS_OF_ONE:
        return !sum;
    default:
        return true;
    }
}

// True if rank `other` has as many features as this rank, which may then have used them in place of
// its own.
static bool has_features_like(const struct search *s, int other)
{
    struct linear_sizes sizes = linear_sizes(s->l);
    int ranks = s->l->world_size;
    return other != s->rank &&
           share_count(sizes.middle, other, ranks) == share_count(sizes.middle, s->rank, ranks);
}

static void mistake_try(struct search *s, struct linear_variant variant)
{
    double left2 = 0;
    if (!fits(s->l, variant) || !concerns(s, variant.mistake))
        return;
    if (variant.mistake == MISTAKE_OTHER_SHARD && !has_features_like(s, variant.a))
        return;
    linear_variant_compute(s->sample, variant, s->wrong);
    for (int64_t i = 0; i < s->count; i++)
        left2 += (s->got[i] - s->wrong[i]) * (s->got[i] - s->wrong[i]);
    double explained = 1 - left2 / s->error2;
    if (explained > s->explained) {
        s->best = variant;
        s->explained = explained;
    }
}

static void mistakes_try(struct search *s)
{
    int ranks = s->l->world_size;
    for (int m = MISTAKE_BIAS_OF_ALL; m < LINEAR_MISTAKES; m++) {
        bool pair = m == MISTAKE_SHARDS_SWAPPED || m == MISTAKE_TOKENS_X ||
                    m == MISTAKE_TOKENS_DY || m == MISTAKE_TOKENS_BOTH;
        bool single = m == MISTAKE_RANK_MISSING || m == MISTAKE_RANK_TWICE ||
                      m == MISTAKE_RANK_ALONE || m == MISTAKE_OTHER_SHARD ||
                      m == MISTAKE_TOKENS_MISSING || m == MISTAKE_TOKENS_OF_ONE;
        int firsts = pair                       ? SAMPLE_PAIRS
                     : m == MISTAKE_OTHER_SHARD ? SAMPLE_OTHERS
                     : single                   ? ranks
                                                : 1;
        for (int a = 0; a < firsts && a < ranks; a++)
            for (int b = pair ? a + 1 : 0; b < (pair ? SAMPLE_PAIRS : 1) && b < ranks; b++)
                mistake_try(s, (struct linear_variant){(enum linear_mistake)m, a, b});
    }
}

// A constant factor, if it explains more than any mistake.
static void factor_try(struct search *s)
{
    double along = 0, right2 = 0, left2 = 0;
    for (int64_t i = 0; i < s->count; i++) {
        along += s->got[i] * s->right[i];
        right2 += s->right[i] * s->right[i];
    }
    double factor = right2 > 0 ? along / right2 : 1;
    for (int64_t i = 0; i < s->count; i++)
        left2 += pow(s->got[i] - factor * s->right[i], 2);
    double explained = 1 - left2 / s->error2;
    if (explained <= s->explained + 1e-3)
        return;
    s->best.mistake = MISTAKE_NONE;
    s->explained = explained;
    s->factor = factor;
}

// Truncation to 16 bits makes results smaller by 0.64 to 0.72 units of roundoff, depending on their
// mantissas.
#define CUT_LEAST 0.5
#define CUT_MOST  0.8

// A factor may be smaller than the rounding error and show only in the slope over all elements. The
// rest of the error must then be as small as in right results. True if such a factor is found.
static bool slope_try(struct search *s)
{
    const struct figures *f = s->figures;
    double error2 = f->rmse_rel * f->rmse_rel, slope2 = f->slope * f->slope;
    if (s->explained >= EXPLAINS_MIN || s->best.mistake != MISTAKE_NONE ||
        !(fabs(f->slope) > f->slope_limit) || !(error2 - slope2 <= f->rmse_limit * f->rmse_limit))
        return false;
    s->factor = 1 + f->slope;
    s->explained = fmin(1, slope2 / error2);
    return true;
}

// The two definitions of GELU may differ by less than rounding to 16 bits; the slope shows which
// one was used.
static void gelu_try(struct search *s)
{
    struct linear_variant variant = {.mistake = MISTAKE_OTHER_GELU};
    if (s->explained >= EXPLAINS_MIN || !fits(s->l, variant) || s->figures->broken != RULE_SLOPE)
        return;
    s->best = variant;
    s->explained = EXPLAINS_MIN;
}

// ---- words ----

static void tell_factor(const struct search *s, const char *name, char text[DIAGNOSIS_TEXT_MAX])
{
    double ranks = s->l->world_size, f = s->factor;
    double cut = (1 - f) / linear_roundoff(s->l->dtype);
    if (fabs(f) < 1e-3)
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is zero", name);
    else
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is %.4g times what it should be%s", name, f,
                 cut >= CUT_LEAST && cut <= CUT_MOST
                     ? ", as if bits were cut off instead of rounded to nearest"
                 : ranks == 1                 ? ""
                 : fabs(f / ranks - 1) < 0.01 ? ": the number of ranks"
                 : fabs(f * ranks - 1) < 0.01 ? ": it is divided by the number of ranks"
                                              : "");
}

// Describes a mistake in a sum over ranks, or in the part of one rank.
static void tell_part(const struct search *s, const char *name, char text[DIAGNOSIS_TEXT_MAX])
{
    int a = s->best.a;
    switch (s->best.mistake) {
    case MISTAKE_RANK_MISSING:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s lacks the part of rank %d in the sum", name, a);
        return;
    case MISTAKE_RANK_TWICE:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s counts the part of rank %d twice in the sum", name,
                 a);
        return;
    case MISTAKE_DIVIDED:
    case MISTAKE_MULTIPLIED:
        snprintf(text, DIAGNOSIS_TEXT_MAX,
                 "%s has the sum %s by the number of ranks, before the bias", name,
                 s->best.mistake == MISTAKE_DIVIDED ? "divided" : "multiplied");
        return;
    default:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is the part of rank %d alone, without the sum", name,
                 a);
        return;
    }
}

static void bias_sentence(const struct search *s, char text[DIAGNOSIS_TEXT_MAX])
{
    snprintf(text, DIAGNOSIS_TEXT_MAX,
             s->l->layer == LINEAR_COLUMN ? "%s lacks the bias"
                                          : "%s is computed without the bias of the first layer",
             linear_tensor_name(s->l, s->tensor));
}

static void tell(const struct search *s, char text[DIAGNOSIS_TEXT_MAX])
{
    const char *name = linear_tensor_name(s->l, s->tensor);
    const char *x = linear_tensor_name(s->l, LINEAR_X), *dy = linear_tensor_name(s->l, LINEAR_DY);
    int a = s->best.a, b = s->best.b;
    switch (s->best.mistake) {
    case MISTAKE_RANK_MISSING:
    case MISTAKE_RANK_TWICE:
    case MISTAKE_RANK_ALONE:
    case MISTAKE_DIVIDED:
    case MISTAKE_MULTIPLIED:
        tell_part(s, name, text);
        return;
    case MISTAKE_BIAS_OF_ALL:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s has the bias %d times: every rank adds it", name,
                 s->l->world_size);
        return;
    case MISTAKE_NO_BIAS:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s lacks the bias", name);
        return;
    case MISTAKE_NO_FIRST_BIAS:
        bias_sentence(s, text);
        return;
    case MISTAKE_SHARDS_SWAPPED:
        snprintf(text, DIAGNOSIS_TEXT_MAX,
                 "%s is computed with the second layer's weights of ranks %d and %d exchanged",
                 name, a, b);
        return;
    case MISTAKE_OTHER_SHARD:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is that of the features of rank %d", name, a);
        return;
    case MISTAKE_TOKENS_X:
    case MISTAKE_TOKENS_DY:
    case MISTAKE_TOKENS_BOTH:
        snprintf(
            text, DIAGNOSIS_TEXT_MAX,
            "%s is computed from tokens in the wrong order: those of ranks %d and %d of %s%s%s",
            name, a, b, s->best.mistake == MISTAKE_TOKENS_DY ? dy : x,
            s->best.mistake == MISTAKE_TOKENS_BOTH ? " and " : "",
            s->best.mistake == MISTAKE_TOKENS_BOTH ? dy : "");
        return;
    case MISTAKE_TOKENS_MISSING:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s lacks the tokens of rank %d", name, a);
        return;
    case MISTAKE_TOKENS_OF_ONE:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is computed from the tokens of rank %d only", name,
                 a);
        return;
    case MISTAKE_NO_ACTIVATION:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is computed without the activation", name);
        return;
    case MISTAKE_NO_SLOPE:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is computed without the slope of the activation",
                 name);
        return;
    case MISTAKE_OTHER_GELU:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is computed with the GELU of %s", name,
                 s->l->activation == ACTIVATION_GELU ? "tanh instead of erf"
                                                     : "erf instead of tanh");
        return;
    case MISTAKE_GATES_SWAPPED:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is computed with the two halves of SwiGLU exchanged",
                 name);
        return;
    default:
        tell_factor(s, name, text);
        return;
    }
}

// ---- the search ----

static void search(struct search *s, const void *data, char text[DIAGNOSIS_TEXT_MAX])
{
    linear_sample_read(s->sample, data, s->got);
    linear_variant_compute(s->sample, (struct linear_variant){0}, s->right);
    for (int64_t i = 0; i < s->count; i++)
        s->error2 += pow(s->got[i] - s->right[i], 2);
    if (!isfinite(s->error2)) {
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s has values that are not finite",
                 linear_tensor_name(s->l, s->tensor));
        s->explained = 1;
        return;
    }
    if (s->error2 == 0)
        return;
    mistakes_try(s);
    factor_try(s);
    bool slope = slope_try(s);
    if (!slope)
        gelu_try(s);
    if (slope || s->explained >= EXPLAINS_MIN)
        tell(s, text);
}

enum linear_tensor linear_broken(const struct figures figures[LINEAR_TENSORS])
{
    int t = LINEAR_Y;
    while (t < LINEAR_TENSORS && figures[t].broken == 0)
        t++;
    return (enum linear_tensor)t;
}

enum status linear_diagnose(const struct linear *l, int rank,
                            const void *const tensors[LINEAR_TENSORS],
                            const struct figures figures[LINEAR_TENSORS],
                            char text[DIAGNOSIS_TEXT_MAX], double *explained,
                            enum linear_tensor *tensor, struct error *error)
{
    enum linear_tensor t = linear_broken(figures);
    text[0] = '\0';
    *tensor = t;
    if (t == LINEAR_TENSORS)
        return STATUS_OK;
    struct search s = {.l = l, .rank = rank, .tensor = t, .figures = &figures[t]};
    enum status status = linear_sample_create(l, rank, t, &s.sample, error);
    s.count = s.sample ? linear_sample_count(s.sample) : 0;
    s.got = s.count > 0 ? malloc(3 * (size_t)s.count * sizeof(double)) : NULL;
    if (s.got) {
        s.right = s.got + s.count;
        s.wrong = s.right + s.count;
        search(&s, tensors[t], text);
    } else if (s.count > 0) {
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to diagnose a layer");
    }
    *explained = text[0] ? s.explained : 0;
    linear_sample_destroy(s.sample);
    free(s.got);
    return status;
}
