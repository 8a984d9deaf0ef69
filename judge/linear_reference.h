// SPDX-License-Identifier: Apache-2.0
// Linear layers in fp64, for some tokens or some features; with a deliberate mistake if asked.
#ifndef CPATTN_JUDGE_LINEAR_REFERENCE_H
#define CPATTN_JUDGE_LINEAR_REFERENCE_H

#include "plan/linear.h"

// Values, bounds of the error, and the twin's values.
struct triple {
    int64_t rows, columns;
    double *value, *bound, *twin; // [rows][columns]; of a mistake only `value`
};

// A mistake that is made on purpose.
enum linear_mistake {
    MISTAKE_NONE,
    MISTAKE_BIAS_OF_ALL,    // every rank adds the bias of the row layer
    MISTAKE_NO_FIRST_BIAS,  // no bias in the column layer
    MISTAKE_NO_BIAS,        // none in the row layer
    MISTAKE_RANK_MISSING,   // the part of rank a is not in the sum
    MISTAKE_RANK_TWICE,     // the part of rank a is in it twice
    MISTAKE_SHARDS_SWAPPED, // ranks a and b have each other's weights of the row layer
    MISTAKE_OTHER_SHARD,    // weights are those of rank a
    MISTAKE_TOKENS_X,       // tokens of ranks a and b change places in x,
    MISTAKE_TOKENS_DY,      // in dy,
    MISTAKE_TOKENS_BOTH,    // in both
    MISTAKE_TOKENS_MISSING, // gradients of weights lack the tokens of rank a
    MISTAKE_TOKENS_OF_ONE,  // and have those of rank a alone
    MISTAKE_NO_ACTIVATION,  // forward
    MISTAKE_NO_SLOPE,       // backward
    MISTAKE_OTHER_GELU,     // erf for tanh, or tanh for erf
    MISTAKE_GATES_SWAPPED,  // SwiGLU of u and g
    LINEAR_MISTAKES
};

struct linear_twist {
    enum linear_mistake mistake;
    int a, b;
};

#define LINEAR_SOME_MAX 4096

// `count` numbers, up to LINEAR_SOME_MAX, out of [first, first + length), spread evenly.
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

// What is summed over ranks: y and dx of `tokens`, all columns. Others are empty. Memory belongs to
// the caller: linear_free().
enum status linear_sums(const struct linear *l, struct linear_some tokens,
                        struct linear_twist twist, struct triple out[LINEAR_TENSORS],
                        struct error *error) MUST_CHECK;

// What a rank makes of its own features, for some of these, counted from its first: y of a column
// and dx of a row layer [tokens][features], dw1 [gates * features][in], db1 [1][gates * features],
// dw2 [out][features], db2 [1][out].
enum status linear_shares(const struct linear *l, int rank, struct linear_some features,
                          struct linear_twist twist, struct triple out[LINEAR_TENSORS],
                          struct error *error) MUST_CHECK;

void linear_free(struct triple out[LINEAR_TENSORS]); // all zeros, too

#endif
