// SPDX-License-Identifier: Apache-2.0
// The work of a case, counted: what cannot be left out, whatever the algorithm, the backend and the
// dealing over ranks. Nothing here knows how fast anything is.
#ifndef CPATTN_PLAN_COST_H
#define CPATTN_PLAN_COST_H

#include "plan/case.h"

// Of all ranks together. Operations are floating point additions and multiplications of matrix
// products over visible pairs; what is done to masked pairs, softmax, merges and conversions come
// on top. Each count is exact up to the rounding of a double.
struct case_cost {
    double drawn;     // elements of Q, K, V and, with training, dO; each is drawn by its owner
    double forward;   // operations in the case's dtype or wider
    double backward;  // the same; 0 without training
    double reference; // operations in fp64, of the reference that needs fewest; 0 unless verified
};

// Of a case that case_check() admits. Takes a few operations for each sequence with a length of its
// own.
void case_cost(const struct cp_case *c, struct case_cost *cost);

// (query, key) pairs of one head that the mask admits, over all sequences.
int64_t cost_pairs(const struct cp_case *c);

// Operations of so many visible pairs of one query head.
double cost_forward(const struct cp_case *c, double pairs);  // QK', PV
double cost_backward(const struct cp_case *c, double pairs); // QK', dS K, dS'Q; dO V', P'dO

#endif
