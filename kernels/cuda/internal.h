// SPDX-License-Identifier: Apache-2.0
// What the files of the CUDA backend share.
#ifndef CPATTN_KERNELS_CUDA_INTERNAL_H
#define CPATTN_KERNELS_CUDA_INTERNAL_H

#include "kernels/cuda/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attention_backend {
    struct cuda_queue queue;
    int capability; // such as 90 for sm_90
    char *lent;     // scratch for the call at hand, from here on
    size_t lent_bytes;
};

// What common/cuda/queue.h says, of the backend's queue.
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

static inline void *staging_copy(struct attention_backend *backend, const void *host, size_t bytes)
{
    return queue_copy(&backend->queue, host, bytes);
}

#define SCRATCH_ALIGNMENT 256

static inline size_t scratch_bytes(size_t bytes)
{
    return (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
}

// From what is lent, if it is enough.
static inline void *scratch_take(struct attention_backend *backend, size_t bytes)
{
    size_t taken = scratch_bytes(bytes);
    char *lent = backend->lent;
    if (backend->lent_bytes < taken || bytes == 0)
        return queue_scratch(&backend->queue, bytes);
    backend->lent += taken;
    backend->lent_bytes -= taken;
    return lent;
}

// The table, by file. elementwise.cu:
cudaError_t elementwise_cuda_check(void); // whether this build has code for the current device
void add_cuda(struct attention_backend *backend, const float *source, float *destination,
              int64_t count);
void max_cuda(struct attention_backend *backend, const float *source, float *destination,
              int64_t count);
void fill_cuda(struct attention_backend *backend, float *destination, float value, int64_t count);
void convert_cuda(struct attention_backend *backend, enum case_dtype dtype, const float *source,
                  void *destination, int64_t count);

// push.cu: staging_push() for a list. Up to 15 bytes more than `bytes` are written.
void list_push_cuda(struct attention_backend *backend, void *device, const void *host,
                    size_t bytes);

// rows.cu:
void row_dot_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                  const void *d_out, const float *o, float *d);
void fill_heads_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                     const float *source, float *destination);
void sink_grad_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                    const struct slice *slices, int32_t slice_count, const float *sink,
                    const float *lse, const float *d, float *dsink);

// smxx_forward.cu, smxx_backward.cu. Both return what cuda_report() gives at the end.
enum status forward_cuda(struct attention_backend *backend, const struct attention_forward *args,
                         struct error *error);
enum status backward_cuda(struct attention_backend *backend, const struct attention_backward *args,
                          struct error *error);
// What a deterministic backward takes to keep its order.
enum status backward_scratch_cuda(struct attention_backend *backend,
                                  const struct attention_backward *args, size_t *bytes,
                                  struct error *error);

#ifdef __cplusplus
}
#endif

#endif
