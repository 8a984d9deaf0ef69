// SPDX-License-Identifier: Apache-2.0
// Times in a graph, which kernels write into host memory. A stamp costs the host nothing, where a
// timed event costs as much as a launch. Separate stamp kernels are only for the compute stream: on
// the exchange stream they would wait until concurrent attention leaves a multiprocessor.
#ifndef CPATTN_RANK_CUDA_STAMPS_H
#define CPATTN_RANK_CUDA_STAMPS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

struct stamps {
    uint64_t *host, *device; // addresses of the same memory; nanoseconds
    int count, capacity;
};

void stamps_init(struct stamps *s);
void stamps_fini(struct stamps *s);

// Makes `capacity` stamps available and invalidates earlier ones; no graph may still write them.
cudaError_t stamps_reset(struct stamps *s, int capacity);

// Returns the device address of the next stamp; NULL: none is left. *index: its index.
uint64_t *stamps_take(struct stamps *s, int *index);

// Enqueues a kernel that writes the next stamp. *index: its index.
cudaError_t stamps_put(struct stamps *s, cudaStream_t stream, int *index);

// Nanoseconds between two stamps that have been written.
uint64_t stamps_between_ns(const struct stamps *s, int from, int to);

#endif
