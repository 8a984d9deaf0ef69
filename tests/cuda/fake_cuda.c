// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/fake_stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "kernels/cuda/delay_cuda.h"
#include "tests/support/generate.h"

#define STREAMS_MAX 1024

struct fake_transport {
    struct transport base;
    cudaStream_t stream;
};

static struct fake_stream streams[STREAMS_MAX];
static int stream_count;
static struct fake_transport *transports[WORLD_SIZE_MAX];
static int transport_count;
static uint64_t now;
static bool is_broken;

void fake_fail(const char *what)
{
    fprintf(stderr, "fake_cuda: %s\n", what);
    abort();
}

// ---- queues ----

// Locks because ranks create their streams in separate threads.
cudaStream_t fake_stream(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    fake_insist(stream_count < STREAMS_MAX, "too many streams");
    struct fake_stream *made = &streams[stream_count++];
    *made = (struct fake_stream){0};
    pthread_mutex_unlock(&lock);
    return (cudaStream_t)(void *)made;
}

void fake_append(struct fake_stream *s, struct item *item)
{
    if (s->tail)
        s->tail->next = item;
    else
        s->head = item;
    s->tail = item;
}

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    fake_insist(copy != NULL, "no memory");
    memcpy(copy, data, bytes);
    return copy;
}

struct item *fake_item_copy(const struct item *item)
{
    struct item *copy = copy_of(item, sizeof(*item));
    size_t count = (size_t)item->count;
    copy->next = NULL;
    if (item->arguments)
        copy->arguments = copy_of(item->arguments, item->bytes);
    if (item->kind == ITEM_EXCHANGE) {
        copy->messages = copy_of(item->messages, count * sizeof(*item->messages));
        copy->sent = calloc(count + 1, 1);
        copy->received = calloc(count + 1, 1);
        fake_insist(copy->sent && copy->received, "no memory");
    }
    return copy;
}

void fake_item_free(struct item *item)
{
    free(item->arguments);
    free(item->messages);
    free(item->sent);
    free(item->received);
    free(item);
}

// Appends a copy of the item to the stream, or to the graph if the stream is being captured.
static void push(cudaStream_t stream, const struct item *item)
{
    struct fake_stream *s = stream_of(stream);
    struct item *copy = fake_item_copy(item);
    if (s->capture)
        fake_graph_take(s->capture, s, copy);
    else
        fake_append(s, copy);
}

void fake_push(cudaStream_t stream, void (*work)(void *), const void *arguments, size_t bytes)
{
    push(stream, &(struct item){.kind = ITEM_WORK,
                                .work = work,
                                .arguments = (void *)(uintptr_t)arguments,
                                .bytes = bytes});
}

void fake_push_poll(cudaStream_t stream, bool (*poll)(void *), const void *arguments, size_t bytes)
{
    push(stream, &(struct item){.kind = ITEM_POLL,
                                .poll = poll,
                                .arguments = (void *)(uintptr_t)arguments,
                                .bytes = bytes});
}

static void pop(struct fake_stream *s)
{
    struct item *item = s->head;
    s->head = item->next;
    if (!s->head)
        s->tail = NULL;
    fake_item_free(item);
}

// ---- running ----

// The exchange at the head of the rank's transport stream. NULL: there is none, or the stream is
// held.
static struct item *exchange_of(int rank)
{
    for (int i = 0; i < transport_count; i++)
        if (transports[i]->base.rank == rank) {
            struct item *item = stream_of(transports[i]->stream)->head;
            bool posted = item && item->kind == ITEM_EXCHANGE;
            return posted && !stream_of(transports[i]->stream)->held ? item : NULL;
        }
    return NULL;
}

// Index of the first message to `peer` (`sends`) or from it that has not been moved; -1: none.
static int message_left(const struct item *item, int peer, bool sends)
{
    for (int i = 0; i < item->count; i++) {
        const struct message *m = &item->messages[i];
        size_t bytes = sends ? m->send_bytes : m->receive_bytes;
        if (m->peer == peer && bytes > 0 && !(sends ? item->sent[i] : item->received[i]))
            return i;
    }
    return -1;
}

