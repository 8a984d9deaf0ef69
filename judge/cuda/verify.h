// SPDX-License-Identifier: Apache-2.0
// Verification of a case on the device, dealt over the ranks as judge/cpu/verify.h says. Only
// figures come back.
//
// It has two halves, so that nothing waits between the last kernel of the case and the figures. The
// first half puts all work on streams, the second reads the results.
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

// A swap of messages in device memory, lent to the judge. The swap runs after all work that is on
// the queue's stream at start(). Work put on this stream after join() runs after the swap. Neither
// call waits. All ranks call them in the same order, with messages that match those of their peers
// in list order.
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

// Work of a rank with `verify: auto` (judge/tiles.h): about 0.4 s of an H200 if reference and twin
// come from one pass.
#define VERIFY_CUDA_WORK 2e13

// Adds the bytes that verify_cuda_start() takes from the arenas.
enum status verify_cuda_reserve(const struct cp_case *c, int rank, size_t *host_bytes,
                                size_t *device_bytes, struct error *error) MUST_CHECK;

// The same for a verification whose arenas and queue are not there yet.
enum status verify_cuda_reserve_for(const struct verification_cuda *v, size_t *host_bytes,
                                    size_t *device_bytes, struct error *error) MUST_CHECK;

// Puts the reference, its swaps and the comparison on the streams, and does not wait. All ranks of
// the case must call it. *result is in the host arena. The caller's events `reference` and
// `compare` (with timing) are recorded on the queue's stream after the last part of each.
struct verify_cuda;
enum status verify_cuda_start(const struct verification_cuda *v, cudaEvent_t reference,
                              cudaEvent_t compare, struct verify_cuda **result,
                              struct error *error) MUST_CHECK;

// Fills figures and pass of the report, after queue_finish(). The caller fills the times.
void verify_cuda_finish(struct verify_cuda *x, struct rank_report *report);

// Copies LSE and delta of all queries of a sequence and head, those by which the keys were judged
// (diagnosis_statistics, judge/diagnosis.h). Call it after verify_cuda_finish(), before the device
// arena changes. `context` is the struct verify_cuda. False without gradients, or if a copy fails.
bool verify_cuda_statistics(void *context, int32_t sequence, int32_t head, double *lse,
                            double *delta);

#endif
