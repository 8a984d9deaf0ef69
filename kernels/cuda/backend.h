// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: struct backend_ops (kernels/backend.h) for tensors in device memory.
//
// Shapes and slices are host memory, read before a call returns; every tensor is device memory. A
// call only enqueues work on the backend's stream and does not wait. An error of the device or of a
// launch is stored and returned once, by the next call that returns a status: forward, backward or
// attention_cuda_finish().
//
// A backend belongs to one thread, which keeps its device current.
#ifndef CPATTN_KERNELS_CUDA_BACKEND_H
#define CPATTN_KERNELS_CUDA_BACKEND_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/cuda/queue.h"
#include "kernels/attention.h"

struct backend_ops;

// create() uses the current device. UNAVAILABLE: no device is usable, or this build has no code for
// it; RESOURCE_EXHAUSTED: host or device memory is short. destroy() waits for the stream.
extern const struct backend_ops backend_cuda;

// The backend's queue and the queue's stream. Both live as long as the backend.
struct cuda_queue *attention_cuda_queue(struct attention_backend *backend);
cudaStream_t attention_cuda_stream(struct attention_backend *backend);

// Waits for the stream and returns the first error since the last report. Afterwards all scratch is
// free; host memory from queue_stage(), such as pulled results, can be read until the next call.
enum status attention_cuda_finish(struct attention_backend *backend,
                                  struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
