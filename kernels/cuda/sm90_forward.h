// SPDX-License-Identifier: Apache-2.0
// The forward kernels for sm_90a, and which calls they take.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_H
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_H

#include <cuda.h>

#include "kernels/cuda/forward_work.h"
#include "kernels/cuda/internal.h"
#include "kernels/cuda/sm90_tensor.h"

// A launch's argument.
struct sm90_forward {
    CUtensorMap q, k, v, bias;
    struct forward_work work;
    bool bias_mapped; // whether there is a map of the bias
};

// What the loading warp of a thread block tells the others of a tile. 0 blocks: there is none.
struct sm90_task {
    struct work_tile tile;
    struct work_fragment first, last; // of the tile's
    int32_t head;
};

// What an instance knows beside plain attention. All that know any of it know max_logit.
enum sm90_feature { SM90_MAX = 1, SM90_CAP = 2, SM90_BIAS = 4 };

// Instances for what a call may ask for: max_logit alone, softcap, bias, bias without a mask, both.
struct forward_sm90_features {
    struct forward_instance max, cap, bias, bias_full, both;
};

// Whether the device and these kernels can do a call: bf16 or fp16, aligned, with a positive scale.
// A tensor map has as many rows of each residue, so that with a row
// step every sequence must be as long as the longest where that ends the memory.
bool forward_sm90_supports(const struct attention_backend *backend,
                           const struct attention_forward *args);

// The instance for a call that is supported.
const struct forward_instance *forward_sm90_instance(const struct attention_forward *args);

// The argument of a launch with tiles of `rows` queries and blocks of `keys` keys.
cudaError_t sm90_forward_args(const struct forward_work &work, enum case_dtype dtype, int rows,
                              int keys, struct sm90_forward *args);

extern const struct forward_instance forward_sm90_64, forward_sm90_96, forward_sm90_128,
    forward_sm90_192_128, forward_sm90_256;
extern const struct forward_sm90_features forward_sm90_features_64, forward_sm90_features_128,
    forward_sm90_features_192_128, forward_sm90_features_256;

#endif
