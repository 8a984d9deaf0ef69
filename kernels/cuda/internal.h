// SPDX-License-Identifier: Apache-2.0
// What the files of the CUDA backend share.
#ifndef CPATTN_KERNELS_CUDA_INTERNAL_H
#define CPATTN_KERNELS_CUDA_INTERNAL_H

#include "kernels/cuda/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// Memory that is handed out piece by piece and taken back all at once. It grows by blocks; when
// everything is back, several blocks become one, so that nothing is allocated once it is warm.
struct memory_block {
    struct memory_block *next;
    char *host;   // pinned; NULL in a pool of device memory alone
    char *device; // as many bytes
    size_t bytes, used;
};
struct memory_pool {
    bool pinned;
    bool stale;                  // everything was taken back; blocks are still as they were
    struct memory_block *blocks; // the newest first; pieces come from it
};

struct attention_backend {
    int device;
    int capability; // such as 90 for sm_90
    int sm_count;
    int shared_bytes_max; // of a block that opts in
    cudaStream_t stream;
    cudaError_t error;  // the first since the last report
    const char *failed; // what it happened in
    struct memory_pool staging, scratch;
};

// Remembers an error, if it is one and the first; cudaSuccess is none. `what` is a literal.
// Returns whether there was none.
bool cuda_note(struct attention_backend *backend, cudaError_t error, const char *what);

// To be called after each kernel launch.
bool cuda_launched(struct attention_backend *backend, const char *what);

// Returns what is remembered, and forgets it.
enum status cuda_report(struct attention_backend *backend, struct error *error);

// A piece of pinned host memory, aligned to 256 bytes, with as much device memory beside it. Both
// are the caller's until attention_cuda_finish(); the host side can be read until the next piece is
// taken after that. NULL, remembered, when memory is short. 0 bytes are a piece too.
void *staging_take(struct attention_backend *backend, size_t bytes, void **device);

// Copies between such a pair, on the stream.
void staging_push(struct attention_backend *backend, void *device, const void *host, size_t bytes);
void staging_pull(struct attention_backend *backend, void *host, const void *device, size_t bytes);

// The device's copy of an array of the host, which is free again when this returns. NULL,
// remembered, when memory is short.
void *staging_copy(struct attention_backend *backend, const void *host, size_t bytes);

// Device memory without a content, aligned to 256 bytes, the caller's until
// attention_cuda_finish(). NULL, remembered, when memory is short.
void *scratch_take(struct attention_backend *backend, size_t bytes);

void memory_pool_fini(struct memory_pool *pool);

// The table, by file. elementwise.cu:
cudaError_t elementwise_cuda_check(void); // whether this build has code for the current device
void add_cuda(struct attention_backend *backend, const float *source, float *destination,
              int64_t count);
void max_cuda(struct attention_backend *backend, const float *source, float *destination,
              int64_t count);
void fill_cuda(struct attention_backend *backend, float *destination, float value, int64_t count);
void convert_cuda(struct attention_backend *backend, enum case_dtype dtype, const float *source,
                  void *destination, int64_t count);

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

#ifdef __cplusplus
}
#endif

#endif
