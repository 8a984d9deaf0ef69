// SPDX-License-Identifier: Apache-2.0
// Cases whose inputs a client gives: they are filled on the host and copied to the device, and the
// results are copied back and judged by the CPU's judge. The kernels of the device's judge draw
// inputs as they need them.
#ifndef CPATTN_RANK_CUDA_GIVEN_H
#define CPATTN_RANK_CUDA_GIVEN_H

#include <cuda_runtime_api.h>

#include "rank/job.h"

// Fills the input buffers of the job and waits for the copies.
cudaError_t given_fill(const struct job *j, cudaStream_t stream);

// Adds what given_judge() takes of the job's arena.
enum status given_reserve(const struct job *j, size_t *host_bytes, struct error *error) MUST_CHECK;

// The verdict, once the device is through with the case.
enum status given_judge(struct job *j, struct error *error) MUST_CHECK;

#endif
