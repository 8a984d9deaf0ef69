// SPDX-License-Identifier: Apache-2.0
#include "check/cuda/pack.h"

#define THREADS    256
#define BLOCKS_MAX 65536

template <class ELEMENT, bool WRITES> __global__ void pack_kernel(const struct pack p)
{
    int64_t count = p.rows * p.heads * p.dim, step = (int64_t)gridDim.x * THREADS;
    ELEMENT *array = (ELEMENT *)p.array, *dense = (ELEMENT *)p.dense;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        int64_t unit = i / p.dim, row = unit / p.heads;
        int64_t head = unit % p.heads, k = i % p.dim;
        if (p.offsets[row] < 0)
            continue;
        int64_t from = p.offsets[row] + head * p.head_stride + k;
        int64_t to = row * p.dense_row + head * p.dense_head + k;
        if (WRITES)
            array[from] = dense[to];
        else
            dense[to] = array[from];
    }
}

template <bool WRITES> static void pack_run(struct cuda_queue *queue, const struct pack *p)
{
    int64_t count = p->rows * p->heads * p->dim, blocks = (count + THREADS - 1) / THREADS;
    unsigned grid = (unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
    if (count == 0)
        return;
    if (p->element_bytes == 4)
        pack_kernel<uint32_t, WRITES><<<grid, THREADS, 0, queue->stream>>>(*p);
    else
        pack_kernel<uint16_t, WRITES><<<grid, THREADS, 0, queue->stream>>>(*p);
    queue_launched(queue, "a copy of a tensor");
}

void pack_read(struct cuda_queue *queue, const struct pack *pack)
{
    pack_run<false>(queue, pack);
}

void pack_write(struct cuda_queue *queue, const struct pack *pack)
{
    pack_run<true>(queue, pack);
}
