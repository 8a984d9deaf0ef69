// SPDX-License-Identifier: Apache-2.0
// Draws a rank's shard of the inputs on the device, with the same bytes as rank/inputs.h on the
// host. Calls only enqueue work on the queue's stream; the queue stores errors.
#ifndef CPATTN_JUDGE_CUDA_INPUTS_CUDA_H
#define CPATTN_JUDGE_CUDA_INPUTS_CUDA_H

#include "common/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "judge/inputs.h"
#include "plan/shard.h"

// Like inputs_fill(): fills the rank's local tensor in device memory, padding with NaN. `spans` are
// all spans of the rank on the tensor's side, in host memory.
void inputs_cuda_fill(struct cuda_queue *queue, const struct cp_case *c, enum input_tensor tensor,
                      int rank, const struct span *spans, int count, void *data);

// Fills the tokens of any spans. Consecutive tokens are `step` rows apart; other rows do not
// change.
void inputs_cuda_fill_spans(struct cuda_queue *queue, const struct cp_case *c,
                            enum input_tensor tensor, const struct span *spans, int count,
                            int64_t step, void *data);

// Like inputs_fill_bias(). `spans` is host memory with room for shard_spans_max().
void inputs_cuda_fill_bias(struct cuda_queue *queue, const struct cp_case *c, int rank,
                           struct span *spans, void *data);

// Like inputs_fill_sink(): fills the sinks [heads of the case] in device memory.
void inputs_cuda_fill_sink(struct cuda_queue *queue, const struct cp_case *c, float *sinks);

#ifdef __cplusplus
}
#endif

#endif
