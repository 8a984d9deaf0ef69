// SPDX-License-Identifier: Apache-2.0
// Shared declarations of the CUDA backend.
#ifndef CPATTN_KERNELS_CUDA_INTERNAL_H
#define CPATTN_KERNELS_CUDA_INTERNAL_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/cuda/queue.h"
#include "kernels/attention.h"
#include "kernels/prepared.h"
#include "kernels/rows.h"

struct attention_backend {
    struct cuda_queue queue;
    int capability;             // 90 for sm_90
    struct memory_block tables; // tables and zeros of the current plan
};

// The functions of common/cuda/queue.h, applied to the backend's queue.
static inline bool cuda_note(struct attention_backend *backend, cudaError_t error, const char *what)
{
    return queue_note(&backend->queue, error, what);
}

static inline bool cuda_launched(struct attention_backend *backend, const char *what)
{
    return queue_launched(&backend->queue, what);
}

static inline enum status cuda_report(struct attention_backend *backend, struct error *error)
{
    return queue_report(&backend->queue, error);
}

static inline void *staging_take(struct attention_backend *backend, size_t bytes, void **device)
{
    return queue_stage(&backend->queue, bytes, device);
}

static inline void staging_push(struct attention_backend *backend, void *device, const void *host,
                                size_t bytes)
{
    queue_push(&backend->queue, device, host, bytes);
}

static inline void staging_pull(struct attention_backend *backend, void *host, const void *device,
                                size_t bytes)
{
    queue_pull(&backend->queue, host, device, bytes);
}

#define SCRATCH_ALIGNMENT 256

// Rounds up to SCRATCH_ALIGNMENT.
static inline size_t scratch_bytes(size_t bytes)
{
    return (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
}

static inline void *scratch_take(struct attention_backend *backend, size_t bytes)
{
    return queue_scratch(&backend->queue, bytes);
}

// Functions of the backend's table (kernels/backend.h), by file.
//
// elementwise.cu. The check fails if this build has no code for the current device.
cudaError_t elementwise_cuda_check(void);
void add_cuda(struct attention_backend *backend, const float *source, float *destination,
              int64_t count);
void max_cuda(struct attention_backend *backend, const float *source, float *destination,
              int64_t count);
void fill_cuda(struct attention_backend *backend, float *destination, float value, int64_t count);
void convert_cuda(struct attention_backend *backend, enum case_dtype dtype, const float *source,
                  void *destination, int64_t count);
void convert_sum_cuda(struct attention_backend *backend, enum case_dtype dtype,
                      const float *const *sources, int source_count, void *destination,
                      int64_t count);

// rows.cu:
void row_dot_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                  const void *d_out, const float *o, float *d);
void fill_heads_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                     const float *source, float *destination);
void sink_grad_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                    const struct packed_rows *rows, void *scratch, const float *sink,
                    const float *lse, const float *d, float *dsink);
size_t sink_grad_scratch_cuda(const struct attention_shape *shape, const struct packed_rows *rows);

// smxx_forward.cu, smxx_backward.cu: prepared attention, see kernels/backend.h. A launch ends
// with cuda_report() and returns its status.

// Common head of a prepared forward or backward.
struct attention_work {
    bool backward;
};
enum status forward_prepare_cuda(struct attention_backend *backend, const struct attention_op *op,
                                 struct attention_work **work, struct op_needs *needs,
                                 struct error *error);
void forward_place_cuda(struct attention_work *work, void *host, const void *device, void *zeros);
enum status forward_launch_cuda(struct attention_backend *backend,
                                const struct attention_work *work,
                                const struct attention_forward *args, struct error *error);
void forward_discard_cuda(struct attention_work *work);
enum status backward_prepare_cuda(struct attention_backend *backend, const struct attention_op *op,
                                  struct attention_work **work, struct op_needs *needs,
                                  struct error *error);
void backward_place_cuda(struct attention_work *work, void *host, const void *device);
enum status backward_launch_cuda(struct attention_backend *backend,
                                 const struct attention_work *work,
                                 const struct attention_backward *args, void *scratch,
                                 struct error *error);
void backward_discard_cuda(struct attention_work *work);

#ifdef __cplusplus
}
#endif

#endif
