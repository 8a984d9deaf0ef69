// SPDX-License-Identifier: Apache-2.0
// Verification of a case against the fp64 reference on the device, dealt over the ranks as
// judge/cpu/verify.h says. Only figures come back.
//
// It has two halves, so that nothing has to wait between the last kernel of the case and the
// figures: the first puts all work on streams, the second reads what has come of it.
#ifndef CPATTN_RANK_CUDA_VERIFY_H
#define CPATTN_RANK_CUDA_VERIFY_H

#include "common/arena.h"
#include "common/report.h"
#include "judge/results.h"
#include "kernels/cuda/backend.h"
#include "plan/shard.h"
#include "rank/cuda/device_arena.h"
#include "transport/nccl.h"

// What is judged.
struct verification_cuda {
    const struct cp_case *c;
    int rank;
    const struct span *spans[2]; // of the rank, by enum shard_side; host memory
    int span_count[2];
    struct rank_results results;       // device memory
    struct attention_backend *backend; // its stream is behind all that made the tensors
    struct arena *host;                // has room for what verify_cuda_reserve() adds
    struct device_arena *device;       // likewise
    struct transport *transport;       // transport_nccl_create()'s, on a stream of its own
};

// Adds what verify_cuda_start() takes of the arenas.
enum status verify_cuda_reserve(const struct cp_case *c, int rank, size_t *host_bytes,
                                size_t *device_bytes, struct error *error) MUST_CHECK;

// Puts the reference, its exchanges and the comparison on the streams and waits for nothing. All
// ranks of the case must call it. *result is in the host arena. `reference` and `compare` are
// events of the caller's (with timing) to be recorded on the backend's stream behind the last part
// of either.
struct verify_cuda;
enum status verify_cuda_start(const struct verification_cuda *v, cudaEvent_t reference,
                              cudaEvent_t compare, struct verify_cuda **result,
                              struct error *error) MUST_CHECK;

// Fills figures and pass of the report, once the backend's stream is through and
// attention_cuda_finish() has been called. Times are the caller's.
void verify_cuda_finish(struct verify_cuda *x, struct rank_report *report);

#endif
