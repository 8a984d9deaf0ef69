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

// An exchange of messages in device memory between the ranks, called by the judge. The exchange
// runs after all work that is on the queue's stream at start(). Work enqueued on this stream after
// join() runs after the exchange. Neither call waits. All ranks call them in the same order, with
// messages that match those of their peers in list order.
struct swap_cuda {
    enum status (*start)(void *context, const struct message *messages, int count,
                         struct error *error);
    enum status (*join)(void *context, struct error *error);
    void *context;
};

// Number of given inputs in device memory, indexed by enum whole_tensor.
#define VERIFY_CUDA_GIVEN (WHOLE_BIAS + 1)

// The input: a rank's results, and the resources for the verification.
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
    // True: no other ranks take part. The statistics of all queries are computed here, and results
    // that are NULL are not judged. dbias is the rank's whole array, not its share.
    bool alone;
    bool own_sums; // alone: dbias, dsink and max_logit cover only the rank's own queries
    // Only with alone: the spans may have any tokens. The results have token_rows[side] rows
    // without gaps; the format is not sbhd, and there is no dbias.
    bool placed;
    int64_t token_rows[2];
    // Q, K, V, dO and bias of the case's source in device memory, in the layout of judge/source.h;
    // NULL: drawn.
    const void *given[VERIFY_CUDA_GIVEN];
};

#endif
