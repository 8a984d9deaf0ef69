// SPDX-License-Identifier: Apache-2.0
// Stream memory operations (transport/stream_words.h) of the simulated runtime: streams write
// 32-bit words and wait for them.
#include <cuda.h>
#include <string.h>

#include "tests/cuda/fake_stream.h"
#include "transport/stream_words.h"

struct write_call {
    uint32_t *place;
    uint32_t value;
};

static void write_run(void *arguments)
{
    struct write_call *c = arguments;
    *c->place = c->value;
}

struct wait_call {
    const uint32_t *place;
    uint32_t value;
    bool equal; // waits for the value itself; false: for at least the value
};

static bool wait_poll(void *arguments)
{
    const struct wait_call *c = arguments;
    return c->equal ? *c->place == c->value : (int32_t)(*c->place - c->value) >= 0;
}

// Enqueues one write or wait. Like the driver, reports invalid flags.
static CUresult batch_operation(cudaStream_t stream, const CUstreamBatchMemOpParams *p)
{
    if (p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
        struct write_call call = {(uint32_t *)(uintptr_t)p->writeValue.address,
                                  p->writeValue.value};
        fake_push(stream, write_run, &call, sizeof(call));
        return p->writeValue.flags == CU_STREAM_WRITE_VALUE_DEFAULT ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_INVALID_VALUE;
    }
    bool equal = p->waitValue.flags == CU_STREAM_WAIT_VALUE_EQ;
    if (p->operation != CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
        (!equal && p->waitValue.flags != CU_STREAM_WAIT_VALUE_GEQ))
        return CUDA_ERROR_INVALID_VALUE;
    struct wait_call wait = {(const uint32_t *)(uintptr_t)p->waitValue.address, p->waitValue.value,
                             equal};
    fake_push_poll(stream, wait_poll, &wait, sizeof(wait));
    return CUDA_SUCCESS;
}

static CUresult batch_run(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
                          unsigned int flags)
{
    CUresult result = flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = batch_operation((cudaStream_t)stream, &operations[i]);
    return result;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr,
                                             unsigned int cudaVersion, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *driverStatus)
{
    stream_words_run *function = batch_run;
    (void)cudaVersion;
    (void)flags;
    fake_insist(strcmp(symbol, "cuStreamBatchMemOp") == 0, "another function of the driver");
    memcpy(funcPtr, &function, sizeof(function));
    *driverStatus = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
