// SPDX-License-Identifier: Apache-2.0
// Cases with an explore_seed: random delays between operations, and NaN where bytes are about to
// arrive. The results must have the same bits.
#ifndef CPATTN_RANK_CUDA_EXPLORATION_H
#define CPATTN_RANK_CUDA_EXPLORATION_H

#include <cuda_runtime_api.h>

#include "rank/cuda/execution.h"

struct exploration {
    uint64_t random; // state; 0: no delays and no NaN
};

// At the start of a plan.
struct exploration exploration_of(const struct plan *plan);

// Delays the stream, or not.
cudaError_t exploration_delay(struct exploration *x, cudaStream_t stream);

// Fills what an exchange receives with NaN, which makes reading before arrival visible.
cudaError_t exploration_poison(const struct exploration *x, const struct cuda_execution *e,
                               const struct op *op, cudaStream_t stream);

#endif
