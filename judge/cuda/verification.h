// SPDX-License-Identifier: Apache-2.0
// The input of a verification on a device.
#ifndef CPATTN_JUDGE_CUDA_VERIFICATION_H
#define CPATTN_JUDGE_CUDA_VERIFICATION_H

#include "common/arena.h"
#include "common/cuda/device_arena.h"
#include "common/cuda/queue.h"
#include "common/message.h"
#include "judge/results.h"
#include "plan/shard.h"
#include "plan/whole.h"

// A swap of messages in device memory, which the judge calls. The swap runs after all work that is
// on the queue's stream at start(). Work put on this stream after join() runs after the swap.
// Neither call waits. All ranks call them in the same order, with messages that match those of
// their peers in list order.
struct swap_cuda {
    enum status (*start)(void *context, const struct message *messages, int count,
                         struct error *error);
    enum status (*join)(void *context, struct error *error);
    void *context;
};

// Inputs of a case's source in device memory, by enum whole_tensor.
#define VERIFY_CUDA_GIVEN (WHOLE_BIAS + 1)

// What is judged.
struct verification_cuda {
    const struct cp_case *c;
    int rank;
    const struct span *spans[2]; // of the rank, by enum shard_side; host memory
    int span_count[2];
    struct rank_results results; // device memory
    struct cuda_queue *queue;    // ordered after the work that computes the tensors
    struct arena *host;          // has the bytes that verify_cuda_reserve() adds
    struct device_arena *device; // has the bytes that verify_cuda_reserve() adds
    struct swap_cuda swap;       // with the other ranks; not called if there are none
    // True: there are no other ranks. The statistics of all queries are computed here, and results
    // that are NULL are not judged. dbias is the rank's whole array and not its share.
    bool alone;
    bool own_sums; // alone: dbias, dsink and max_logit are over the rank's own queries
    // Alone: the spans have any tokens. The results have token_rows[] rows without gaps; the format
    // is not sbhd, and there is no dbias.
    bool placed;
    int64_t token_rows[2];
    // Q, K, V, dO and bias of the case's source (judge/source.h), laid out as there, in device
    // memory; NULL: drawn.
    const void *given[VERIFY_CUDA_GIVEN];
};

#endif
