// SPDX-License-Identifier: Apache-2.0
// Cases with inputs of a client. The host assembles a rank's part and copies it. For the device's
// judge every rank has all whole tensors in separate memory.
#ifndef CPATTN_RANK_CUDA_GIVEN_H
#define CPATTN_RANK_CUDA_GIVEN_H

#include <cuda_runtime_api.h>

#include "common/cuda/device_arena.h"
#include "judge/cuda/verification.h"
#include "rank/job.h"

// Whether the source of the job's case gives something of what a buffer holds; false without one.
bool given_has(const struct job *j, enum buffer_role role);

// Fills the buffers of which given_has() says so and waits for the copies.
cudaError_t given_fill(const struct job *j, cudaStream_t stream);

// Adds what given_push() takes of the arena; nothing where the case wants no verdict.
enum status given_reserve(const struct job *j, size_t *device_bytes,
                          struct error *error) MUST_CHECK;

// Copies what the judge reads to the device and waits for it. `whole`: where each tensor is, or
// NULL, as verification_cuda.given has them.
cudaError_t given_push(const struct job *j, struct device_arena *arena, cudaStream_t stream,
                       const void *whole[VERIFY_CUDA_GIVEN]);

#endif