// Moves the next message from rank `from` to rank `to`. False if one of the two has not reached an
// exchange, or has no message left for the other.
static bool message_move(int from, int to)
{
    struct item *source = exchange_of(from), *destination = exchange_of(to);
    if (!source || !destination)
        return false;
    int sent = message_left(source, to, true), received = message_left(destination, from, false);
    if (sent < 0 || received < 0)
        return false;
    const struct message *send = &source->messages[sent];
    const struct message *receive = &destination->messages[received];
    fake_insist(send->send_bytes == receive->receive_bytes, "messages of different sizes meet");
    memmove(receive->receive, send->send, send->send_bytes);
    source->sent[sent] = destination->received[received] = true;
    return true;
}

static bool exchange_is_done(const struct item *item)
{
    for (int i = 0; i < item->count; i++)
        if ((item->messages[i].send_bytes > 0 && !item->sent[i]) ||
            (item->messages[i].receive_bytes > 0 && !item->received[i]))
            return false;
    return true;
}

// Moves one message that this rank sends, to a peer chosen at random. Removes the exchange if it is
// done. False if neither was possible.
static bool exchange_advance(struct fake_stream *s, struct item *item, uint64_t *random)
{
    int world_size = s->transport->world_size, rank = s->transport->rank;
    int first = (int)generate_below(random, world_size);
    bool moved = false;
    for (int i = 0; i < world_size && !moved; i++)
        moved = message_move(rank, (first + i) % world_size);
    if (!exchange_is_done(item))
        return moved;
    pop(s);
    return true;
}

// Tries to run the head of the stream. False if there is none, the stream is held, or the head has
// to wait.
static bool stream_advance(struct fake_stream *s, uint64_t *random)
{
    struct item *item = s->head;
    if (!item || s->held)
        return false;
    now++;
    switch (item->kind) {
    case ITEM_WORK:
        item->work(item->arguments);
        break;
    case ITEM_POLL:
        if (!item->poll(item->arguments))
            return false;
        break;
    case ITEM_RECORD:
        item->event->reached = item->number;
        item->event->time = now;
        break;
    case ITEM_WAIT:
        if (item->event->reached < item->number)
            return false;
        break;
    case ITEM_EXCHANGE:
        return exchange_advance(s, item, random);
    }
    pop(s);
    return true;
}

// Mostly continues with the stream of the last call, so that one stream runs far ahead of the
// others. A uniform choice would rarely produce such orders.
bool fake_step(uint64_t *random)
{
    static int favourite;
    if (stream_count == 0)
        return false;
    if (favourite >= stream_count || generate_below(random, 6) == 0)
        favourite = (int)generate_below(random, stream_count);
    for (int i = 0; i < stream_count; i++)
        if (stream_advance(&streams[(favourite + i) % stream_count], random))
            return true;
    return false;
}

uint64_t fake_now(void)
{
    return now;
}

bool fake_is_idle(void)
{
    for (int i = 0; i < stream_count; i++)
        if (streams[i].head)
            return false;
    return true;
}

void fake_hold(cudaStream_t stream)
{
    stream_of(stream)->held = true;
}

void fake_break(bool broken)
{
    is_broken = broken;
}

void fake_reset(void)
{
    for (int i = 0; i < stream_count; i++)
        while (streams[i].head)
            pop(&streams[i]);
    fake_backends_free();
    for (int i = 0; i < transport_count; i++)
        free(transports[i]);
    stream_count = transport_count = 0;
    is_broken = false;
}

// ---- the transport ----

static enum status transport_start(struct transport *t, uint64_t tag,
                                   const struct message *messages, int count, struct error *error)
{
    (void)tag;
    (void)error;
    push(((struct fake_transport *)(void *)t)->stream,
         &(struct item){.kind = ITEM_EXCHANGE,
                        .messages = (struct message *)(uintptr_t)messages,
                        .count = count});
    return STATUS_OK;
}

static enum status transport_progress(struct transport *t, int timeout_ms, int *done,
                                      struct error *error)
{
    (void)t;
    (void)timeout_ms;
    (void)error;
    *done = 0;
    return STATUS_OK;
}

static const struct transport_ops transport_ops = {
    .name = "fake", .start = transport_start, .progress = transport_progress};

