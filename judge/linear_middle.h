// SPDX-License-Identifier: Apache-2.0
// Parts of the reference of linear layers: products, and everything between the two layers. Used
// only by judge/linear_reference.c.
#ifndef CPATTN_JUDGE_LINEAR_MIDDLE_H
#define CPATTN_JUDGE_LINEAR_MIDDLE_H

#include "judge/linear_draw.h"
#include "judge/linear_point.h"
#include "judge/linear_triple.h"

struct reference {
    const struct linear *l;
    struct linear_sizes sizes;
    bool rival;    // uses the other GELU, and computes only values
    double *terms; // scratch [terms_count]
    int64_t terms_count;
    bool failed; // memory was short
};

// ---- products ----

// The factors of a product: `a` with bounds and a twin, `b` exact. `sum`: number of terms of the
// whole sum, of which this product may be a part.
struct factors {
    const struct triple *a;
    const double *b;
    bool a_transposed, b_transposed;
    bool exact_first; // b' a instead, with b [rows of a][b_columns]
    int64_t b_columns;
    double sum;
};

// to += a b, for values, bounds and the twin. b has b_count elements.
void product_add(struct reference *r, const struct factors *f, int64_t b_count, struct triple *to);

// ---- between the layers ----

// Some tokens and some features of a rank. Inputs: x [tokens][in], w1 [gates * features][in], b1
// [gates * features], w2 [out][features], dy [tokens][out]. Computed: h = x w1' + b1, a =
// activation(h), and the gradients da and dh. a and da are [tokens][features], h and dh
// [tokens][gates * features].
struct middle {
    int64_t tokens, features;
    double *x, *w1, *b1, *w2, *dy;
    struct triple h, a, da, dh;
    double *memory;
};

// Some features of one rank. `first`: the rank's first feature in the whole layer, from which
// `some` counts.
struct owned {
    int64_t first;
    const struct linear_some *some;
};

// middle_take() allocates memory for this many tokens and features. middle_resize() sets their
// actual numbers and clears h, a, da and dh.
bool middle_take(const struct reference *r, struct middle *m, int64_t tokens, int64_t features);
void middle_resize(struct middle *m, int gates, int64_t tokens, int64_t features);
void middle_free(struct middle *m);

struct owned owned_by(const struct reference *r, int rank, const struct linear_some *some);
void middle_draw_weights(const struct reference *r, struct middle *m, struct owned owned);

// Computes everything before the sums over ranks or tokens. `tokens`: the tokens' indices in the
// whole layer.
void middle_compute(struct reference *r, struct middle *m, const int64_t *tokens,
                    struct owned owned);

#endif
