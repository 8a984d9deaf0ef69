// SPDX-License-Identifier: Apache-2.0
// Draws a rank's shard of the inputs on the device, with the same bytes as rank/inputs.h on the
// host. Calls only enqueue work on the backend's stream; the backend stores errors.
#ifndef CPATTN_JUDGE_CUDA_INPUTS_CUDA_H
#define CPATTN_JUDGE_CUDA_INPUTS_CUDA_H

#include "common/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "judge/inputs.h"
#include "plan/shard.h"

// As inputs_fill(): the rank's local tensor in device memory, padding NaN. `spans`, host memory,
// are all spans of the rank on the tensor's side.
void inputs_cuda_fill(struct cuda_queue *queue, const struct cp_case *c, enum input_tensor tensor,
                      int rank, const struct span *spans, int count, void *data);

// The tokens of any spans, `step` rows apart. Rows between them do not change.
void inputs_cuda_fill_spans(struct cuda_queue *queue, const struct cp_case *c,
                            enum input_tensor tensor, const struct span *spans, int count,
                            int64_t step, void *data);

// As inputs_fill_bias(). `spans`, host memory, is room for shard_spans_max().
void inputs_cuda_fill_bias(struct cuda_queue *queue, const struct cp_case *c, int rank,
                           struct span *spans, void *data);

// As inputs_fill_sink(): [heads of the case].
void inputs_cuda_fill_sink(struct cuda_queue *queue, const struct cp_case *c, float *sinks);

#ifdef __cplusplus
}
#endif

#endif
