// SPDX-License-Identifier: Apache-2.0
// Verification of a case on the device, dealt over the ranks as judge/cpu/verify.h says. Only
// figures come back.
//
// It has two halves, so that nothing has to wait between the last kernel of the case and the
// figures: the first puts all work on streams, the second reads what has come of it.
#ifndef CPATTN_JUDGE_CUDA_VERIFY_H
#define CPATTN_JUDGE_CUDA_VERIFY_H

#include "common/arena.h"
#include "common/cuda/device_arena.h"
#include "common/cuda/queue.h"
#include "common/message.h"
#include "common/report.h"
#include "judge/results.h"
#include "plan/shard.h"
#include "plan/whole.h"

// A way to swap messages of device memory that is lent to the judge. start() puts the swap behind
// all that is on the queue's stream by then, join() puts what comes on that stream from then on
// behind the swap. Neither waits. All ranks call them in the same order, with messages that match
// those of their peers in list order.
struct swap_cuda {
    enum status (*start)(void *context, const struct message *messages, int count,
                         struct error *error);
    enum status (*join)(void *context, struct error *error);
    void *context;
};

// Inputs of a case's source that are read on the device, by enum whole_tensor.
#define VERIFY_CUDA_GIVEN (WHOLE_BIAS + 1)

// What is judged.
struct verification_cuda {
    const struct cp_case *c;
    int rank;
    const struct span *spans[2]; // of the rank, by enum shard_side; host memory
    int span_count[2];
    struct rank_results results; // device memory
    struct cuda_queue *queue;    // behind all that made the tensors
    struct arena *host;          // has room for what verify_cuda_reserve() adds
    struct device_arena *device; // likewise
    struct swap_cuda swap;       // with the other ranks; not called where there are none
    // For who has results and no other ranks: what is wanted of all queries is computed here, and
    // results that are NULL are not judged. dbias is then all that the rank has of it, not a share.
    bool alone;
    bool own_sums; // alone: dbias, dsink and max_logit are over the rank's own queries
    // Alone: the spans are of any tokens, and the results of token_rows[] rows, one behind the
    // other; format is not sbhd, and there is no dbias.
    bool placed;
    int64_t token_rows[2];
    // Q, K, V, dO and bias of the case's source (judge/source.h) in device memory, as it has them;
    // NULL: the source does not give it, or there is none.
    const void *given[VERIFY_CUDA_GIVEN];
};

// What a rank spends with `verify: auto` (judge/tiles.h): some 0.4 s of an H200 where reference and
// twin come from one pass.
#define VERIFY_CUDA_WORK 2e13

// Adds what verify_cuda_start() takes of the arenas.
enum status verify_cuda_reserve(const struct cp_case *c, int rank, size_t *host_bytes,
                                size_t *device_bytes, struct error *error) MUST_CHECK;

// The same for a verification whose arenas and queue are not there yet.
enum status verify_cuda_reserve_for(const struct verification_cuda *v, size_t *host_bytes,
                                    size_t *device_bytes, struct error *error) MUST_CHECK;

// Puts the reference, its swaps and the comparison on the streams and waits for nothing. All ranks
// of the case must call it. *result is in the host arena. `reference` and `compare` are events of
// the caller's (with timing) to be recorded on the queue's stream behind the last part of either.
struct verify_cuda;
enum status verify_cuda_start(const struct verification_cuda *v, cudaEvent_t reference,
                              cudaEvent_t compare, struct verify_cuda **result,
                              struct error *error) MUST_CHECK;

// Fills figures and pass of the report, once the queue's stream is through and queue_finish() has
// been called. Times are the caller's.
void verify_cuda_finish(struct verify_cuda *x, struct rank_report *report);

// LSE and delta of all queries of a sequence and head, copied from what the keys were judged by
// (diagnosis_statistics, judge/diagnosis.h): after verify_cuda_finish(), while the device arena is
// as it was. `context` is the struct verify_cuda. False without gradients, or where a copy fails.
bool verify_cuda_statistics(void *context, int32_t sequence, int32_t head, double *lse,
                            double *delta);

#endif
