// SPDX-License-Identifier: Apache-2.0
// Triples: matrices of values with the bounds of their error and the values of the twin.
#ifndef CPATTN_JUDGE_LINEAR_TRIPLE_H
#define CPATTN_JUDGE_LINEAR_TRIPLE_H

#include "plan/linear.h"

// Values, bounds of the error, and the twin's values.
struct triple {
    int64_t rows, columns;
    double *value, *bound, *twin; // [rows][columns]; of a mistake only `value`
};

// Unit roundoff of the dtype, and half of its smallest number.
double linear_roundoff(enum case_dtype dtype);
double linear_tiny(enum case_dtype dtype);

// All zeros. False: memory is short.
bool triple_take(struct triple *t, int64_t rows, int64_t columns);
void triple_clear(struct triple *t);
// As what is written to memory.
void triple_round(const struct linear *l, struct triple *t);
// The twin's values alone.
void triple_round_twin(const struct linear *l, struct triple *t);
void linear_free(struct triple out[LINEAR_TENSORS]); // all zeros, too

// What a rank has of `count`, by the definition: the first ranks get one more.
int64_t share_first(int64_t count, int rank, int ranks);
int64_t share_count(int64_t count, int rank, int ranks);

#endif
