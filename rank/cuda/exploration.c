// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/exploration.h"

#include "kernels/cuda/delay_cuda.h"
#include "rank/operations.h"

// Longest delay in nanoseconds: longer than most operations of explored cases.
#define DELAY_NS_MAX 300000

// xorshift64*, as in rank/executor.c.
static uint64_t random_next(struct exploration *x)
{
    x->random ^= x->random >> 12;
    x->random ^= x->random << 25;
    x->random ^= x->random >> 27;
    return x->random * UINT64_C(0x2545f4914f6cdd1d) >> 32;
}

struct exploration exploration_of(const struct plan *plan)
{
    struct exploration x = {0};
    if (!plan->c.explore_seed)
        return x;
    x.random = plan->c.explore_seed ^ (uint64_t)(plan->rank + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x.random += x.random == 0;
    random_next(&x);
    return x;
}

cudaError_t exploration_delay(struct exploration *x, cudaStream_t stream)
{
    if (!x->random || random_next(x) % 2 == 0)
        return cudaSuccess;
    return delay_cuda(stream, (uint32_t)(random_next(x) % DELAY_NS_MAX));
}

static cudaError_t region_poison(const struct cuda_execution *e, const struct region *r,
                                 cudaStream_t stream)
{
    void *memory = region_memory(e->buffers, r);
    if (r->bytes == 0)
        return cudaSuccess;
    if (r->rows <= 1)
        return cudaMemsetAsync(memory, 0xff, (size_t)r->bytes, stream);
    cudaError_t result = cudaSuccess;
    for (int64_t i = 0; i < region_blocks(r) && result == cudaSuccess; i++)
        result = cudaMemset2DAsync((char *)memory + i * r->block_stride, (size_t)r->stride, 0xff,
                                   (size_t)r->bytes, (size_t)r->rows, stream);
    return result;
}

cudaError_t exploration_poison(const struct exploration *x, const struct cuda_execution *e,
                               const struct op *op, cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    for (int32_t i = 0; x->random && i < op->transfer_count && result == cudaSuccess; i++)
        result = region_poison(e, &e->plan->transfers[op->transfer_first + i].receive, stream);
    return result;
}
