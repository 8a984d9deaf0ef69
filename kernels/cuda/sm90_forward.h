// SPDX-License-Identifier: Apache-2.0
// The forward kernels for sm_90a: supported calls, instances and the argument of a launch.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_H
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_H

#include <cuda.h>

#include "kernels/cuda/forward_work.h"
#include "kernels/cuda/internal.h"
#include "kernels/cuda/sm90_tensor.h"

// Kernel argument of a launch.
struct sm90_forward {
    CUtensorMap q, k, v, bias;
    struct forward_work work;
    bool bias_mapped; // `bias` is a valid map
};

// A tile for the consumer and bias warps, written by the producer warp of Q, K and V. A tile with 0
// blocks: no tile is left.
struct sm90_task {
    struct work_tile tile;
    struct work_fragment first, last; // fragments of the tile
    int32_t number;                   // for forward_place_of()
    int32_t head;                     // query head
    // Masks of consumer warps. `again`, if not 0: the tile is computed again, and only these warps
    // store results. `lost`: those that need the tile again; each adds itself.
    uint32_t again, lost;
};

// Features of an instance beyond plain attention, as a mask. Every instance with SM90_CAP or
// SM90_BIAS also has SM90_MAX.
enum sm90_feature { SM90_MAX = 1, SM90_CAP = 2, SM90_BIAS = 4 };

// Instances by the features of a call: max_logit alone, softcap, bias, bias without a mask, softcap
// and bias. All have the same head dimensions.
struct forward_sm90_features {
    struct forward_instance max, cap, bias, bias_full, both;
};

// True if the device is an sm_90 with tensor maps and the kernels support the call: bf16 or fp16,
// tensors aligned to 16 bytes, head dimensions that are multiples of 8 and covered by an instance,
// scale >= 1e-12. A tensor map has the same number of positions for every residue of row_step; a
// call is refused if those of a residue in use reach beyond the last row that its slices name.
bool forward_sm90_supports(const struct attention_backend *backend,
                           const struct attention_forward *args);

// Returns the instance for a call; NULL if none has large enough head dimensions.
const struct forward_instance *forward_sm90_instance(const struct attention_forward *args);

// Fills in *args for a launch with tiles of `rows` queries and blocks of `keys` keys, which are the
// box heights of the tensor maps.
cudaError_t sm90_forward_args(const struct forward_work &work, enum case_dtype dtype, int rows,
                              int keys, struct sm90_forward *args);

extern const struct forward_instance forward_sm90_64, forward_sm90_96, forward_sm90_128,
    forward_sm90_192_128, forward_sm90_256;
extern const struct forward_sm90_features forward_sm90_features_64, forward_sm90_features_128,
    forward_sm90_features_192_128, forward_sm90_features_256;

#endif
