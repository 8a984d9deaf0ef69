// SPDX-License-Identifier: Apache-2.0
// Stream memory operations (cuStreamBatchMemOp): a stream writes or awaits 32-bit words without a
// kernel. In a captured stream they become nodes of the graph.
#ifndef CPATTN_TRANSPORT_STREAM_WORDS_H
#define CPATTN_TRANSPORT_STREAM_WORDS_H

#include <cuda.h>
#include <stdint.h>
#include <string.h>

#include "common/limits.h"
#include "transport/driver.h"

typedef CUresult stream_words_run(CUstream stream, unsigned int count,
                                  CUstreamBatchMemOpParams *operations, unsigned int flags);

// The driver's function; NULL: not available.
static inline stream_words_run *stream_words_find(void)
{
    void *found = driver_function("cuStreamBatchMemOp");
    stream_words_run *function;
    memcpy(&function, &found, sizeof(found));
    return function;
}

// A batch of operations. They run one after the other.
struct stream_words {
    unsigned count;
    CUstreamBatchMemOpParams list[3 * WORLD_SIZE_MAX]; // three for each other rank, and a mark
};

static inline struct stream_words stream_words_none(void)
{
    struct stream_words none;
    none.count = 0;
    return none;
}

static inline CUstreamBatchMemOpParams *stream_words_next(struct stream_words *w)
{
    CUstreamBatchMemOpParams *next = &w->list[w->count++];
    memset(next, 0, sizeof(*next));
    return next;
}

// Appends a write. Earlier writes of the stream become visible before it.
static inline void stream_words_write(struct stream_words *w, CUdeviceptr place, uint32_t value)
{
    CUstreamBatchMemOpParams *p = stream_words_next(w);
    p->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    p->writeValue.address = place;
    p->writeValue.value = value;
    p->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

// Appends a wait. `how`: CU_STREAM_WAIT_VALUE_EQ, or _GEQ. _GEQ tests the sign of the difference,
// so counters may wrap around at 2^32.
static inline void stream_words_await(struct stream_words *w, CUdeviceptr place, uint32_t value,
                                      unsigned how)
{
    CUstreamBatchMemOpParams *p = stream_words_next(w);
    p->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    p->waitValue.address = place;
    p->waitValue.value = value;
    p->waitValue.flags = how;
}

// Enqueues the batch on the stream and empties it.
static inline cudaError_t stream_words_put(stream_words_run *run, struct stream_words *w,
                                           cudaStream_t stream)
{
    unsigned count = w->count;
    w->count = 0;
    if (count == 0 || run((CUstream)stream, count, w->list, 0) == CUDA_SUCCESS)
        return cudaSuccess;
    return cudaErrorUnknown;
}

#endif
