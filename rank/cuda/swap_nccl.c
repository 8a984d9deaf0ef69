// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/swap_nccl.h"

// Makes `follower` wait for all work enqueued on `leader` so far.
static enum status stream_follow(struct cuda_queue *queue, cudaStream_t follower,
                                 cudaStream_t leader, struct error *error)
{
    cudaEvent_t event;
    cudaError_t result = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (result == cudaSuccess) {
        result = cudaEventRecord(event, leader);
        if (result == cudaSuccess)
            result = cudaStreamWaitEvent(follower, event, 0);
        (void)cudaEventDestroy(event); // the driver keeps it until its waits have finished
    }
    return queue_note(queue, result, "an event") ? STATUS_OK : queue_report(queue, error);
}

static enum status swap_start(void *context, const struct message *messages, int count,
                              struct error *error)
{
    struct swap_nccl *s = context;
    enum status status =
        stream_follow(s->queue, transport_nccl_stream(s->transport), s->queue->stream, error);
    if (status == STATUS_OK)
        status = s->transport->ops->start(s->transport, 0, messages, count, error);
    return status;
}

static enum status swap_join(void *context, struct error *error)
{
    struct swap_nccl *s = context;
    return stream_follow(s->queue, s->queue->stream, transport_nccl_stream(s->transport), error);
}

struct swap_cuda swap_nccl(struct swap_nccl *s)
{
    return (struct swap_cuda){.start = swap_start, .join = swap_join, .context = s};
}
