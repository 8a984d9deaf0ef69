// SPDX-License-Identifier: Apache-2.0
// Judges the padding in a rank's results on the device, with the figures of judge/padding.h.
#ifndef CPATTN_JUDGE_CUDA_PADDING_CUDA_H
#define CPATTN_JUDGE_CUDA_PADDING_CUDA_H

#include "common/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "common/report.h"
#include "plan/shard.h"

struct padding_tensor {
    enum report_tensor name;
    enum shard_side side;
    const void *data; // device memory: [rows of the rank][heads][dim], in the case's dtype
    int heads, dim;
};

// A judgement in progress, in the queue's staging memory.
struct padding_cuda;

// Enqueues the judgement on the queue's stream. NULL: there is no padding, or memory is short; the
// queue stores this error.
const struct padding_cuda *padding_cuda_judge(struct cuda_queue *queue, const struct cp_case *c,
                                              int rank, const struct padding_tensor *tensor);

// Fills the figures, after queue_finish(). False if there is no padding; then the figures do not
// change.
bool padding_cuda_figures(const struct padding_cuda *padding, struct figures *figures);

#ifdef __cplusplus
}
#endif

#endif
