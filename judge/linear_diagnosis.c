// SPDX-License-Identifier: Apache-2.0
// Names the mistake behind a wrong layer. Each known mistake is computed for some tokens or
// features; the one nearest to the delivered results is reported.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/linear.h"
#include "judge/linear_view.h"

#define SOME_MAX     32  // tokens or features
#define SOME_MIN     4   // of a large layer
#define WORK_MAX     3e9 // FLOPs of one mistake
#define PAIRS_MAX    8   // ranks of which all pairs are tried
#define SINGLES_MAX  16
#define EXPLAINS_MIN 0.9

struct search {
    const struct linear *l;
    struct linear_view view;
    struct triple right; // of the tensor
    double *got;         // as right.value
    double error2;
    int broken; // rules
    struct linear_twist best;
    double explained, factor;
    struct error *error;
};

static enum status compute(const struct search *s, struct linear_twist twist, struct triple *tensor)
{
    struct triple out[LINEAR_TENSORS];
    enum status status =
        linear_view_is_sum(s->l, s->view.tensor)
            ? linear_sums(s->l, s->view.some, twist, out, s->error)
            : linear_shares(s->l, s->view.rank, s->view.some, twist, out, s->error);
    if (status != STATUS_OK)
        return status;
    *tensor = out[s->view.tensor];
    out[s->view.tensor] = (struct triple){0};
    linear_free(out);
    return STATUS_OK;
}

// ---- single mistakes ----

static bool fits(const struct linear *l, struct linear_twist t)
{
    struct linear_sizes s = linear_sizes(l);
    int64_t middle_a = linear_share(s.middle, t.a, l->world_size).count;
    int64_t middle_b = linear_share(s.middle, t.b, l->world_size).count;
    bool gelu = l->activation != ACTIVATION_SWIGLU, mlp = l->layer == LINEAR_MLP;
    switch (t.mistake) {
    case MISTAKE_BIAS_OF_ALL:
    case MISTAKE_NO_BIAS:
        return l->bias && l->layer != LINEAR_COLUMN;
    case MISTAKE_NO_FIRST_BIAS:
        return l->bias && l->layer != LINEAR_ROW;
    case MISTAKE_SHARDS_SWAPPED:
        return t.a != t.b && middle_a == middle_b && l->layer != LINEAR_COLUMN;
    case MISTAKE_TOKENS_X:
    case MISTAKE_TOKENS_DY:
    case MISTAKE_TOKENS_BOTH:
        return t.a != t.b;
    case MISTAKE_RANK_ALONE: // of two ranks the other one is missing
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

// Whether a mistake can affect tensors that are summed over ranks (0), tensors of one rank (1), or
// both.
static bool concerns(const struct search *s, enum linear_mistake mistake)
{
    bool sum = linear_view_is_sum(s->l, s->view.tensor);
    switch (mistake) {
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

static enum status mistake_try(struct search *s, struct linear_twist twist)
{
    struct triple wrong = {0};
    double left2 = 0;
    if (!fits(s->l, twist) || !concerns(s, twist.mistake))
        return STATUS_OK;
    struct linear_sizes sizes = linear_sizes(s->l);
    if (twist.mistake == MISTAKE_OTHER_SHARD &&
        (twist.a == s->view.rank ||
         linear_share(sizes.middle, twist.a, s->l->world_size).count !=
             linear_share(sizes.middle, s->view.rank, s->l->world_size).count))
        return STATUS_OK;
    enum status status = compute(s, twist, &wrong);
    for (int64_t i = 0; i < wrong.rows * wrong.columns && status == STATUS_OK; i++)
        left2 += (s->got[i] - wrong.value[i]) * (s->got[i] - wrong.value[i]);
    free(wrong.value);
    double explained = 1 - left2 / s->error2;
    if (status == STATUS_OK && explained > s->explained) {
        s->best = twist;
        s->explained = explained;
    }
    return status;
}

static enum status mistakes_try(struct search *s)
{
    int ranks = s->l->world_size;
    enum status status = STATUS_OK;
    for (int m = MISTAKE_BIAS_OF_ALL; m < LINEAR_MISTAKES; m++) {
        bool pair = m == MISTAKE_SHARDS_SWAPPED || m == MISTAKE_TOKENS_X ||
                    m == MISTAKE_TOKENS_DY || m == MISTAKE_TOKENS_BOTH;
        bool single = m == MISTAKE_RANK_MISSING || m == MISTAKE_RANK_TWICE ||
                      m == MISTAKE_RANK_ALONE || m == MISTAKE_OTHER_SHARD ||
                      m == MISTAKE_TOKENS_MISSING || m == MISTAKE_TOKENS_OF_ONE;
        int firsts = pair ? PAIRS_MAX : single ? SINGLES_MAX : 1;
        for (int a = 0; a < firsts && a < ranks; a++)
            for (int b = pair ? a + 1 : 0; b < (pair ? PAIRS_MAX : 1) && b < ranks; b++)
                if (status == STATUS_OK)
                    status = mistake_try(s, (struct linear_twist){(enum linear_mistake)m, a, b});
    }
    return status;
}

// A constant factor, if it explains more than any mistake.
static void factor_try(struct search *s)
{
    double along = 0, right2 = 0, left2 = 0;
    int64_t count = s->right.rows * s->right.columns;
    for (int64_t i = 0; i < count; i++) {
        along += s->got[i] * s->right.value[i];
        right2 += s->right.value[i] * s->right.value[i];
    }
    double factor = right2 > 0 ? along / right2 : 1;
    for (int64_t i = 0; i < count; i++)
        left2 += pow(s->got[i] - factor * s->right.value[i], 2);
    double explained = 1 - left2 / s->error2;
    if (explained <= s->explained + 1e-3)
        return;
    s->best.mistake = MISTAKE_NONE;
    s->explained = explained;
    s->factor = factor;
}

// The two definitions of GELU may differ by less than rounding to 16 bits; the slope shows which
// one was used.
static void gelu_try(struct search *s)
{
    struct linear_twist twist = {.mistake = MISTAKE_OTHER_GELU};
    if (s->explained >= EXPLAINS_MIN || !(s->broken & RULE_SLOPE))
        return;
    s->best = twist;
    s->explained = EXPLAINS_MIN;
}

// ---- words ----

static void tell_factor(const struct search *s, const char *name, char text[DIAGNOSIS_TEXT_MAX])
{
    double ranks = s->l->world_size, f = s->factor;
    if (fabs(f) < 1e-3)
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is zero", name);
    else
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is %.4g times what it should be%s", name, f,
                 fabs(f / ranks - 1) < 0.01   ? ": the number of ranks"
                 : fabs(f * ranks - 1) < 0.01 ? ": it is divided by the number of ranks"
                                              : "");
}

// What is wrong with the part of a rank in a sum.
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
    default:
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is the part of rank %d alone, without the sum", name,
                 a);
        return;
    }
}

