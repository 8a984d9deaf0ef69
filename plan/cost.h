// SPDX-License-Identifier: Apache-2.0
// Lower bounds of the work of a case, for every algorithm, backend and distribution over ranks.
// These are counts, not times.
#ifndef CPATTN_PLAN_COST_H
#define CPATTN_PLAN_COST_H

#include "plan/case.h"

// Sums over all ranks. Operations are floating point additions and multiplications of matrix
// products over visible pairs. Masked pairs, softmax, merges and conversions are not counted. Each
// count is exact up to the rounding of a double.
struct case_cost {
    double drawn;     // elements of Q, K, V and, with training, dO; each is drawn by its owner
    double forward;   // operations in the case's dtype or wider
    double backward;  // the same; 0 without training
    double reference; // operations in fp64 of the cheapest reference; 0 unless verified
};

// The case must pass case_check(). Takes a few operations per sequence with a length of its own.
void case_cost(const struct cp_case *c, struct case_cost *cost);

// Number of visible (query, key) pairs of one head, over all sequences.
int64_t cost_pairs(const struct cp_case *c);

// Operations for `pairs` visible pairs of one query head.
double cost_forward(const struct cp_case *c, double pairs);  // QK', PV
double cost_backward(const struct cp_case *c, double pairs); // QK', dS K, dS'Q; dO V', P'dO

#endif
