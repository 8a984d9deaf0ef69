// SPDX-License-Identifier: Apache-2.0
// CUDA graphs of the simulated runtime. A capture stores the items of the captured streams with
// copies of their arguments. Each launch enqueues copies of these items on streams of the graph's
// own; only items of a stream with exchanges go to the captured stream, which is the transport's.
#include <stdlib.h>

#include "tests/cuda/fake_stream.h"

#define STREAMS_MAX 16

// A captured item and the index of its stream in the graph.
struct part {
    struct item *item;
    int stream;
};

struct fake_graph {
    int references; // number of handles: cudaGraph_t and cudaGraphExec_t
    struct part *parts;
    int part_count, part_max;
    struct fake_stream *captured[STREAMS_MAX], *own[STREAMS_MAX]; // own: for launches
    bool exchanges[STREAMS_MAX];                                  // the stream has exchanges
    int stream_count;
    struct fake_event begin, ends[STREAMS_MAX]; // of a launch, and of each stream in it
};

static struct fake_graph *graph_of(const void *handle)
{
    return (struct fake_graph *)(uintptr_t)handle;
}

static void release(struct fake_graph *g)
{
    if (--g->references > 0)
        return;
    for (int i = 0; i < g->part_count; i++)
        fake_item_free(g->parts[i].item);
    free(g->parts);
    free(g);
}

// ---- capture ----

static int index_of(const struct fake_graph *g, const struct fake_stream *s)
{
    for (int i = 0; i < g->stream_count; i++)
        if (g->captured[i] == s)
            return i;
    return -1;
}

void fake_graph_join(struct fake_graph *g, struct fake_stream *s)
{
    fake_insist(!s->capture || s->capture == g, "two captures meet");
    if (s->capture)
        return;
    fake_insist(g->stream_count < STREAMS_MAX, "too many streams of a graph");
    s->capture = g;
    g->captured[g->stream_count++] = s;
}

void fake_graph_take(struct fake_graph *g, struct fake_stream *s, struct item *item)
{
    if (g->part_count == g->part_max) {
        g->part_max = 2 * g->part_max + 64;
        g->parts = realloc(g->parts, (size_t)g->part_max * sizeof(*g->parts));
        fake_insist(g->parts != NULL, "no memory");
    }
    int stream = index_of(g, s);
    g->exchanges[stream] = g->exchanges[stream] || item->kind == ITEM_EXCHANGE;
    g->parts[g->part_count++] = (struct part){item, stream};
}

// True if the stream joins another one again: its last item records an event, and another stream
// of the capture waits for this event.
static bool comes_back(const struct fake_graph *g, int stream)
{
    const struct fake_event *last = NULL;
    bool awaited = false;
    for (int i = 0; i < g->part_count; i++) {
        const struct item *item = g->parts[i].item;
        if (g->parts[i].stream == stream) {
            last = item->kind == ITEM_RECORD ? item->event : NULL;
            awaited = false;
        } else if (item->kind == ITEM_WAIT && item->event == last) {
            awaited = true;
        }
    }
    return awaited;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    struct fake_graph *g = calloc(1, sizeof(*g));
    (void)mode;
    fake_insist(g != NULL, "no memory");
    // cppcheck-suppress nullPointerRedundantCheck
    g->references = 1;
    fake_graph_join(g, stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph)
{
    struct fake_graph *g = stream_of(stream)->capture;
    for (int i = 0; i < g->stream_count; i++) {
        fake_insist(i == 0 || comes_back(g, i), "a captured stream does not come back");
        g->captured[i]->capture = NULL;
    }
    *pGraph = (cudaGraph_t)(void *)g;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus)
{
    *pCaptureStatus =
        stream_of(stream)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

// ---- launch ----

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    struct fake_graph *g = graph_of(graph);
    (void)flags;
    for (int i = 0; i < g->stream_count; i++)
        g->own[i] = g->exchanges[i] ? g->captured[i] : stream_of(fake_stream());
    g->references++;
    *pGraphExec = (cudaGraphExec_t)(void *)g;
    return cudaSuccess;
}

static void record(struct fake_stream *s, struct fake_event *event)
{
    struct item item = {.kind = ITEM_RECORD, .event = event, .number = ++event->recorded};
    fake_append(s, fake_item_copy(&item));
}

static void await(struct fake_stream *s, struct fake_event *event)
{
    struct item item = {.kind = ITEM_WAIT, .event = event, .number = event->recorded};
    fake_append(s, fake_item_copy(&item));
}

// Fork: all streams of the graph wait for `stream`. Join: `stream` waits for all of them.
cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream)
{
    struct fake_graph *g = graph_of(graphExec);
    record(stream_of(stream), &g->begin);
    for (int i = 0; i < g->stream_count; i++)
        await(g->own[i], &g->begin);
    for (int i = 0; i < g->part_count; i++) {
        struct item *item = fake_item_copy(g->parts[i].item);
        if (item->kind == ITEM_RECORD)
            item->number = ++item->event->recorded;
        if (item->kind == ITEM_WAIT)
            item->number = item->event->recorded;
        fake_append(g->own[g->parts[i].stream], item);
    }
    for (int i = 0; i < g->stream_count; i++) {
        record(g->own[i], &g->ends[i]);
        await(stream_of(stream), &g->ends[i]);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    release(graph_of(graph));
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
    release(graph_of(graphExec));
    return cudaSuccess;
}
