// SPDX-License-Identifier: Apache-2.0
// Slices drawn at random for tests of the host's work lists, and which pairs of rows they hold.
#ifndef CPATTN_TESTS_KERNELS_DRAWN_SLICES_H
#define CPATTN_TESTS_KERNELS_DRAWN_SLICES_H

#include "kernels/attention.h"

#define DRAWN_ROWS_MAX    96
#define DRAWN_SLICES_MAX  6
#define DRAWN_BIAS_STRIDE 1000 // of bias rows

struct drawn_slices {
    struct attention_shape shape;
    struct slice slices[DRAWN_SLICES_MAX];
    int32_t count;
};

// How often each pair of rows occurs, and the sum of the bias elements that go with it.
struct pair_tally {
    int pairs[DRAWN_ROWS_MAX][DRAWN_ROWS_MAX];
    int64_t bias[DRAWN_ROWS_MAX][DRAWN_ROWS_MAX];
};

// Slices that may overlap, be empty or hide all pairs, with any row step and mask.
void slices_draw(struct drawn_slices *drawn, uint64_t seed);

// Adds what the slices admit by their definition.
void slices_tally(const struct drawn_slices *drawn, struct pair_tally *tally);

#endif
