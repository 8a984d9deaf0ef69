// SPDX-License-Identifier: Apache-2.0
// A variant is the attention of a case with a mistake: another scale, mask, bias, and so on. These
// functions compute the rows of a panel with that mistake.
#ifndef CPATTN_JUDGE_DIAGNOSIS_VARIANT_H
#define CPATTN_JUDGE_DIAGNOSIS_VARIANT_H

#include "judge/diagnosis/panel.h"

// The (query, key) pairs with the changed scale, band or bias.
enum variant_where {
    WHERE_ALL,
    WHERE_REMOTE, // query and key are held by different teams of ranks
};

enum variant_bias {
    VARIANT_BIAS_RIGHT,
    VARIANT_BIAS_MISSING,
    VARIANT_BIAS_SCALED,     // by the scale of the softmax
    VARIANT_BIAS_COLUMN,     // of key j + bias_shift
    VARIANT_BIAS_ROW,        // of query i + bias_shift
    VARIANT_BIAS_HEAD,       // of head h + bias_shift
    VARIANT_BIAS_LOCAL,      // of the key's place in the memory of its rank
    VARIANT_BIAS_SUBTRACTED, // the wrong sign
    VARIANT_BIAS_FIRST,      // of the first sequence
    VARIANT_BIAS_FIRST_HEAD, // of the first head
    VARIANT_BIAS_SEQUENCE,   // of the next sequence
    VARIANT_BIAS_TRANSPOSED, // of query j and key i
    VARIANT_BIAS_CAPPED,     // added before the softcap
};

// The intermediate value that is rounded to `rounded_to`.
enum variant_rounding {
    VARIANT_EXACT,
    VARIANT_ROUND_PRODUCTS,  // Q.K before the scale
    VARIANT_ROUND_LOGITS,    // as they enter the softmax
    VARIANT_ROUND_EXPONENTS, // logit - largest logit of the row
    VARIANT_ROUND_FP8,       // weights to e4m3, not to `rounded_to`
    VARIANT_ROUND_SUMMED,    // weights before they are added up
    VARIANT_ROUND_TF32,      // weights to TF32, not to `rounded_to`
    VARIANT_ROUND_TF32_P,    // probabilities to TF32
};

struct variant {
    double scale;                   // a factor of the scale of the case
    enum variant_where scale_where; // other pairs have the scale of the case
    struct case_band band;
    enum variant_where band_where; // other pairs have the band of the case
    // cap: the softcap is applied. slope: its slope is applied to gradients.
    bool cap, slope;
    bool cap_first;     // the softcap is applied before the scale
    double cap_factor;  // of the softcap; 1 is right
    double sinks;       // how often the sink is counted; 1 is right
    double sink_factor; // of the sink; 1 is right
    int sink_shift;     // the sink of head h + sink_shift
    double ghosts;      // number of additional visible keys with K and V of zero, such as padding
    enum variant_bias bias;
    int64_t bias_shift;
    enum variant_where bias_where;
    // By row: the position of the query for the band. NULL: its own.
    const int64_t *seen_as;
    // By position of a key: its position for the band. NULL: its own.
    const int64_t *key_seen_as;
    // By position of a key: the column of its inputs, -1 for none. NULL: its own.
    const int64_t *source;
    // The same for V alone; NULL: `source`.
    const int64_t *values;
    // [rows][columns]: the pairs that are visible, whatever the band. NULL: those of the band.
    const bool *seen;
    enum variant_rounding rounding;
    enum case_dtype rounded_to;
    bool cut; // TF32 is truncated instead of rounded
};

// A number rounded to a dtype.
double variant_round(enum case_dtype dtype, double x);

// A number rounded to TF32, which has 10 bits behind the point; `cut`: truncated.
double variant_round_tf32(double x, bool cut);

// The variant without a mistake.
struct variant variant_none(const struct panel *p);

// ---- query rows ----

// Fills p->p with the probabilities, and out [rows][d_v] and lse [rows].
void variant_forward(struct panel *p, const struct variant *t, double *out, double *lse);

// Fills p->lse and p->delta with the right values. False if memory is short.
bool variant_statistics(struct panel *p) MUST_CHECK;

// Fills lse [rows] alone.
void variant_lse(struct panel *p, const struct variant *t, double *lse);

// Fills p->p and p->ds with P and dS for the given LSE and delta [rows]. dS is the gradient of the
// logits; with `scores`, the gradient of the scaled products.
void variant_gradient(struct panel *p, const struct variant *t, const double *lse,
                      const double *delta, bool scores);

// Fills dq [rows][d_qk] from p->ds of columns [begin, end), after variant_gradient().
void variant_dq(struct panel *p, const struct variant *t, int64_t begin, int64_t end, double *dq);

// ---- key rows ----

// Fills p->p and p->ds with P and dS for the given LSE and delta [columns].
void variant_key_gradient(struct panel *p, const struct variant *t, const double *lse,
                          const double *delta);

#endif