struct transport *fake_transport(int rank, int world_size)
{
    struct fake_transport *t = calloc(1, sizeof(*t));
    fake_insist(t != NULL, "no memory");
    t->base = (struct transport){.ops = &transport_ops, .rank = rank, .world_size = world_size};
    t->stream = fake_stream();
    stream_of(t->stream)->transport = &t->base;
    transports[transport_count++] = t;
    return &t->base;
}

cudaStream_t transport_nccl_stream(const struct transport *t)
{
    return ((const struct fake_transport *)(const void *)t)->stream;
}

// ---- the runtime ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    (void)flags;
    struct fake_event *made = calloc(1, sizeof(*made));
    *event = (cudaEvent_t)(void *)made;
    return *event ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free((void *)event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct fake_event *e = (struct fake_event *)(void *)event;
    e->captured = stream_of(stream)->capture;
    e->recorded += !e->captured;
    push(stream, &(struct item){.kind = ITEM_RECORD, .event = e, .number = e->recorded});
    return cudaSuccess;
}

// Supports only external records in a capture: each launch of the graph records the event.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    struct fake_event *e = (struct fake_event *)(void *)event;
    fake_insist(flags == cudaEventRecordExternal && stream_of(stream)->capture,
                "an external record without a capture");
    push(stream, &(struct item){.kind = ITEM_RECORD, .event = e});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    struct fake_event *e = (struct fake_event *)(void *)event;
    (void)flags;
    if (e->captured)
        fake_graph_join(e->captured, stream_of(stream));
    fake_insist(e->captured == stream_of(stream)->capture, "a graph waits for what is not in it");
    push(stream, &(struct item){.kind = ITEM_WAIT, .event = e, .number = e->recorded});
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const struct fake_event *e = (const struct fake_event *)(const void *)event;
    if (is_broken)
        return cudaErrorIllegalAddress;
    if (e->captured)
        return cudaErrorCapturedEvent;
    return e->reached == e->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    const struct fake_event *from = (const struct fake_event *)(const void *)start;
    const struct fake_event *to = (const struct fake_event *)(const void *)end;
    if (from->reached == 0 || to->reached == 0)
        return cudaErrorInvalidValue;
    *ms = (float)to->time - (float)from->time;
    return cudaSuccess;
}

struct memset_call {
    char *data;
    size_t pitch, width, height;
    int value;
};

static void memset_run(void *arguments)
{
    struct memset_call *c = arguments;
    for (size_t i = 0; i < c->height; i++)
        memset(c->data + i * c->pitch, c->value, c->width);
}

cudaError_t cudaMemset2DAsync(void *devPtr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    struct memset_call call = {devPtr, pitch, width, height, value};
    fake_push(stream, memset_run, &call, sizeof(call));
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    return cudaMemset2DAsync(devPtr, count, value, count, 1, stream);
}

cudaError_t delay_cuda(cudaStream_t stream, uint32_t ns)
{
    (void)stream;
    (void)ns; // fake_step() already runs streams in random order
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaError";
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "made up";
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    (void)flags;
    *pHost = calloc(1, size);
    return *pHost ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags)
{
    (void)flags;
    *pDevice = pHost;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *ptr)
{
    free(ptr);
    return cudaSuccess;
}

// ---- device memory and IPC handles --------------------------------------------------------------

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    *devPtr = malloc(size);
    if (*devPtr)
        memset(*devPtr, 0xff, size);
    return *devPtr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *devPtr)
{
    free(devPtr);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = 0; // not read, because no allocation fails
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    (void)device;
    *properties = (struct cudaDeviceProp){.name = "?"};
    return cudaSuccess;
}

cudaError_t cudaMemset(void *devPtr, int value, size_t count)
{
    memset(devPtr, value, count);
    return cudaSuccess;
}

struct copy_call {
    void *to;
    const void *from;
    size_t bytes;
};

static void copy_run(void *arguments)
{
    struct copy_call *c = arguments;
    memcpy(c->to, c->from, c->bytes);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct copy_call call = {dst, src, count};
    (void)kind;
    fake_push(stream, copy_run, &call, sizeof(call));
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &devPtr, sizeof(devPtr));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags)
{
    (void)flags;
    memcpy(devPtr, &handle, sizeof(*devPtr));
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *devPtr)
{
    (void)devPtr;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
    (void)flags;
    (void)priority;
    *pStream = fake_stream();
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream; // fake_reset() removes it
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    *leastPriority = *greatestPriority = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}
