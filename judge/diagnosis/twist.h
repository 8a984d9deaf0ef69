// SPDX-License-Identifier: Apache-2.0
// The attention of a case, done wrong in some way: what the rows of a panel come out as then.
#ifndef CPATTN_JUDGE_DIAGNOSIS_TWIST_H
#define CPATTN_JUDGE_DIAGNOSIS_TWIST_H

#include "judge/diagnosis/panel.h"

// Which pairs of a query and a key a changed band or bias concerns.
enum twist_where {
    WHERE_ALL,
    WHERE_REMOTE, // the key is held by another team of ranks than the query's
};

enum twist_bias {
    TWIST_BIAS_RIGHT,
    TWIST_BIAS_MISSING,
    TWIST_BIAS_SCALED,     // by the scale of the softmax
    TWIST_BIAS_COLUMN,     // that of key j + bias_shift
    TWIST_BIAS_ROW,        // that of query i + bias_shift
    TWIST_BIAS_HEAD,       // that of the next head
    TWIST_BIAS_LOCAL,      // at the place of the key in the memory of its rank
    TWIST_BIAS_SUBTRACTED, // with the wrong sign
};

struct twist {
    double scale; // times that of the case
    struct case_band band;
    enum twist_where band_where; // elsewhere it is the true one
    bool cap, slope;
    double sinks;  // how often the sink enters; 1 is right
    double ghosts; // keys and values of zeros that are seen besides
    enum twist_bias bias;
    int64_t bias_shift;
    enum twist_where bias_where;
    // By row: the position that the band takes the query for. NULL: its own.
    const int64_t *seen_as;
    // By position of a key: the column whose inputs stand there, -1 for none. NULL: its own.
    const int64_t *source;
};

// The right one.
struct twist twist_none(const struct panel *p);

// ---- query rows ----

// Leaves the probabilities in p->p and fills out [rows][d_v] and lse [rows].
void twist_forward(struct panel *p, const struct twist *t, double *out, double *lse);

// The true LSE and delta of the rows, into the panel. False where memory is short.
bool twist_statistics(struct panel *p) MUST_CHECK;

// LSE alone.
void twist_lse(struct panel *p, const struct twist *t, double *lse);

// P and dS with the given LSE and delta [rows], left in p->p and p->ds: dS of the logits, or of the
// scaled products where `scores`.
void twist_gradient(struct panel *p, const struct twist *t, const double *lse, const double *delta,
                    bool scores);

// dq [rows][d_qk] from what twist_gradient() has left, of columns [begin, end).
void twist_dq(struct panel *p, const struct twist *t, int64_t begin, int64_t end, double *dq);

// ---- key rows ----

// P and dS with the given LSE and delta [columns], left in p->p and p->ds.
void twist_key_gradient(struct panel *p, const struct twist *t, const double *lse,
                        const double *delta);

#endif
