// SPDX-License-Identifier: Apache-2.0
#include "judge/linear_triple.h"

#include <stdlib.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/linear_point.h"

#define PIECE 256

double linear_roundoff(enum case_dtype dtype)
{
    return dtype == DTYPE_FP32 ? FP32 : dtype == DTYPE_FP16 ? 0x1p-11 : 0x1p-8;
}

double linear_tiny(enum case_dtype dtype)
{
    return dtype == DTYPE_FP16 ? 0x1p-25 : 0x1p-127;
}

bool triple_take(struct triple *t, int64_t rows, int64_t columns)
{
    size_t count = (size_t)(rows * columns);
    t->rows = rows;
    t->columns = columns;
    t->value = calloc(3 * count + 1, sizeof(double));
    t->bound = t->value ? t->value + count : NULL;
    t->twin = t->value ? t->bound + count : NULL;
    return t->value != NULL;
}

void triple_clear(struct triple *t)
{
    memset(t->value, 0, (size_t)(3 * t->rows * t->columns) * sizeof(double));
}

static void round_doubles(enum case_dtype dtype, double *values, int64_t count)
{
    float some[PIECE];
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        for (int64_t k = 0; k < n; k++)
            some[k] = (float)values[i + k];
        dtype_round(dtype, some, n);
        for (int64_t k = 0; k < n; k++)
            values[i + k] = (double)some[k];
    }
}

void triple_round(const struct linear *l, struct triple *t)
{
    int64_t count = t->rows * t->columns;
    double unit = linear_roundoff(l->dtype), least = linear_tiny(l->dtype);
    for (int64_t i = 0; i < count; i++)
        t->bound[i] = point_bound_rounded(unit, least, t->value[i], t->bound[i]);
    round_doubles(l->dtype, t->twin, count);
}

void triple_round_twin(const struct linear *l, struct triple *t)
{
    round_doubles(l->dtype, t->twin, t->rows * t->columns);
}

void linear_free(struct triple out[LINEAR_TENSORS])
{
    for (int i = 0; i < LINEAR_TENSORS; i++) {
        free(out[i].value);
        out[i] = (struct triple){0};
    }
}

int64_t share_first(int64_t count, int rank, int ranks)
{
    return rank * (count / ranks) + (rank < count % ranks ? rank : count % ranks);
}

int64_t share_count(int64_t count, int rank, int ranks)
{
    return share_first(count, rank + 1, ranks) - share_first(count, rank, ranks);
}
