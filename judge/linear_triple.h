// SPDX-License-Identifier: Apache-2.0
// Triples: matrices of values with the bounds of their error and the values of the twin.
#ifndef CPATTN_JUDGE_LINEAR_TRIPLE_H
#define CPATTN_JUDGE_LINEAR_TRIPLE_H

#include "plan/linear.h"

struct triple {
    int64_t rows, columns;
    double *value, *bound, *twin; // [rows][columns]; of a rival only `value`
};

// Unit roundoff of the dtype, and half of its smallest number.
double linear_roundoff(enum case_dtype dtype);
double linear_tiny(enum case_dtype dtype);

// Allocates a triple of zeros. False: memory is short.
bool triple_take(struct triple *t, int64_t rows, int64_t columns);
void triple_clear(struct triple *t);
// Rounds results to the dtype: rounds the twin's values, and adds the rounding error to the bounds.
void triple_round(const struct linear *l, struct triple *t);
// Rounds only the twin's values.
void triple_round_twin(const struct linear *l, struct triple *t);
void linear_free(struct triple out[LINEAR_TENSORS]); // accepts zeroed triples

// First item and number of items of a rank's share of `count`. The first count % ranks ranks have
// one item more.
int64_t share_first(int64_t count, int rank, int ranks);
int64_t share_count(int64_t count, int rank, int ranks);

#endif
