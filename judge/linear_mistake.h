// SPDX-License-Identifier: Apache-2.0
// The mistakes that the diagnosis of linear layers recognizes.
#ifndef CPATTN_JUDGE_LINEAR_MISTAKE_H
#define CPATTN_JUDGE_LINEAR_MISTAKE_H

enum linear_mistake {
    MISTAKE_NONE,
    MISTAKE_BIAS_OF_ALL,    // every rank adds the bias of the row layer
    MISTAKE_NO_FIRST_BIAS,  // the bias of the column layer is missing
    MISTAKE_NO_BIAS,        // the bias of the row layer is missing
    MISTAKE_RANK_MISSING,   // the part of rank a is missing from the sum
    MISTAKE_RANK_TWICE,     // the part of rank a is in the sum twice
    MISTAKE_RANK_ALONE,     // the sum is the part of rank a alone
    MISTAKE_DIVIDED,        // the sum, before the bias, is divided by the number of ranks
    MISTAKE_MULTIPLIED,     // the sum, before the bias, is multiplied by the number of ranks
    MISTAKE_SHARDS_SWAPPED, // ranks a and b have each other's weights of the row layer
    MISTAKE_OTHER_SHARD,    // weights are those of rank a
    MISTAKE_TOKENS_X,       // tokens of ranks a and b are exchanged in x
    MISTAKE_TOKENS_DY,      // tokens of ranks a and b are exchanged in dy
    MISTAKE_TOKENS_BOTH,    // tokens of ranks a and b are exchanged in x and dy
    MISTAKE_TOKENS_MISSING, // gradients of weights lack the tokens of rank a
    MISTAKE_TOKENS_OF_ONE,  // gradients of weights have the tokens of rank a alone
    MISTAKE_NO_ACTIVATION,  // the activation is missing in the forward pass
    MISTAKE_NO_SLOPE,       // the activation's slope is missing in the backward pass
    MISTAKE_OTHER_GELU,     // GELU with erf instead of tanh, or vice versa
    MISTAKE_GATES_SWAPPED,  // SwiGLU with g and u exchanged
    LINEAR_MISTAKES
};

// A layer with a mistake. a, b: the ranks of the mistake.
struct linear_variant {
    enum linear_mistake mistake;
    int a, b;
};

#endif
