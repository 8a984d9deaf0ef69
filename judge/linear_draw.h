// SPDX-License-Identifier: Apache-2.0
// The inputs of linear layers, and the tokens and features that are judged.
#ifndef CPATTN_JUDGE_LINEAR_DRAW_H
#define CPATTN_JUDGE_LINEAR_DRAW_H

#include "plan/linear.h"

// `count` numbers out of [first, first + length), spread evenly; at most LINEAR_JUDGED_MAX.
// linear_some_at() returns the i-th.
struct linear_some {
    int64_t first, length, count;
};
int64_t linear_some_at(struct linear_some some, int64_t i);

// Fills `values` with elements [first, first + count) of a row of a tensor of the whole layer,
// rounded to the dtype: X [tokens][in, or the middle of a row layer], W1 [gates * middle][in], B1
// [1][gates * middle], W2 [out][middle], B2 [1][out], DY [tokens][out, or the middle of a column
// layer].
void linear_draw(const struct linear *l, enum linear_tensor tensor, int64_t row, int64_t first,
                 int64_t count, double *values);

// How an element is drawn: word index % 4 of a Philox block, as a signed number, times
// linear_scale(). The block has the counter (index / 4, tensor, LINEAR_PHILOX_WORD) and the seed as
// key. `index` counts the elements of the whole tensor, whose rows have linear_row_length()
// elements.
#define LINEAR_PHILOX_WORD 0x4c696e65u
int64_t linear_row_length(const struct linear *l, enum linear_tensor tensor);
float linear_scale(const struct linear *l, enum linear_tensor tensor);

#endif
