// SPDX-License-Identifier: Apache-2.0
// The inputs of linear layers, and the tokens and features that are judged.
#ifndef CPATTN_JUDGE_LINEAR_DRAW_H
#define CPATTN_JUDGE_LINEAR_DRAW_H

#include "plan/linear.h"

// `count` numbers, up to LINEAR_JUDGED_MAX, out of [first, first + length), spread evenly.
struct linear_some {
    int64_t first, length, count;
};
int64_t linear_some_at(struct linear_some some, int64_t i);

// Elements first..first + count of a row of a tensor of the whole layer, as they are in memory: X
// [tokens][in, or the middle of a row layer], W1 [gates * middle][in], B1 [1][gates * middle], W2
// [out][middle], B2 [1][out], DY [tokens][out, or the middle of a column layer].
void linear_draw(const struct linear *l, enum linear_tensor tensor, int64_t row, int64_t first,
                 int64_t count, double *values);

// What an element is drawn with: block index / 4 of a Philox sequence by seed, tensor and this
// word, of it word index % 4 as a signed number, times the scale. `index` counts the elements of
// the whole tensor, whose rows have so many.
#define LINEAR_PHILOX_WORD 0x4c696e65u
int64_t linear_row_length(const struct linear *l, enum linear_tensor tensor);
float linear_scale(const struct linear *l, enum linear_tensor tensor);

#endif
