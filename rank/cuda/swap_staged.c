// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/swap_staged.h"

#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

static size_t bytes_of(const struct message *messages, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += messages[i].send_bytes + messages[i].receive_bytes;
    return bytes;
}

// Sets staged[] to the messages with their bytes in `memory`, on the host.
static void place(const struct message *messages, int count, char *memory, struct message *staged)
{
    for (int i = 0; i < count; i++) {
        const struct message *m = &messages[i];
        staged[i] = (struct message){m->peer, memory, m->send_bytes, memory + m->send_bytes,
                                     m->receive_bytes};
        memory += m->send_bytes + m->receive_bytes;
    }
}

// Copies the sent bytes to the host and waits.
static cudaError_t fetch(const struct swap_staged *s, const struct message *messages, int count,
                         const struct message *staged)
{
    cudaError_t result = cudaSuccess;
    for (int i = 0; i < count && result == cudaSuccess; i++)
        if (messages[i].send_bytes > 0)
            result =
                cudaMemcpyAsync((void *)staged[i].send, messages[i].send, messages[i].send_bytes,
                                cudaMemcpyDeviceToHost, s->queue->stream);
    return result == cudaSuccess ? cudaStreamSynchronize(s->queue->stream) : result;
}

// Copies the received bytes to the device and waits.
static cudaError_t store(const struct swap_staged *s, const struct message *messages, int count,
                         const struct message *staged)
{
    cudaError_t result = cudaSuccess;
    for (int i = 0; i < count && result == cudaSuccess; i++)
        if (messages[i].receive_bytes > 0)
            result =
                cudaMemcpyAsync(messages[i].receive, staged[i].receive, messages[i].receive_bytes,
                                cudaMemcpyHostToDevice, s->queue->stream);
    return result == cudaSuccess ? cudaStreamSynchronize(s->queue->stream) : result;
}

static enum status swap_start(void *context, const struct message *messages, int count,
                              struct error *error)
{
    struct swap_staged *s = context;
    struct message *staged = calloc((size_t)count + 1, sizeof(*staged));
    char *memory = malloc(bytes_of(messages, count) + 1);
    enum status status = STATUS_OK;
    if (!staged || !memory) {
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for messages of a verdict");
    } else {
        place(messages, count, memory, staged);
        if (!queue_note(s->queue, fetch(s, messages, count, staged), "a message"))
            status = queue_report(s->queue, error);
    }
    struct swap swap = transport_swap(&s->over);
    if (status == STATUS_OK)
        status = swap.run(swap.context, staged, count, error);
    if (status == STATUS_OK &&
        !queue_note(s->queue, store(s, messages, count, staged), "a message"))
        status = queue_report(s->queue, error);
    free(memory);
    free(staged);
    return status;
}

static enum status swap_join(void *context, struct error *error)
{
    (void)context;
    (void)error;
    return STATUS_OK; // start() has waited
}

struct swap_cuda swap_staged(struct swap_staged *s)
{
    return (struct swap_cuda){.start = swap_start, .join = swap_join, .context = s};
}
