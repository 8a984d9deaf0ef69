// SPDX-License-Identifier: Apache-2.0
// What the reference of linear layers is made of: products, and everything between the two layers.
// For judge/linear_reference.c alone.
#ifndef CPATTN_JUDGE_LINEAR_MIDDLE_H
#define CPATTN_JUDGE_LINEAR_MIDDLE_H

#include "judge/linear_draw.h"
#include "judge/linear_point.h"
#include "judge/linear_triple.h"

struct reference {
    const struct linear *l;
    struct linear_sizes sizes;
    bool rival;    // the other GELU, and only values
    double *terms; // room of terms_count
    int64_t terms_count;
    bool failed; // memory was short
};

// ---- products ----

// A product's factors: one with bounds, one exact. `sum` is the number of terms in all.
struct factors {
    const struct triple *a;
    const double *b;
    bool a_transposed, b_transposed;
    bool exact_first; // b' a instead, with b [rows of a][b_columns]
    int64_t b_columns;
    double sum;
};

// to += a b; b has b_count elements.
void product_add(struct reference *r, const struct factors *f, int64_t b_count, struct triple *to);

// ---- between the layers ----

// Some tokens and some features of a rank. x [tokens][in], w1 [gates * features][in], w2
// [out][features], dy [tokens][out]; h, a, da, dh [tokens][features], h and dh for each gate.
struct middle {
    int64_t tokens, features;
    double *x, *w1, *b1, *w2, *dy;
    struct triple h, a, da, dh;
    double *memory;
};

// The features of one rank, some of them, in the whole layer.
struct owned {
    int64_t first;
    const struct linear_some *some;
};

// Room for so many; middle_resize() sets how many there are, and clears what is computed.
bool middle_take(const struct reference *r, struct middle *m, int64_t tokens, int64_t features);
void middle_resize(struct middle *m, int gates, int64_t tokens, int64_t features);
void middle_free(struct middle *m);

struct owned owned_by(const struct reference *r, int rank, const struct linear_some *some);
void middle_draw_weights(const struct reference *r, struct middle *m, struct owned owned);

// Everything up to where ranks or tokens are summed, for tokens whose numbers `tokens` gives.
void middle_compute(struct reference *r, struct middle *m, const int64_t *tokens,
                    struct owned owned);

#endif
