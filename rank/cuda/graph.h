// SPDX-License-Identifier: Apache-2.0
// A plan that was captured as a CUDA graph, with all that its arguments refer to: it can be
// launched again as long as that is the same.
#ifndef CPATTN_RANK_CUDA_GRAPH_H
#define CPATTN_RANK_CUDA_GRAPH_H

#include "rank/cuda/timeline.h"

// The memory and what is prepared, as addresses and numbers.
struct graph_arguments {
    uint64_t attends; // their number
    uint64_t windows; // of the ranks, as transport_peer_windows() counts them
    const void *staging, *scratch;
    void *const *buffers;
    int buffer_count;
};

struct graph {
    cudaGraphExec_t exec; // NULL: there is none
    struct timeline timeline;
    struct graph_arguments captured; // with buffers of its own
};

void graph_init(struct graph *g);
void graph_fini(struct graph *g);

// Whether what was captured serves for these.
bool graph_serves(const struct graph *g, const struct graph_arguments *arguments);

// Everything that is put on the stream from now on, and on those that wait for it, becomes a graph
// in the place of the one there is, which nothing runs any more.
cudaError_t graph_begin(struct graph *g, const struct graph_arguments *arguments,
                        cudaStream_t stream);

// Ends the capture, whatever `result` has become of it, and returns that, or the first error of its
// own. After an error there is no graph.
cudaError_t graph_end(struct graph *g, cudaError_t result, cudaStream_t stream);

#endif
