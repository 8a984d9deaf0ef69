// SPDX-License-Identifier: Apache-2.0
// The place of the reference's results in the tensors of a rank.
#ifndef CPATTN_JUDGE_LINEAR_VIEW_H
#define CPATTN_JUDGE_LINEAR_VIEW_H

#include "judge/linear_reference.h"

// Rows or columns of a matrix, in another one: row i is number
//     i / count * stride + base + (i % count) * length / count
// So `count` of `length` are spread evenly, and a second gate follows `stride` further on.
struct linear_axis {
    int64_t base, stride, length, count;
};

// The rows and columns of a rank's input in the whole layer's.
void linear_input_axes(const struct linear *l, int rank, enum linear_tensor tensor,
                       struct linear_axis *rows, struct linear_axis *columns);

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

// Rows and columns of the reference in the rank's tensor, the same as linear_view_place() has them.
void linear_view_axes(const struct linear_view *v, int64_t columns_count, struct linear_axis *rows,
                      struct linear_axis *columns);

// Row `row` of the reference as the rank has it: `columns` elements.
void linear_view_read(const struct linear_view *v, int64_t row, int64_t columns, double *values);

// ---- where the tensors are ----

// What the judge does where tensors are: in the memory of the host, or of a device. `queue` is the
// struct cuda_queue of the device; NULL on the host. Errors: RESOURCE_EXHAUSTED when memory is
// short, and those of the device. sums() and shares() are those of judge/linear_reference.h. read()
// gives `rows` x `columns` elements of the reference as the rank has them.
struct linear_tools {
    enum status (*fill)(void *queue, const struct linear *l, int rank, enum linear_tensor tensor,
                        void *data, struct error *error);
    enum status (*sums)(void *queue, const struct linear *l, struct linear_some tokens, bool rival,
                        struct triple out[LINEAR_TENSORS], struct error *error);
    enum status (*shares)(void *queue, const struct linear *l, int rank,
                          struct linear_some features, bool rival,
                          struct triple out[LINEAR_TENSORS], struct error *error);
    enum status (*read)(void *queue, const struct linear_view *v, int64_t rows, int64_t columns,
                        double *values, struct error *error);
};
extern const struct linear_tools linear_tools_host;

#endif
