// SPDX-License-Identifier: Apache-2.0
// The mistakes that a diagnosis of linear layers knows.
#ifndef CPATTN_JUDGE_LINEAR_MISTAKE_H
#define CPATTN_JUDGE_LINEAR_MISTAKE_H

enum linear_mistake {
    MISTAKE_NONE,
    MISTAKE_BIAS_OF_ALL,    // every rank adds the bias of the row layer
    MISTAKE_NO_FIRST_BIAS,  // no bias in the column layer
    MISTAKE_NO_BIAS,        // none in the row layer
    MISTAKE_RANK_MISSING,   // the part of rank a is not in the sum
    MISTAKE_RANK_TWICE,     // the part of rank a is in it twice
    MISTAKE_RANK_ALONE,     // it is the part of rank a alone
    MISTAKE_DIVIDED,        // the sum is divided by the number of ranks before the bias is added,
    MISTAKE_MULTIPLIED,     // or multiplied
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

// A layer that is computed with a mistake; `a` and `b` are the ranks that the mistake names.
struct linear_variant {
    enum linear_mistake mistake;
    int a, b;
};

#endif
