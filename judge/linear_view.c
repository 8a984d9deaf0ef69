// SPDX-License-Identifier: Apache-2.0
#include "judge/linear_view.h"

#include "judge/dtype.h"

#define PIECE 256

bool linear_view_is_sum(const struct linear *l, enum linear_tensor tensor)
{
    return (tensor == LINEAR_Y && l->layer != LINEAR_COLUMN) ||
           (tensor == LINEAR_DX && l->layer != LINEAR_ROW);
}

// The share of a rank in `count` items: that of plan/linear.h, computed without its code.
static struct linear_share dealt(int64_t count, int rank, int ranks)
{
    int64_t each = count / ranks, more = count % ranks;
    int64_t first = rank < more ? rank * (each + 1) : count - (ranks - rank) * each;
    return (struct linear_share){first, rank < more ? each + 1 : each};
}

struct linear_share linear_view_tokens(const struct linear *l, int rank)
{
    if (l->sequence_parallel)
        return dealt(l->tokens, rank, l->world_size);
    return (struct linear_share){0, l->tokens};
}

void linear_input_axes(const struct linear *l, int rank, enum linear_tensor tensor,
                       struct linear_axis *rows, struct linear_axis *columns)
{
    struct linear_sizes sizes = linear_sizes(l);
    struct linear_shape shape = linear_shape(l, rank, tensor);
    struct linear_share own = dealt(sizes.middle, rank, l->world_size);
    struct linear_axis features = {own.first, sizes.middle, own.count, own.count};
    bool narrow = tensor == LINEAR_W2 || (tensor == LINEAR_X && l->layer == LINEAR_ROW) ||
                  (tensor == LINEAR_DY && l->layer == LINEAR_COLUMN);
    bool tokens = tensor == LINEAR_X || tensor == LINEAR_DY;
    *rows = (struct linear_axis){0, 0, shape.rows, shape.rows};
    *columns = (struct linear_axis){0, 0, shape.columns, shape.columns};
    if (tokens && !narrow)
        rows->base = linear_view_tokens(l, rank).first;
    if (tensor == LINEAR_W1)
        *rows = features;
    if (narrow || tensor == LINEAR_B1)
        *columns = features;
}

void linear_view_axes(const struct linear_view *v, int64_t columns_count, struct linear_axis *rows,
                      struct linear_axis *columns)
{
    int64_t own = dealt(linear_sizes(v->l).middle, v->rank, v->l->world_size).count;
    struct linear_axis some = {v->some.first, own, v->some.length, v->some.count};
    *rows = (struct linear_axis){0, 0, INT64_MAX, INT64_MAX};
    *columns = (struct linear_axis){0, 0, columns_count, columns_count};
    if (linear_view_is_sum(v->l, v->tensor)) {
        *rows = some;
        rows->base -= linear_view_tokens(v->l, v->rank).first;
    } else if (v->tensor == LINEAR_DW1) {
        *rows = some;
    } else if (v->tensor != LINEAR_DB2) {
        *columns = some;
    }
}

// Index in the rank's tensor of judged feature i, counted over the features of all gates.
static int64_t feature_at(const struct linear_view *v, int64_t i)
{
    int64_t own = dealt(linear_sizes(v->l).middle, v->rank, v->l->world_size).count;
    return i / v->some.count * own + linear_some_at(v->some, i % v->some.count);
}

struct linear_place linear_view_place(const struct linear_view *v, int64_t row, int64_t column)
{
    struct linear_place place = {row, column};
    if (linear_view_is_sum(v->l, v->tensor))
        place.row = linear_some_at(v->some, row) - linear_view_tokens(v->l, v->rank).first;
    else if (v->tensor == LINEAR_DW1)
        place.row = feature_at(v, row);
    else if (v->tensor != LINEAR_DB2)
        place.column = feature_at(v, column);
    return place;
}

void linear_view_read(const struct linear_view *v, int64_t row, int64_t columns, double *values)
{
    struct linear_shape shape = linear_shape(v->l, v->rank, v->tensor);
    float some[PIECE];
    for (int64_t i = 0; i < columns;) {
        struct linear_place first = linear_view_place(v, row, i);
        int64_t n = 1; // consecutive elements
        while (n < PIECE && i + n < columns &&
               linear_view_place(v, row, i + n).column == first.column + n)
            n++;
        dtype_read(v->l->dtype, v->data, first.row * shape.columns + first.column, n, some);
        for (int64_t k = 0; k < n; k++)
            values[i + k] = (double)some[k];
        i += n;
    }
}
