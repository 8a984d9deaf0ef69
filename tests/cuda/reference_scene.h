// SPDX-License-Identifier: Apache-2.0
// A case, all of it on one rank, as the references on the device take it; and memory for it.
#ifndef CPATTN_TESTS_CUDA_REFERENCE_SCENE_H
#define CPATTN_TESTS_CUDA_REFERENCE_SCENE_H

#include <stdbool.h>

#include "judge/cuda/reference_cuda.h"

struct reference_scene {
    struct cp_case c;
    struct reference_cuda r; // of `c`, without inputs and key heads
    struct reference_sequence *sequences;
    struct reference_rows rows[2];
    int64_t bias_rows; // of the gradient: of all queries, of a sequence's, or of sequences
};

// `ragged`: tiles of random lengths.
void reference_scene_init(struct reference_scene *scene, const struct cp_case *c, bool ragged);
void reference_scene_fini(struct reference_scene *scene);

// Row of the bias, or of its gradient, that a query of a sequence uses.
int64_t reference_scene_bias_row(const struct reference_scene *scene, int sequence,
                                 int64_t position);

// Elements of the gradient of the bias.
int64_t reference_scene_bias(const struct reference_scene *scene);

// Device memory, all ones; host memory, all zeros. Both end the program if there is none.
void *reference_scene_room(int64_t bytes);
void *reference_scene_zeros(int64_t count, size_t size);

#endif