static void tell(const struct search *s, char text[DIAGNOSIS_TEXT_MAX])
{
    const char *name = linear_tensor_name(s->l, s->view.tensor);
    const char *x = linear_tensor_name(s->l, LINEAR_X), *dy = linear_tensor_name(s->l, LINEAR_DY);
    int a = s->best.a, b = s->best.b;
    switch (s->best.mistake) {
    case MISTAKE_RANK_MISSING:
    case MISTAKE_RANK_TWICE:
    case MISTAKE_RANK_ALONE:
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
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s is computed without the bias of the first layer",
                 name);
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

// Drawing an element takes the time of so many FLOPs.
#define DRAW_WORK 30

// FLOPs of one mistake for `count` tokens or features.
static double work_of(const struct search *s, int64_t count)
{
    struct linear_sizes z = linear_sizes(s->l);
    double wide = (double)(z.in * z.gates + z.out), tokens = (double)s->l->tokens;
    if (linear_view_is_sum(s->l, s->view.tensor))
        return (8 * (double)count + DRAW_WORK) * (double)z.middle * wide;
    return 8 * (double)count * tokens * wide + DRAW_WORK * tokens * (double)(z.in + z.out);
}

// As many tokens or features as WORK_MAX allows; none where it does not allow the least.
static int64_t count_of(const struct search *s, int64_t length)
{
    int64_t count = length < SOME_MAX ? length : SOME_MAX;
    while (count > SOME_MIN && work_of(s, count) > WORK_MAX)
        count /= 2;
    return work_of(s, count) > WORK_MAX ? 0 : count;
}

static enum status search(struct search *s, char text[DIAGNOSIS_TEXT_MAX])
{
    enum status status = compute(s, (struct linear_twist){0}, &s->right);
    int64_t count = status == STATUS_OK ? s->right.rows * s->right.columns : 0;
    s->got = calloc((size_t)count + 1, sizeof(double));
    if (status != STATUS_OK || !s->got || count == 0)
        return status;
    for (int64_t row = 0; row < s->right.rows; row++)
        linear_view_read(&s->view, row, s->right.columns, s->got + row * s->right.columns);
    for (int64_t i = 0; i < count; i++)
        s->error2 += pow(s->got[i] - s->right.value[i], 2);
    if (!isfinite(s->error2)) {
        snprintf(text, DIAGNOSIS_TEXT_MAX, "%s has values that are not finite",
                 linear_tensor_name(s->l, s->view.tensor));
        s->explained = 1;
        return STATUS_OK;
    }
    if (s->error2 == 0)
        return STATUS_OK;
    status = mistakes_try(s);
    if (status == STATUS_OK)
        factor_try(s);
    gelu_try(s);
    if (status == STATUS_OK && s->explained >= EXPLAINS_MIN)
        tell(s, text);
    return status;
}

enum status linear_diagnose(const struct linear *l, int rank,
                            const void *const tensors[LINEAR_TENSORS],
                            const struct figures figures[LINEAR_TENSORS],
                            char text[DIAGNOSIS_TEXT_MAX], double *explained,
                            enum linear_tensor *tensor, struct error *error)
{
    struct search s = {.l = l, .error = error};
    int t = LINEAR_Y;
    text[0] = '\0';
    while (t < LINEAR_TENSORS && figures[t].broken == 0)
        t++;
    *tensor = (enum linear_tensor)t;
    if (t == LINEAR_TENSORS)
        return STATUS_OK;
    s.broken = figures[t].broken;
    struct linear_share held = linear_view_tokens(l, rank);
    struct linear_some some = {held.first, held.count, 0};
    if (!linear_view_is_sum(l, *tensor))
        some = (struct linear_some){
            0, linear_share(linear_sizes(l).middle, rank, l->world_size).count, 0};
    s.view = (struct linear_view){l, rank, *tensor, some, tensors[t]};
    s.view.some.count = count_of(&s, some.length);
    enum status status = STATUS_OK;
    if (s.view.some.count > 0)
        status = search(&s, text);
    *explained = text[0] ? s.explained : 0;
    free(s.right.value);
    free(s.got);
    return status;
}
