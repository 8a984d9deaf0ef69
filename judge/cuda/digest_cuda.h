// SPDX-License-Identifier: Apache-2.0
// Digests of device memory (judge/digest.h).
#ifndef CPATTN_JUDGE_CUDA_DIGEST_CUDA_H
#define CPATTN_JUDGE_CUDA_DIGEST_CUDA_H

#include <stdint.h>

#include "common/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

// Enqueues the sum over `bytes` bytes on the queue's stream; `data` is aligned to 8 bytes. After
// queue_finish() the result equals digest_sum() of the same bytes on the host; pass it to
// digest_join(). NULL: memory is short; the queue stores the error.
const uint64_t *digest_cuda_sum(struct cuda_queue *queue, const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
