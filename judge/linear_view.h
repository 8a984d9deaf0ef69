// SPDX-License-Identifier: Apache-2.0
// The place of the reference's results in the tensors of a rank.
#ifndef CPATTN_JUDGE_LINEAR_VIEW_H
#define CPATTN_JUDGE_LINEAR_VIEW_H

#include "judge/linear_reference.h"

// Some of a result: what is summed over ranks by tokens, the rest by the rank's features.
struct linear_view {
    const struct linear *l;
    int rank;
    enum linear_tensor tensor;
    struct linear_some some; // tokens of the whole, or features counted from the rank's first
    const void *data;        // the rank's tensor
};

// Whether a result is one of linear_sums(); otherwise it is one of linear_shares().
bool linear_view_is_sum(const struct linear *l, enum linear_tensor tensor);

// The tokens that a rank holds of such a result.
struct linear_share linear_view_tokens(const struct linear *l, int rank);

struct linear_place {
    int64_t row, column;
};

// Of element [row][column] of the reference in the rank's tensor.
struct linear_place linear_view_place(const struct linear_view *v, int64_t row, int64_t column);

// Row `row` of the reference as the rank has it: `columns` elements.
void linear_view_read(const struct linear_view *v, int64_t row, int64_t columns, double *values);

#endif
