// SPDX-License-Identifier: Apache-2.0
#include "plan/weight.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "plan/cost.h"
#include "plan/slice.h"

// Standard deviation of a product of two numbers of TransformerEngine's inputs (judge/inputs.h).
#define TE_PRODUCT_DEVIATION 0.52

// At most this many sequences represent a case.
#define SEQUENCES_LOOKED_AT 8

// Number of logit sizes that are tried for the largest term of the sum.
#define TILTS 32

// ---- keys ---------------------------------------------------------------------------------------

double weight_keys(const struct cp_case *c)
{
    int64_t pairs = 0, queries = 0;
    int32_t count = c->batch < SEQUENCES_LOOKED_AT ? c->batch : SEQUENCES_LOOKED_AT;
    for (int32_t i = 0; i < count; i++) {
        int32_t sequence = (int32_t)((int64_t)i * c->batch / count);
        struct case_band band = case_band(c, sequence);
        struct slice whole = {.q_len = case_length(c, SIDE_Q, sequence),
                              .kv_len = case_length(c, SIDE_KV, sequence),
                              .offset = band.shift,
                              .left = band.left,
                              .right = band.right};
        pairs += slice_pairs(&whole);
        queries += whole.q_len;
    }
    return pairs > queries ? (double)pairs / (double)queries : 1;
}

// ---- logits -------------------------------------------------------------------------------------

struct logits {
    double keys;      // ln of their number, rounded down to a power of two
    double deviation; // standard deviation of a logit
    double softcap;   // 0: none
    double shift;     // subtracted from each logit before the softcap
};

static bool wants_shift(const struct cp_case *c)
{
    return !c->source && c->inputs == INPUTS_SHARP && c->softmax == SOFTMAX_OFF_BY_ONE &&
           c->head_dim_qk > 1;
}

// The logits without a shift. The number of keys is rounded down to a power of two, so that the
// estimates change in steps and no case is near an edge.
static struct logits logits_of(const struct cp_case *c)
{
    struct logits l = {.keys = M_LN2 * ilogb(weight_keys(c)),
                       .deviation = CASE_SHARP_DEVIATION,
                       .softcap = c->softcap};
    if (c->inputs == INPUTS_TE)
        l.deviation = TE_PRODUCT_DEVIATION * case_scale(c) * sqrt(c->head_dim_qk);
    return l;
}

static double bounded(const struct logits *l, double logit)
{
    return l->softcap > 0 ? l->softcap * tanh(logit / l->softcap) : logit;
}

// Estimates ln(sum of exp(logit)) of a query by the largest term. The logits are normal: the share
// of keys with a logit of t * deviation^2 is about exp(-t^2 deviation^2 / 2). If no key is expected
// to have so large a logit, the search ends. *logit: the logit of the largest term, before shift
// and softcap.
static double logsum(const struct logits *l, double *logit)
{
    double variance = l->deviation * l->deviation, most = l->keys + bounded(l, -l->shift);
    *logit = 0;
    for (int i = 1; i <= TILTS; i++) {
        double tilt = (double)i / TILTS, rarity = tilt * tilt * variance / 2;
        double sum = l->keys - rarity + bounded(l, tilt * variance - l->shift);
        if (rarity > l->keys)
            break;
        if (sum > most) {
            most = sum;
            *logit = tilt * variance;
        }
    }
    return most;
}

double weight_logsum(const struct cp_case *c)
{
    struct logits l = logits_of(c);
    double logit;
    return logsum(&l, &logit);
}

// ---- sinks --------------------------------------------------------------------------------------

// An estimate lowered by 1 and rounded down, at least 0. The estimate assumes that rows see a power
// of two of keys; rows with fewer keys are between two estimates.
static int halfway(double sum)
{
    return sum > 1 ? (int)floor(sum - 1) : 0;
}

int weight_shift(const struct cp_case *c)
{
    if (!wants_shift(c))
        return 0;
    struct logits l = logits_of(c);
    double logit;
    l.softcap = 0;
    int shift = halfway(logsum(&l, &logit));
    return c->softcap > 0 && shift > 2 * c->softcap ? (int)(2 * c->softcap) : shift;
}

int weight_sink(const struct cp_case *c)
{
    return halfway(weight_logsum(c));
}

// ---- features without effect --------------------------------------------------------------------

