// SPDX-License-Identifier: Apache-2.0
// Some elements of a result of a layer, with what is needed to compute them with any mistake.
// Products with whole weights are the same for all mistakes and are made once.
#ifndef CPATTN_JUDGE_LINEAR_SAMPLE_H
#define CPATTN_JUDGE_LINEAR_SAMPLE_H

#include "judge/linear_draw.h"
#include "judge/linear_triple.h"

// Tokens are also those in the same place of the first ranks; features those of the first ranks.
#define SAMPLE_PAIRS  8
#define SAMPLE_OTHERS 16

struct linear_sample {
    const struct linear *l;
    int rank;
    enum linear_tensor tensor;
    struct linear_sizes sizes;
    int gates;
    bool is_sum, of_all_tokens; // over ranks; over tokens
    bool needs_h, needs_d;
    // Those looked at: tokens, features of the rank, columns of x, y or dy.
    int64_t tokens, features, columns;
    // What h and d have: tokens [known_tokens], features [known_features], each counted from the
    // whole layer's first. Of a sum over tokens token i is number i.
    int64_t known_tokens, known_features;
    int64_t *token, *partner; // partner [tokens][SAMPLE_PAIRS]: of the same place in a rank
    int64_t *feature, *column;
    int64_t slot[WORLD_SIZE_MAX]; // where a rank's features begin; -1: they are not there
    double *h, *d; // x w1' or x [known_tokens][gates][known_features], dy w2 or dy, of one gate
    double *b1, *b2;
    double *w;               // of a sum over ranks: w2 [columns][known_features], or w1 [][columns]
    double *drawn;           // of a sum over tokens: x or dy [tokens][columns]
    double *between, *lines; // for one mistake
    int64_t *memory_lists;
    double *memory;
};

// Of a result that the rank has. *sample stays NULL where the layer is too large for it.
// RESOURCE_EXHAUSTED: memory is short.
enum status linear_sample_create(const struct linear *l, int rank, enum linear_tensor tensor,
                                 struct linear_sample **sample, struct error *error) MUST_CHECK;
void linear_sample_destroy(struct linear_sample *m); // NULL: nothing

int64_t linear_sample_count(const struct linear_sample *m); // elements
// Fills `values` with these elements of the rank's tensor.
void linear_sample_read(const struct linear_sample *m, const void *data, double *values);

// ---- for judge/linear_variant.c ----

int64_t linear_sample_token(const struct linear_sample *m, int64_t i);   // of the whole layer
int linear_sample_owner(const struct linear_sample *m, int64_t token);   // the rank
int64_t linear_sample_features(const struct linear_sample *m, int rank); // how many a rank has

#endif
