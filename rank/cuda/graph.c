// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/graph.h"

#include <stdlib.h>
#include <string.h>

void graph_init(struct graph *g)
{
    *g = (struct graph){.exec = NULL};
    timeline_init(&g->timeline);
    g->timeline.events.captured = true;
}

static void graph_drop(struct graph *g)
{
    if (g->exec)
        (void)cudaGraphExecDestroy(g->exec);
    g->exec = NULL;
    free((void *)g->captured.buffers);
    g->captured.buffers = NULL;
}

void graph_fini(struct graph *g)
{
    graph_drop(g);
    timeline_fini(&g->timeline);
}

bool graph_serves(const struct graph *g, const struct graph_arguments *arguments)
{
    const struct graph_arguments *a = &g->captured, *b = arguments;
    return g->exec && a->attends == b->attends && a->windows == b->windows &&
           a->staging == b->staging && a->scratch == b->scratch &&
           a->buffer_count == b->buffer_count &&
           memcmp(a->buffers, b->buffers, (size_t)a->buffer_count * sizeof(*a->buffers)) == 0;
}

cudaError_t graph_begin(struct graph *g, const struct graph_arguments *arguments,
                        cudaStream_t stream)
{
    size_t bytes = (size_t)arguments->buffer_count * sizeof(*arguments->buffers);
    graph_drop(g);
    void **buffers = malloc(bytes + 1);
    if (!buffers)
        return cudaErrorMemoryAllocation;
    memcpy(buffers, arguments->buffers, bytes);
    g->captured = *arguments;
    g->captured.buffers = buffers;
    return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
}

cudaError_t graph_end(struct graph *g, cudaError_t result, cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (result == cudaSuccess)
        result = ended;
    if (result == cudaSuccess)
        result = cudaGraphInstantiate(&g->exec, graph, 0);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (result != cudaSuccess)
        g->exec = NULL;
    return result;
}
