// SPDX-License-Identifier: Apache-2.0
// A sample: some elements of one result of a layer, with everything needed to compute them with any
// mistake. The products x w1' and dy w2 are the same for all mistakes and are computed once.
#ifndef CPATTN_JUDGE_LINEAR_SAMPLE_H
#define CPATTN_JUDGE_LINEAR_SAMPLE_H

#include "judge/linear_draw.h"
#include "judge/linear_triple.h"

// For mistakes that use tokens or features of other ranks, a sample also has the tokens at the same
// place in the first SAMPLE_PAIRS ranks, and features of the first SAMPLE_OTHERS ranks.
#define SAMPLE_PAIRS  8
#define SAMPLE_OTHERS 16

struct linear_sample {
    const struct linear *l;
    int rank;
    enum linear_tensor tensor;
    struct linear_sizes sizes;
    int gates;
    bool is_sum, of_all_tokens; // the result is a sum over ranks; over all tokens
    bool needs_h, needs_d;      // h is filled; d is filled
    // Numbers of sampled tokens, of sampled features of the rank, and of sampled columns of x, y or
    // dy.
    int64_t tokens, features, columns;
    // Dimensions of h and d. The lists token [known_tokens] and feature [known_features] hold
    // indices in the whole layer. A sum over tokens has no list: token i is token i of the layer.
    int64_t known_tokens, known_features;
    int64_t *token, *partner; // partner [tokens][SAMPLE_PAIRS]: see below
    int64_t *feature, *column;
    // partner: index in `token` of the token at the same place in another rank; if there is none,
    // of the token itself. slot: index in `feature` of a rank's first feature; -1: not sampled.
    int64_t slot[WORLD_SIZE_MAX];
    // h [known_tokens][gates][known_features]: x w1', or x of a row layer.
    // d [known_tokens][known_features]: dy w2, or dy of a column layer.
    double *h, *d;
    double *b1, *b2;
    // Sum over ranks: w2 [columns][known_features], or w1 [gates * known_features][columns].
    double *w;
    double *drawn;           // sum over tokens: x or dy [tokens][columns]
    double *between, *lines; // scratch of one mistake
    int64_t *memory_lists;
    double *memory;
};

// Samples a result that the rank has. Sets *sample to NULL if the layer is too large.
// RESOURCE_EXHAUSTED: memory is short.
enum status linear_sample_create(const struct linear *l, int rank, enum linear_tensor tensor,
                                 struct linear_sample **sample, struct error *error) MUST_CHECK;
void linear_sample_destroy(struct linear_sample *m); // accepts NULL

int64_t linear_sample_count(const struct linear_sample *m); // number of elements
// Fills `values` with the sampled elements of the rank's tensor.
void linear_sample_read(const struct linear_sample *m, const void *data, double *values);

// ---- for judge/linear_variant.c ----

// Index in the whole layer of token `i` of h and d.
int64_t linear_sample_token(const struct linear_sample *m, int64_t i);
// The rank that holds a token of the whole layer.
int linear_sample_owner(const struct linear_sample *m, int64_t token);
// Number of features that a rank has.
int64_t linear_sample_features(const struct linear_sample *m, int rank);

#endif
