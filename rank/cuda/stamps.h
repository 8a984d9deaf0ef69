// SPDX-License-Identifier: Apache-2.0
// Times on the compute stream of a graph, which kernels write into host memory. Each costs the host
// nothing, where a timed event costs as much as a launch. On the stream of exchanges a kernel would
// wait for the attention beside it to leave a multiprocessor.
#ifndef CPATTN_RANK_CUDA_STAMPS_H
#define CPATTN_RANK_CUDA_STAMPS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

struct stamps {
    uint64_t *host, *device; // the same memory
    int count, capacity;
};

void stamps_init(struct stamps *s);
void stamps_fini(struct stamps *s);

// Makes `capacity` stamps available. No graph with earlier ones may run any more.
cudaError_t stamps_reset(struct stamps *s, int capacity);

// The device's address of the next stamp; NULL: there is none left. *index is its number.
uint64_t *stamps_take(struct stamps *s, int *index);

// Puts the next stamp on the stream. *index is its number.
cudaError_t stamps_put(struct stamps *s, cudaStream_t stream, int *index);

// Nanoseconds between two stamps that were reached.
uint64_t stamps_between_ns(const struct stamps *s, int from, int to);

#endif
