// SPDX-License-Identifier: Apache-2.0
#include "plan/linear.h"

struct linear_sizes linear_sizes(const struct linear *l)
{
    struct linear_sizes sizes = {l->in_features, l->hidden, l->out_features, 1};
    if (l->layer == LINEAR_COLUMN) {
        sizes.middle = l->out_features;
        sizes.out = 0;
    } else if (l->layer == LINEAR_ROW) {
        sizes.middle = l->in_features;
        sizes.in = 0;
    } else if (l->activation == ACTIVATION_SWIGLU) {
        sizes.gates = 2;
    }
    return sizes;
}

struct linear_share linear_share(int64_t count, int rank, int ranks)
{
    int64_t each = count / ranks, more = count % ranks;
    return (struct linear_share){rank * each + (rank < more ? rank : more), each + (rank < more)};
}

bool linear_is_replicated(const struct linear *l, enum linear_tensor tensor)
{
    if (tensor == LINEAR_B2 || tensor == LINEAR_DB2)
        return true;
    if (l->sequence_parallel)
        return false;
    if (tensor == LINEAR_X || tensor == LINEAR_DX)
        return l->layer != LINEAR_ROW;
    return (tensor == LINEAR_Y || tensor == LINEAR_DY) && l->layer != LINEAR_COLUMN;
}

// The shape of x, y or their gradients. whole: every rank has all `features` features; else its
// share of the middle features.
static struct linear_shape activity(const struct linear *l, int rank, bool whole, int64_t features)
{
    int64_t middle = linear_share(linear_sizes(l).middle, rank, l->world_size).count;
    if (!whole)
        return (struct linear_shape){l->tokens, middle};
    int64_t tokens =
        l->sequence_parallel ? linear_share(l->tokens, rank, l->world_size).count : l->tokens;
    return (struct linear_shape){tokens, features};
}

static struct linear_shape shape_of(const struct linear *l, int rank, enum linear_tensor tensor)
{
    struct linear_sizes sizes = linear_sizes(l);
    int64_t middle = linear_share(sizes.middle, rank, l->world_size).count;
    switch (tensor) {
    case LINEAR_X:
    case LINEAR_DX:
        return activity(l, rank, l->layer != LINEAR_ROW, sizes.in);
    case LINEAR_Y:
    case LINEAR_DY:
        return activity(l, rank, l->layer != LINEAR_COLUMN, sizes.out);
    case LINEAR_W1:
    case LINEAR_DW1:
        return (struct linear_shape){sizes.in > 0 ? sizes.gates * middle : 0, sizes.in};
    case LINEAR_B1:
    case LINEAR_DB1:
        return (struct linear_shape){1, l->bias && sizes.in > 0 ? sizes.gates * middle : 0};
    case LINEAR_W2:
    case LINEAR_DW2:
        return (struct linear_shape){sizes.out, sizes.out > 0 ? middle : 0};
    case LINEAR_B2:
    case LINEAR_DB2:
        return (struct linear_shape){1, l->bias ? sizes.out : 0};
    default:
        return (struct linear_shape){0, 0};
    }
}

struct linear_shape linear_outline(const struct linear *l, int rank, enum linear_tensor tensor)
{
    bool backward = tensor == LINEAR_DY || tensor > LINEAR_Y;
    return backward && !l->training ? (struct linear_shape){0, 0} : shape_of(l, rank, tensor);
}

struct linear_shape linear_shape(const struct linear *l, int rank, enum linear_tensor tensor)
{
    struct linear_shape shape = linear_outline(l, rank, tensor);
    if (shape.rows == 0 || shape.columns == 0)
        shape.rows = shape.columns = 0;
    return shape;
}

int64_t linear_bytes(const struct linear *l, int rank, enum linear_tensor tensor)
{
    struct linear_shape shape = linear_shape(l, rank, tensor);
    return shape.rows * shape.columns * (l->dtype == DTYPE_FP32 ? 4 : 2);
}

const char *linear_tensor_name(const struct linear *l, enum linear_tensor tensor)
{
    static const char *const names[LINEAR_TENSORS] = {"x", "w1", "b1",  "w2",  "b2",  "dy",
                                                      "y", "dx", "dw1", "db1", "dw2", "db2"};
    static const char *const single[LINEAR_TENSORS] = {"x", "w",  "b",  "w",  "b",  "dy",
                                                       "y", "dx", "dw", "db", "dw", "db"};
    return (l->layer == LINEAR_MLP ? names : single)[tensor];
}

double linear_flops(const struct linear *l, int rank)
{
    struct linear_sizes sizes = linear_sizes(l);
    double middle = (double)linear_share(sizes.middle, rank, l->world_size).count;
    double weights = middle * ((double)sizes.in * sizes.gates + (double)sizes.out);
    return (l->training ? 6 : 2) * weights * (double)l->tokens;
}
