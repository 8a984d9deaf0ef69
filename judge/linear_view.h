// SPDX-License-Identifier: Apache-2.0
// Maps the results of the reference to their places in the tensors of a rank.
#ifndef CPATTN_JUDGE_LINEAR_VIEW_H
#define CPATTN_JUDGE_LINEAR_VIEW_H

#include "judge/linear_reference.h"

// Maps the rows, or columns, of one matrix to another one. Row i becomes row
//     i / count * stride + base + (i % count) * length / count
// Each gate has `count` rows, spread evenly over `length`; the gates are `stride` apart.
struct linear_axis {
    int64_t base, stride, length, count;
};

// Maps the rows and columns of a rank's input to those of the whole layer's input.
void linear_input_axes(const struct linear *l, int rank, enum linear_tensor tensor,
                       struct linear_axis *rows, struct linear_axis *columns);

// The judged part of a result: some tokens of a sum over ranks; some of the rank's features of
// other results.
struct linear_view {
    const struct linear *l;
    int rank;
    enum linear_tensor tensor;
    struct linear_some some; // tokens of the whole layer, or features counted from the rank's first
    const void *data;        // the rank's tensor
};

// True if a result is one of linear_sums(); the others are results of linear_shares().
bool linear_view_is_sum(const struct linear *l, enum linear_tensor tensor);

// The tokens of a sum over ranks that a rank holds.
struct linear_share linear_view_tokens(const struct linear *l, int rank);

struct linear_place {
    int64_t row, column;
};

// The place in the rank's tensor of element [row][column] of the reference.
struct linear_place linear_view_place(const struct linear_view *v, int64_t row, int64_t column);

// The mapping of linear_view_place() as axes: from the reference to the rank's tensor.
void linear_view_axes(const struct linear_view *v, int64_t columns_count, struct linear_axis *rows,
                      struct linear_axis *columns);

// Reads the rank's elements at the places of row `row` of the reference, which has `columns`.
void linear_view_read(const struct linear_view *v, int64_t row, int64_t columns, double *values);

// ---- where the tensors are ----

// The functions of the judge for tensors in host or device memory. `queue` is the struct cuda_queue
// of the device; NULL on the host. Errors: RESOURCE_EXHAUSTED when memory is short, and those of
// the device. sums() and shares() are those of judge/linear_reference.h. read() reads the rank's
// elements at the places of `rows` x `columns` elements of the reference.
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
