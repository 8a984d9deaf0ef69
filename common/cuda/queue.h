// SPDX-License-Identifier: Apache-2.0
// A stream of a device with what every user of it needs: errors that are remembered until somebody
// can report them, and memory that is handed out piece by piece and taken back all at once.
//
// Work is only put on the stream, and nothing waits. What goes wrong on the device or at a launch
// is remembered and returned, once, by queue_report() or queue_finish(). A queue belongs to one
// thread, which keeps its device current.
#ifndef CPATTN_COMMON_CUDA_QUEUE_H
#define CPATTN_COMMON_CUDA_QUEUE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/status.h"

// Memory grows by blocks; when everything is back, several blocks become one, so that nothing is
// allocated once it is warm.
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

struct cuda_queue {
    int device;
    int sm_count;
    int shared_bytes_max; // of a block that opts in
    cudaStream_t stream;
    cudaError_t error;  // the first since the last report
    const char *failed; // what it happened in
    struct memory_pool staging, scratch;
};

// Makes a queue of the device that is current, which must be all zeros before and be given to
// queue_fini() whatever is returned. queue_fini() waits for the stream.
cudaError_t queue_init(struct cuda_queue *q);
void queue_fini(struct cuda_queue *q);

// Remembers an error, if it is one and the first; cudaSuccess is none. `what` is a literal.
// Returns whether there was none.
bool queue_note(struct cuda_queue *q, cudaError_t error, const char *what);

// To be called after each kernel launch.
bool queue_launched(struct cuda_queue *q, const char *what);

// Returns what is remembered, and forgets it: RESOURCE_EXHAUSTED when memory was short, else
// INTERNAL.
enum status queue_report(struct cuda_queue *q, struct error *error);

// Waits for the stream and reports. Then all memory is free again; host sides of pieces can be read
// until the next piece is taken.
enum status queue_finish(struct cuda_queue *q, struct error *error) MUST_CHECK;

// A piece of pinned host memory, aligned to 256 bytes, with as much device memory beside it. Both
// are the caller's until queue_finish(); the host side can be read until the next piece is taken
// after that. NULL, remembered, when memory is short. 0 bytes are a piece too.
void *queue_stage(struct cuda_queue *q, size_t bytes, void **device);

// Copies between such a pair, on the stream.
void queue_push(struct cuda_queue *q, void *device, const void *host, size_t bytes);
void queue_pull(struct cuda_queue *q, void *host, const void *device, size_t bytes);

// The device's copy of an array of the host, which is free again when this returns. NULL,
// remembered, when memory is short.
void *queue_copy(struct cuda_queue *q, const void *host, size_t bytes);

// Device memory without a content, aligned to 256 bytes, the caller's until queue_finish(). NULL,
// remembered, when memory is short.
void *queue_scratch(struct cuda_queue *q, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
