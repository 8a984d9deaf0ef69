// SPDX-License-Identifier: Apache-2.0
// Random slices for tests of the host's work lists, and a tally of the (query, key) pairs that the
// slices admit.
#ifndef CPATTN_TESTS_KERNELS_DRAWN_SLICES_H
#define CPATTN_TESTS_KERNELS_DRAWN_SLICES_H

#include "kernels/attention.h"

#define DRAWN_ROWS_MAX    96
#define DRAWN_SLICES_MAX  6
#define DRAWN_BIAS_STRIDE 1000 // elements between bias rows

struct drawn_slices {
    struct attention_shape shape;
    struct slice slices[DRAWN_SLICES_MAX];
    int32_t count;
};

// pairs[q][k]: how often query row q sees key row k, over all slices. bias[q][k]: sum of the
// indices of the bias elements of these pairs.
struct pair_tally {
    int pairs[DRAWN_ROWS_MAX][DRAWN_ROWS_MAX];
    int64_t bias[DRAWN_ROWS_MAX][DRAWN_ROWS_MAX];
};

// Draws up to DRAWN_SLICES_MAX slices, with random masks and a common random row step. Slices may
// overlap, be empty, or hide all their pairs.
void slices_draw(struct drawn_slices *drawn, uint64_t seed);

// Adds all pairs that slice_visible() admits.
void slices_tally(const struct drawn_slices *drawn, struct pair_tally *tally);

#endif
