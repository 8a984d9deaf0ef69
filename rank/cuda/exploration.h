// SPDX-License-Identifier: Apache-2.0
// Cases with an explore_seed: random delays between operations, and receive regions that hold NaN
// until the bytes arrive. The results must have the same bits.
#ifndef CPATTN_RANK_CUDA_EXPLORATION_H
#define CPATTN_RANK_CUDA_EXPLORATION_H

#include <cuda_runtime_api.h>

#include "rank/cuda/execution.h"

struct exploration {
    uint64_t random; // state; 0: no delays and no NaN
};

// The state at the start of a plan.
struct exploration exploration_of(const struct plan *plan);

// Delays the stream at random: in half of the calls, by up to 0.3 ms.
cudaError_t exploration_delay(struct exploration *x, cudaStream_t stream);

// Fills the receive regions of an exchange with NaN, so that reading before arrival is noticed.
cudaError_t exploration_poison(const struct exploration *x, const struct cuda_execution *e,
                               const struct op *op, cudaStream_t stream);

#endif
