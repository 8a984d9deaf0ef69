// SPDX-License-Identifier: Apache-2.0
// The engine of a rank on a GPU: device memory, streams, NCCL.
#ifndef CPATTN_RANK_CUDA_ENGINE_H
#define CPATTN_RANK_CUDA_ENGINE_H

#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "rank/engine.h"

// Arguments: the device's index, and the MiB of device memory that an idle rank may keep; default:
// a quarter of the device's memory, shared by the ranks on it.
extern const struct engine_kind engine_cuda;

// The backend of an engine_cuda; cases compute on its stream.
struct attention_backend *engine_cuda_backend(struct engine *e);

#endif
