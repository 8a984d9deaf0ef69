// SPDX-License-Identifier: Apache-2.0
// A stream of a device with its errors, which are stored until they can be reported, and its
// memory, which is allocated in pieces and freed all at once.
//
// Calls only enqueue work and do not wait. An error of the device or of a launch is stored and
// returned once, by queue_report() or queue_finish(). A queue belongs to one thread, which keeps
// its device current.
#ifndef CPATTN_COMMON_CUDA_QUEUE_H
#define CPATTN_COMMON_CUDA_QUEUE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/status.h"

// Memory grows in blocks. When all pieces are free, several blocks are merged into one, so that
// later calls need no allocation. A failure to merge them is no error.
struct memory_block {
    struct memory_block *next;
    char *host;   // pinned; NULL in a pool of only device memory
    char *device; // of the same size
    size_t bytes, used;
};
struct memory_pool {
    bool pinned;                 // blocks have a pinned host side, too
    bool stale;                  // all pieces are free; the blocks are unchanged
    struct memory_block *blocks; // the newest first; pieces are taken from it
};

struct cuda_queue {
    int device;
    int sm_count;
    int shared_bytes_max; // shared memory of a thread block that opts in
    cudaStream_t stream;
    cudaError_t error;  // the first since the last report
    const char *failed; // the failed operation
    struct memory_pool staging, scratch;
};

// Initializes a zeroed queue for the current device. Call queue_fini() also after a failure; it
// waits for the stream.
cudaError_t queue_init(struct cuda_queue *q);
void queue_fini(struct cuda_queue *q);

// Stores the error unless an earlier one is stored. Returns true for cudaSuccess. `what` names the
// operation; it must be a string literal.
bool queue_note(struct cuda_queue *q, cudaError_t error, const char *what);

// queue_note() for the last kernel launch. Call after each launch.
bool queue_launched(struct cuda_queue *q, const char *what);

// Returns the stored error and clears it: RESOURCE_EXHAUSTED if memory was short, else INTERNAL.
enum status queue_report(struct cuda_queue *q, struct error *error);

// Waits for the stream, frees all pieces and returns the stored error. Host sides of pieces can be
// read until the next piece is taken.
enum status queue_finish(struct cuda_queue *q, struct error *error) MUST_CHECK;

// Returns a piece of pinned host memory, aligned to 256 bytes, and in *device a piece of device
// memory of the same size. Both belong to the caller until queue_finish(); the host side can be
// read until the next piece is taken after that. NULL, with a stored error: memory is short. A
// piece may have 0 bytes.
void *queue_stage(struct cuda_queue *q, size_t bytes, void **device);

// Copies to and from the device, asynchronously on the stream.
void queue_push(struct cuda_queue *q, void *device, const void *host, size_t bytes);
void queue_pull(struct cuda_queue *q, void *host, const void *device, size_t bytes);

// Copies a host array to the device; the caller may reuse the array when this returns. NULL, with a
// stored error: memory is short.
void *queue_copy(struct cuda_queue *q, const void *host, size_t bytes);

// Device memory with undefined contents, aligned to 256 bytes, which belongs to the caller until
// queue_finish(). NULL, with a stored error: memory is short.
void *queue_scratch(struct cuda_queue *q, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
