// SPDX-License-Identifier: Apache-2.0
// A plan captured as a CUDA graph. The graph may be launched again as long as its nodes' memory and
// prepared operations are unchanged.
#ifndef CPATTN_RANK_CUDA_GRAPH_H
#define CPATTN_RANK_CUDA_GRAPH_H

#include "rank/cuda/timeline.h"

// Identifies the memory and the prepared operations of a graph.
struct graph_arguments {
    uint64_t attends; // attends.number: identifies the prepared operations
    uint64_t windows; // transport_peer_windows()
    const void *staging, *scratch;
    void *const *buffers;
    int buffer_count;
};

struct graph {
    cudaGraphExec_t exec; // NULL: there is none
    struct timeline timeline;
    struct graph_arguments captured; // owns the array `buffers`
};

void graph_init(struct graph *g);
void graph_fini(struct graph *g);

// True if the captured graph is valid for these arguments.
bool graph_serves(const struct graph *g, const struct graph_arguments *arguments);

// Begins a capture: work on this stream, and on streams that wait for it, becomes the new graph.
// The old graph is destroyed; it must not be running.
cudaError_t graph_begin(struct graph *g, const struct graph_arguments *arguments,
                        cudaStream_t stream);

// Ends the capture. Returns `result` if that is an error, else the first error of the capture
// itself. After an error there is no graph.
cudaError_t graph_end(struct graph *g, cudaError_t result, cudaStream_t stream);

#endif
