// SPDX-License-Identifier: Apache-2.0
// Cases with inputs of a client. The host assembles the rank's part of each tensor and copies it to
// the device. For the device's judge every rank also copies the whole tensors, to separate memory.
#ifndef CPATTN_RANK_CUDA_GIVEN_H
#define CPATTN_RANK_CUDA_GIVEN_H

#include <cuda_runtime_api.h>

#include "common/cuda/device_arena.h"
#include "judge/cuda/verification.h"
#include "rank/job.h"

// True if the client has given a tensor of the buffer with this role; false without a source.
bool given_has(const struct job *j, enum buffer_role role);

// Fills the buffers for which given_has() is true and waits for the copies.
cudaError_t given_fill(const struct job *j, cudaStream_t stream);

// Adds the bytes that given_push() takes from the arena; none if the case is not verified.
enum status given_reserve(const struct job *j, size_t *device_bytes,
                          struct error *error) MUST_CHECK;

// Copies the judge's tensors to the device and waits. Sets whole[i] to the device address of tensor
// i, or NULL, as in verification_cuda.given.
cudaError_t given_push(const struct job *j, struct device_arena *arena, cudaStream_t stream,
                       const void *whole[VERIFY_CUDA_GIVEN]);

#endif
