// SPDX-License-Identifier: Apache-2.0
// A twist is a mistake in the attention of a case: another scale, mask, bias, and so on. These
// functions compute the rows of a panel with that mistake.
#ifndef CPATTN_JUDGE_DIAGNOSIS_TWIST_H
#define CPATTN_JUDGE_DIAGNOSIS_TWIST_H

#include "judge/diagnosis/panel.h"

// The pairs of a query and a key that have a changed band or bias.
enum twist_where {
    WHERE_ALL,
    WHERE_REMOTE, // query and key are held by different teams of ranks
};

enum twist_bias {
    TWIST_BIAS_RIGHT,
    TWIST_BIAS_MISSING,
    TWIST_BIAS_SCALED,     // by the scale of the softmax
    TWIST_BIAS_COLUMN,     // of key j + bias_shift
    TWIST_BIAS_ROW,        // of query i + bias_shift
    TWIST_BIAS_HEAD,       // of the next head
    TWIST_BIAS_LOCAL,      // of the key's place in the memory of its rank
    TWIST_BIAS_SUBTRACTED, // the wrong sign
    TWIST_BIAS_FIRST,      // of the first sequence
};

// What is rounded to `rounded_to` on the way.
enum twist_rounding {
    TWIST_EXACT,
    TWIST_ROUND_PRODUCTS,  // Q.K before the scale
    TWIST_ROUND_LOGITS,    // as they enter the softmax
    TWIST_ROUND_EXPONENTS, // logit - largest logit of the row
    TWIST_ROUND_FP8,       // weights to e4m3, not to `rounded_to`
    TWIST_ROUND_SUMMED,    // weights before they are added up
};

struct twist {
    double scale;                 // a factor of the scale of the case
    enum twist_where scale_where; // other pairs have the scale of the case
    struct case_band band;
    enum twist_where band_where; // other pairs have the band of the case
    bool cap, slope;
    bool cap_first;     // before the scale
    double cap_factor;  // of the softcap; 1 is right
    double sinks;       // how often the sink is counted; 1 is right
    double sink_factor; // of the sink; 1 is right
    int sink_shift;     // the sink of head h + sink_shift
    double ghosts;      // number of additional visible keys with K and V of zero, such as padding
    enum twist_bias bias;
    int64_t bias_shift;
    enum twist_where bias_where;
    // By row: the position of the query for the band. NULL: its own.
    const int64_t *seen_as;
    // By position of a key: its position for the band. NULL: its own.
    const int64_t *key_seen_as;
    // By position of a key: the column of its inputs, -1 for none. NULL: its own.
    const int64_t *source;
    // The same for V alone, where `source` is NULL.
    const int64_t *values;
    enum twist_rounding rounding;
    enum case_dtype rounded_to;
};

// A number rounded to a dtype.
double twist_round(enum case_dtype dtype, double x);

// The twist without an error.
struct twist twist_none(const struct panel *p);

// ---- query rows ----

// Fills p->p with the probabilities, and out [rows][d_v] and lse [rows].
void twist_forward(struct panel *p, const struct twist *t, double *out, double *lse);

// Fills LSE and delta of the panel, without an error. False if memory is short.
bool twist_statistics(struct panel *p) MUST_CHECK;

// Fills lse [rows] alone.
void twist_lse(struct panel *p, const struct twist *t, double *lse);

// Fills p->p and p->ds with P and dS for the given LSE and delta [rows]. dS is the gradient of the
// logits, with `scores` that of the scaled products.
void twist_gradient(struct panel *p, const struct twist *t, const double *lse, const double *delta,
                    bool scores);

// Fills dq [rows][d_qk] from p->ds of columns [begin, end), after twist_gradient().
void twist_dq(struct panel *p, const struct twist *t, int64_t begin, int64_t end, double *dq);

// ---- key rows ----

// Fills p->p and p->ds with P and dS for the given LSE and delta [columns].
void twist_key_gradient(struct panel *p, const struct twist *t, const double *lse,
                        const double *delta);

#endif