// Relative errors of results above these are certain to be noticed.
struct notice {
    double uniform; // the error is the same in all elements
    double spread;  // the error differs from element to element
};

static struct notice notice_of(const struct cp_case *c)
{
    switch (c->dtype) {
    case DTYPE_BF16:
        return (struct notice){6e-4, 6e-3};
    case DTYPE_FP16:
        return (struct notice){6e-4, 1e-3};
    case DTYPE_FP32:
        break;
    }
    return (struct notice){6e-6, 1e-5};
}

struct sentences {
    char *text;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void say(struct sentences *s, const char *format, ...)
{
    char sentence[CASE_BLIND_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    bool room = s->length < s->size;
    s->length += (size_t)snprintf(room ? s->text + s->length : NULL, room ? s->size - s->length : 0,
                                  "%s%s", s->length > 0 ? "; " : "", sentence);
}

// Errors of LSE that are certain to be noticed, whatever LSE is.
#define LSE_NOTICE 1e-4

// Names the tensors that show that a feature is left out, if that changes LSE by `lse`.
static const char *what_shows(const struct cp_case *c, double lse, bool dsink)
{
    bool shows = lse >= LSE_NOTICE + c->lse_tolerance;
    if (dsink)
        return shows ? "only LSE and dsink are" : "only dsink is";
    return shows ? "only LSE is" : "nothing is";
}

static void say_of_sink(struct sentences *s, const struct cp_case *c)
{
    struct logits l = logits_of(c);
    bool learnable = c->softmax == SOFTMAX_LEARNABLE;
    double logit, sink = learnable && c->inputs == INPUTS_SHARP ? weight_sink(c) : 0;
    if (c->softmax == SOFTMAX_VANILLA)
        return;
    l.shift = weight_shift(c);
    double weight = exp(sink - logsum(&l, &logit));
    if (weight < notice_of(c).uniform)
        say(s,
            "the sink weighs about %.0e of what a query's keys weigh with these inputs; %s sure to "
            "show if it were left out",
            weight, what_shows(c, weight, learnable && c->training));
}

static void say_of_softcap(struct sentences *s, const struct cp_case *c)
{
    struct logits l = logits_of(c);
    double logit;
    if (c->softcap == 0)
        return;
    l.shift = weight_shift(c);
    logsum(&l, &logit);
    double large = fmax(logit - l.shift, 3 * l.deviation), part = large / c->softcap;
    double bent = part * part / 3; // tanh(x) = x - x^3 / 3 + ...
    if (part * part < notice_of(c).spread)
        say(s,
            "the softcap makes the large logits of these inputs less by about %.0e of them; %s "
            "sure "
            "to show if it were left out",
            bent, what_shows(c, bent * large, false));
}

static void say_of_mask(struct sentences *s, const struct cp_case *c)
{
    struct cp_case open = *c;
    int64_t pairs = cost_pairs(c);
    if (pairs == 0) {
        say(s, "no query sees a key");
        return;
    }
    open.window_left = WINDOW_UNBOUNDED;
    if (!case_is_causal(c))
        open.window_right = WINDOW_UNBOUNDED;
    if (case_has_window(c) && cost_pairs(&open) == pairs)
        say(s, "the window hides no key");
    open = *c;
    open.mask = case_is_bottom_right(c) ? MASK_NONE_BOTTOM_RIGHT : MASK_NONE;
    open.window_right = WINDOW_UNBOUNDED;
    if (case_is_causal(c) && cost_pairs(&open) == pairs)
        say(s, "the mask hides no key");
}

static bool is_single(const struct cp_case *c)
{
    for (int32_t i = 0; i < c->batch; i++) {
        struct case_band band = case_band(c, i);
        if (case_length(c, SIDE_KV, i) > 1 && band.left + band.right > 0)
            return false;
    }
    return c->softmax == SOFTMAX_VANILLA;
}

int case_blind(const struct cp_case *c, char *text, size_t size)
{
    struct sentences s = {.text = text, .size = size};
    if (size > 0)
        text[0] = '\0';
    if (c->verify == VERIFY_OFF)
        return 0;
    say_of_mask(&s, c);
    if (is_single(c) && cost_pairs(c) > 0)
        say(&s, "no query sees more than one key: what makes logits shows in LSE at most");
    say_of_sink(&s, c);
    say_of_softcap(&s, c);
    return (int)s.length;
}
