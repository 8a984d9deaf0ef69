// SPDX-License-Identifier: Apache-2.0
// Verification of a case on the device, divided among the ranks as in judge/cpu/verify.h. Only
// figures are copied to the host.
//
// It has two halves, so that the host does not wait between the last kernel of the case and the
// verification. The first half enqueues all work; the second reads the results.
#ifndef CPATTN_JUDGE_CUDA_VERIFY_H
#define CPATTN_JUDGE_CUDA_VERIFY_H

#include "common/report.h"
#include "judge/cuda/verification.h"

// Number of multiplications of a rank with `verify: auto` (judge/tiles.h): about 0.4 s of an H200
// if one pass computes reference and twin.
#define VERIFY_CUDA_WORK 2e13

// Adds the bytes that verify_cuda_start() takes from the arenas.
enum status verify_cuda_reserve(const struct cp_case *c, int rank, size_t *host_bytes,
                                size_t *device_bytes, struct error *error) MUST_CHECK;

// The same for a verification whose arenas and queue do not exist yet.
enum status verify_cuda_reserve_for(const struct verification_cuda *v, size_t *host_bytes,
                                    size_t *device_bytes, struct error *error) MUST_CHECK;

// Enqueues the reference, its exchange and the comparison, and does not wait. All ranks of the case
// must call it. *result is in the host arena. The caller's events (with timing) are recorded on the
// queue's stream: `reference` after the last pass of the reference, `compare` after the last
// comparison.
struct verify_cuda;
enum status verify_cuda_start(const struct verification_cuda *v, cudaEvent_t reference,
                              cudaEvent_t compare, struct verify_cuda **result,
                              struct error *error) MUST_CHECK;

// Fills figures and pass of the report, after queue_finish(). The caller fills the times.
void verify_cuda_finish(struct verify_cuda *x, struct rank_report *report);

// Copies LSE and delta of all queries of a sequence and head, with which the keys were judged
// (diagnosis_statistics, judge/diagnosis.h). Call it after verify_cuda_finish(), before the device
// arena changes. `context` is the struct verify_cuda. False without gradients, or if a copy fails.
bool verify_cuda_statistics(void *context, int32_t sequence, int32_t head, double *lse,
                            double *delta);

#endif
