// SPDX-License-Identifier: Apache-2.0
// Test scene for the device references (judge/cuda/reference_cuda.h): a whole case on one rank, and
// helpers that allocate memory.
#ifndef CPATTN_TESTS_CUDA_REFERENCE_SCENE_H
#define CPATTN_TESTS_CUDA_REFERENCE_SCENE_H

#include <stdbool.h>

#include "judge/cuda/reference_cuda.h"

struct reference_scene {
    struct cp_case c;
    struct reference_cuda r;              // of `c`, without inputs and key heads
    struct reference_sequence *sequences; // host memory, [batch]
    struct reference_rows rows[2];        // tiles in device memory, by enum shard_side
    // Rows per head of the bias gradient: one per query of the case, per position, per sequence, or
    // a single one.
    int64_t bias_rows;
};

// `ragged`: tiles have random lengths; else all tiles but the last of a sequence are full.
void reference_scene_init(struct reference_scene *scene, const struct cp_case *c, bool ragged);
void reference_scene_fini(struct reference_scene *scene);

// Row of the bias, and of its gradient, for the query at `position` of a sequence.
int64_t reference_scene_bias_row(const struct reference_scene *scene, int sequence,
                                 int64_t position);

// Number of elements of the bias gradient: [1 or heads][bias_rows][seqlen_kv].
int64_t reference_scene_bias(const struct reference_scene *scene);

// Device memory whose bits are all ones (NaN); zeroed host memory. Both end the program if memory
// is short.
void *reference_scene_room(int64_t bytes);
void *reference_scene_zeros(int64_t count, size_t size);

#endif
