// SPDX-License-Identifier: Apache-2.0
#include "transport/peer.h"

#include <cuda.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "transport/agree.h"
#include "transport/stream_words.h"

// Windows are allocated in these steps.
#define WINDOW_STEP ((size_t)32 << 20)
// The size of a driver's allocation: a smaller one would share its mapping with others.
#define FLAGS_BYTES ((size_t)2 << 20)

// Counters in the memory of one rank, raised by the others; those of captured exchanges are 1 or 0.
struct counters {
    uint32_t arrived[WORLD_SIZE_MAX]; // number of exchanges whose bytes from this rank have arrived
    uint32_t ready[WORLD_SIZE_MAX]; // number of exchanges whose destinations at this rank are free
};
struct flags {
    struct counters eager, captured;
};

struct remote {
    char *window; // mapped; NULL: none
    struct flags *flags;
    cudaStream_t stream; // of copies to it
    cudaEvent_t sent;
    uint32_t sends, receives; // number of exchanges with it
    int64_t *places;          // offsets in its window of the messages to it
    int place_count, place_next, place_max;
};

struct peer_transport {
    struct transport base;
    struct transport *control;
    cudaStream_t stream;
    cudaEvent_t fork, last;
    stream_words_run *run;
    bool capturing;   // the exchange at hand
    uint64_t windows; // number of changes of windows
    char *window;
    size_t window_bytes; // of every rank
    struct flags *flags;
    struct remote remotes[WORLD_SIZE_MAX];
    int64_t *heard; // announcements of the other ranks
    int64_t *told;
    bool failed;
};

static struct peer_transport *self(const struct transport *t)
{
    return (struct peer_transport *)(uintptr_t)t;
}

static enum status cuda_failed(struct peer_transport *p, cudaError_t result, const char *what,
                               struct error *error)
{
    p->failed = true;
    return error_set(error, STATUS_INTERNAL, "%s: %s (%s)", what, cudaGetErrorString(result),
                     cudaGetErrorName(result));
}

// ---- mappings -----------------------------------------------------------------------------------

struct handle {
    cudaIpcMemHandle_t memory;
    char valid;
};

// Maps memory of all other ranks, or of none: places[world_size]. *all tells which.
static enum status memory_map(struct peer_transport *p, void *own, void *places[WORLD_SIZE_MAX],
                              bool *all, struct error *error)
{
    struct handle mine = {.valid = 0}, theirs[WORLD_SIZE_MAX];
    memset(&mine, 0, sizeof(mine));
    mine.valid = own && cudaIpcGetMemHandle(&mine.memory, own) == cudaSuccess;
    enum status status = agree_share(p->control, &mine, (char *)theirs, sizeof(mine), error);
    bool mapped = status == STATUS_OK && mine.valid;
    for (int peer = 0; peer < p->base.world_size; peer++) {
        places[peer] = NULL;
        if (peer == p->base.rank || !mapped)
            continue;
        mapped = theirs[peer].valid &&
                 cudaIpcOpenMemHandle(&places[peer], theirs[peer].memory,
                                      cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
        if (!mapped)
            places[peer] = NULL;
    }
    (void)cudaGetLastError(); // clears the error; a refusal is a valid outcome
    if (status == STATUS_OK)
        status = agree_all(p->control, mapped, all, error);
    for (int peer = 0; peer < p->base.world_size; peer++)
        if (places[peer] && (status != STATUS_OK || !*all)) {
            (void)cudaIpcCloseMemHandle(places[peer]);
            places[peer] = NULL;
        }
    return status;
}

// ---- windows ------------------------------------------------------------------------------------

// All peers must unmap a window before it is freed.
static enum status windows_close(struct peer_transport *p, struct error *error)
{
    bool all;
    p->windows++;
    for (int peer = 0; peer < p->base.world_size; peer++) {
        if (p->remotes[peer].window)
            (void)cudaIpcCloseMemHandle(p->remotes[peer].window);
        p->remotes[peer].window = NULL;
    }
    enum status status = agree_all(p->control, true, &all, error);
    if (status == STATUS_OK && p->window)
        (void)cudaFree(p->window);
    p->window = NULL;
    p->window_bytes = 0;
    return status;
}

// All ranks ask for the same size and have the same one already.
static enum status windows_open(struct peer_transport *p, size_t bytes, bool *lacks,
                                struct error *error)
{
    void *places[WORLD_SIZE_MAX], *memory = NULL;
    struct error broken;
    bool all = false;
    enum status status = windows_close(p, error);
    if (status != STATUS_OK)
        return status;
    bytes = (bytes + WINDOW_STEP - 1) / WINDOW_STEP * WINDOW_STEP;
    cudaError_t result = cudaMalloc(&memory, bytes);
    if (result != cudaSuccess) {
        (void)cudaGetLastError();
        error_set(error, STATUS_RESOURCE_EXHAUSTED,
                  "the case needs %zu MiB of device memory for what its ranks send each other: %s",
                  bytes >> 20, cudaGetErrorString(result));
    }
    status = memory_map(p, memory, places, &all, &broken);
    if (status != STATUS_OK)
        *error = broken;
    *lacks = status == STATUS_OK && !all;
    if (!all) {
        if (memory)
            (void)cudaFree(memory);
        return status;
    }
    for (int peer = 0; peer < p->base.world_size; peer++)
        p->remotes[peer].window = places[peer];
    p->window = memory;
    p->window_bytes = bytes;
    return STATUS_OK;
}

char *transport_peer_window(const struct transport *t)
{
    return self(t)->window;
}

uint64_t transport_peer_windows(const struct transport *t)
{
    return self(t)->windows;
}

enum status transport_peer_trim(struct transport *t, size_t keep_bytes, struct error *error)
{
    return self(t)->window_bytes > keep_bytes ? windows_close(self(t), error) : STATUS_OK;
}

// ---- announcements ------------------------------------------------------------------------------

static bool places_grow(struct remote *r, int count)
{
    r->place_count = r->place_next = 0;
    if (count <= r->place_max)
        return true;
    free(r->places);
    r->places = malloc((size_t)count * sizeof(*r->places));
    r->place_max = r->places ? count : 0;
    return r->places;
}

static bool numbers_grow(int64_t **numbers, size_t count)
{
    free(*numbers);
    *numbers = malloc(count * sizeof(**numbers) + 1);
    return *numbers;
}

// The announcement to a peer: the bytes of this rank's window, then the offsets of its messages.
static enum status landings_swap(struct peer_transport *p, const struct peer_landings *l,
                                 size_t *window_bytes, struct error *error)
{
    struct message messages[WORLD_SIZE_MAX];
    size_t tell = 0, hear = 0;
    int count = 0;
    for (int peer = 0; peer < p->base.world_size; peer++) {
        tell += 1 + (size_t)l->count[peer];
        hear += 1 + (size_t)l->send_count[peer];
    }
    if (!numbers_grow(&p->told, tell) || !numbers_grow(&p->heard, hear))
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu messages", tell);
    int64_t *out = p->told, *in = p->heard;
    for (int peer = 0; peer < p->base.world_size; peer++) {
        size_t outs = (size_t)l->count[peer], ins = (size_t)l->send_count[peer];
        if (peer == p->base.rank)
            continue;
        out[0] = (int64_t)l->window_bytes;
        if (outs > 0)
            memcpy(out + 1, l->offsets[peer], outs * sizeof(*out));
        messages[count++] =
            (struct message){peer, out, (outs + 1) * sizeof(*out), in, (ins + 1) * sizeof(*in)};
        out += outs + 1;
        in += ins + 1;
    }
    enum status status = agree_swap(p->control, messages, count, error);
    *window_bytes = l->window_bytes;
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        const int64_t *theirs = messages[i].receive;
        if ((size_t)theirs[0] > *window_bytes)
            *window_bytes = (size_t)theirs[0];
    }
    return status;
}

static enum status places_keep(struct peer_transport *p, const struct peer_landings *l,
                               struct error *error)
{
    const int64_t *in = p->heard;
    for (int peer = 0; peer < p->base.world_size; peer++) {
        struct remote *r = &p->remotes[peer];
        if (peer == p->base.rank)
            continue;
        if (!places_grow(r, l->send_count[peer]))
            return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d messages",
                             l->send_count[peer]);
        r->place_count = l->send_count[peer];
        memcpy(r->places, in + 1, (size_t)r->place_count * sizeof(*in));
        in += 1 + r->place_count;
    }
    return STATUS_OK;
}

enum status transport_peer_announce(struct transport *t, const struct peer_landings *landings,
                                    bool *lacks, struct error *error)
{
    struct peer_transport *p = self(t);
    size_t window_bytes;
    *lacks = false;
    enum status status = landings_swap(p, landings, &window_bytes, error);
    if (status == STATUS_OK)
        status = places_keep(p, landings, error);
    if (status != STATUS_OK || window_bytes <= p->window_bytes)
        return status;
    return windows_open(p, window_bytes, lacks, error);
}

// ---- an exchange --------------------------------------------------------------------------------

// The part of an exchange with one peer.
struct traffic {
    size_t send_bytes, receive_bytes;
};

static enum status messages_check(const struct peer_transport *p, const struct message *messages,
                                  int count, struct traffic traffic[WORLD_SIZE_MAX],
                                  struct error *error)
{
    if (p->failed)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the exchange before has failed");
    memset(traffic, 0, WORLD_SIZE_MAX * sizeof(*traffic));
    for (int i = 0; i < count; i++) {
        const struct message *m = &messages[i];
        if (m->peer < 0 || m->peer >= p->base.world_size)
            return error_set(error, STATUS_INVALID_ARGUMENT, "a message with rank %d of %d",
                             m->peer, p->base.world_size);
        traffic[m->peer].send_bytes += m->send_bytes;
        traffic[m->peer].receive_bytes += m->receive_bytes;
        if (m->peer == p->base.rank && m->send_bytes != m->receive_bytes)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "a local copy of %zu bytes to a place of %zu", m->send_bytes,
                             m->receive_bytes);
    }
    return STATUS_OK;
}

static struct counters *counters_of(const struct peer_transport *p, struct flags *flags)
{
    return p->capturing ? &flags->captured : &flags->eager;
}

static void counter_raise(const struct peer_transport *p, struct stream_words *w, uint32_t *counter,
                          uint32_t exchange)
{
    stream_words_write(w, (CUdeviceptr)(uintptr_t)counter, p->capturing ? 1 : exchange);
}

static void counter_await(const struct peer_transport *p, struct stream_words *w, uint32_t *counter,
                          uint32_t exchange)
{
    CUdeviceptr place = (CUdeviceptr)(uintptr_t)counter;
    if (!p->capturing) {
        stream_words_await(w, place, exchange, CU_STREAM_WAIT_VALUE_GEQ);
        return;
    }
    stream_words_await(w, place, 1, CU_STREAM_WAIT_VALUE_EQ);
    stream_words_write(w, place, 0);
}

// The number of the current exchange with a peer on one side; captured exchanges are not counted.
static uint32_t exchange_next(const struct peer_transport *p, uint32_t *exchanges)
{
    *exchanges += !p->capturing;
    return *exchanges;
}

static cudaError_t message_put(struct remote *r, const struct message *m, size_t window_bytes)
{
    if (r->place_next == r->place_count)
        r->place_next = 0; // repeats the announced exchanges
    int64_t place = r->place_next < r->place_count ? r->places[r->place_next++] : -1;
    if (place < 0 || (size_t)place > window_bytes || m->send_bytes > window_bytes - (size_t)place)
        return cudaErrorInvalidValue; // was not announced
    return cudaMemcpyAsync(r->window + place, m->send, m->send_bytes, cudaMemcpyDeviceToDevice,
                           r->stream);
}

// Sends everything to one peer on its own stream, as soon as the peer's places are free.
static cudaError_t peer_send(struct peer_transport *p, int peer, const struct message *messages,
                             int count)
{
    struct remote *r = &p->remotes[peer];
    struct stream_words before, after;
    uint32_t exchange = exchange_next(p, &r->sends);
    before.count = after.count = 0;
    counter_await(p, &before, &counters_of(p, p->flags)->ready[peer], exchange);
    counter_raise(p, &after, &counters_of(p, r->flags)->arrived[p->base.rank], exchange);
    cudaError_t result = cudaStreamWaitEvent(r->stream, p->fork, 0);
    if (result == cudaSuccess)
        result = stream_words_put(p->run, &before, r->stream);
    for (int i = 0; i < count && result == cudaSuccess; i++)
        if (messages[i].peer == peer && messages[i].send_bytes > 0)
            result = message_put(r, &messages[i], p->window_bytes);
    if (result == cudaSuccess)
        result = stream_words_put(p->run, &after, r->stream);
    return result == cudaSuccess ? cudaEventRecord(r->sent, r->stream) : result;
}

static cudaError_t own_copy(const struct peer_transport *p, const struct message *messages,
                            int count)
{
    cudaError_t result = cudaSuccess;
    for (int i = 0; i < count && result == cudaSuccess; i++)
        if (messages[i].peer == p->base.rank && messages[i].send_bytes > 0)
            result = cudaMemcpyAsync(messages[i].receive, messages[i].send, messages[i].send_bytes,
                                     cudaMemcpyDeviceToDevice, p->stream);
    return result;
}

// First tells every peer that its places are free, so that ranks do not wait for each other in a
// circle.
static cudaError_t peers_tell(struct peer_transport *p, const struct traffic *traffic)
{
    int world_size = p->base.world_size, rank = p->base.rank;
    struct stream_words ready;
    ready.count = 0;
    for (int step = 1; step < world_size; step++) {
        int peer = (rank + world_size - step) % world_size;
        struct remote *r = &p->remotes[peer];
        if (traffic[peer].receive_bytes > 0)
            counter_raise(p, &ready, &counters_of(p, r->flags)->ready[rank],
                          exchange_next(p, &r->receives));
    }
    return stream_words_put(p->run, &ready, p->stream);
}

// Waits for the sends, then for the receives. In the other order, branches of a graph that share a
// hardware queue could wait for each other.
static cudaError_t peers_join(struct peer_transport *p, const struct traffic *traffic)
{
    struct stream_words arrived;
    cudaError_t result = cudaSuccess;
    arrived.count = 0;
    for (int peer = 0; peer < p->base.world_size && result == cudaSuccess; peer++) {
        if (peer == p->base.rank)
            continue;
        if (traffic[peer].receive_bytes > 0)
            counter_await(p, &arrived, &counters_of(p, p->flags)->arrived[peer],
                          p->remotes[peer].receives);
        if (traffic[peer].send_bytes > 0)
            result = cudaStreamWaitEvent(p->stream, p->remotes[peer].sent, 0);
    }
    return result == cudaSuccess ? stream_words_put(p->run, &arrived, p->stream) : result;
}

static cudaError_t exchange_put(struct peer_transport *p, const struct message *messages, int count,
                                const struct traffic traffic[WORLD_SIZE_MAX])
{
    int world_size = p->base.world_size;
    cudaError_t result = peers_tell(p, traffic);
    if (result == cudaSuccess)
        result = cudaEventRecord(p->fork, p->stream);
    for (int step = 1; step < world_size && result == cudaSuccess; step++) {
        int peer = (p->base.rank + step) % world_size;
        if (traffic[peer].send_bytes > 0)
            result = peer_send(p, peer, messages, count);
    }
    if (result == cudaSuccess)
        result = own_copy(p, messages, count);
    if (result == cudaSuccess)
        result = peers_join(p, traffic);
    return result == cudaSuccess && !p->capturing ? cudaEventRecord(p->last, p->stream) : result;
}

static enum status peer_start(struct transport *t, uint64_t tag, const struct message *messages,
                              int count, struct error *error)
{
    struct peer_transport *p = self(t);
    struct traffic traffic[WORLD_SIZE_MAX];
    (void)tag;
    enum status status = messages_check(p, messages, count, traffic, error);
    if (status != STATUS_OK)
        return status;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t result = cudaStreamIsCapturing(p->stream, &capture);
    p->capturing = capture != cudaStreamCaptureStatusNone;
    if (result == cudaSuccess)
        result = exchange_put(p, messages, count, traffic);
    return result == cudaSuccess ? STATUS_OK : cuda_failed(p, result, "an exchange", error);
}

static enum status peer_look(struct peer_transport *p, int *done, struct error *error)
{
    if (p->failed)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the exchange before has failed");
    cudaError_t result = cudaEventQuery(p->last);
    if (result != cudaSuccess && result != cudaErrorNotReady)
        return cuda_failed(p, result, "an exchange", error);
    *done = result == cudaSuccess;
    return STATUS_OK;
}

static enum status peer_progress(struct transport *t, int timeout_ms, int *done,
                                 struct error *error)
{
    uint64_t start_ns = clock_now_ns();
    for (;;) {
        enum status status = peer_look(self(t), done, error);
        if (status != STATUS_OK || *done || timeout_ms == 0)
            return status;
        if (timeout_ms > 0 && clock_now_ns() - start_ns > (uint64_t)timeout_ms * NS_PER_MS)
            return STATUS_OK;
        sched_yield();
    }
}

static int peer_waiting_for(const struct transport *t)
{
    (void)t; // only the device knows
    return -1;
}

static int peer_lost_peer(const struct transport *t)
{
    return self(t)->control->ops->lost_peer(self(t)->control);
}

// ---- life ---------------------------------------------------------------------------------------

// The process ends soon, and the driver unmaps the windows.
static void peer_destroy(struct transport *t)
{
    if (!t)
        return;
    struct peer_transport *p = self(t);
    for (int peer = 0; peer < p->base.world_size; peer++) {
        struct remote *r = &p->remotes[peer];
        if (r->window)
            (void)cudaIpcCloseMemHandle(r->window);
        if (r->flags)
            (void)cudaIpcCloseMemHandle(r->flags);
        if (r->sent)
            (void)cudaEventDestroy(r->sent);
        if (r->stream)
            (void)cudaStreamDestroy(r->stream);
        free(r->places);
    }
    if (p->fork)
        (void)cudaEventDestroy(p->fork);
    if (p->last)
        (void)cudaEventDestroy(p->last);
    free(p->told);
    free(p->heard);
    free(p);
}

static const struct transport_ops peer_ops = {
    .name = "peer",
    .start = peer_start,
    .progress = peer_progress,
    .waiting_for = peer_waiting_for,
    .lost_peer = peer_lost_peer,
    .destroy = peer_destroy,
};

static cudaError_t remotes_init(struct peer_transport *p)
{
    int least, greatest;
    cudaError_t result = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    for (int peer = 0; peer < p->base.world_size && result == cudaSuccess; peer++) {
        struct remote *r = &p->remotes[peer];
        if (peer == p->base.rank)
            continue;
        result = cudaStreamCreateWithPriority(&r->stream, cudaStreamNonBlocking, greatest);
        if (result == cudaSuccess)
            result = cudaEventCreateWithFlags(&r->sent, cudaEventDisableTiming);
    }
    return result;
}

static cudaError_t peer_init(struct peer_transport *p)
{
    p->windows = 1;
    p->run = stream_words_find();
    if (!p->run)
        return cudaErrorNotSupported;
    cudaError_t result = cudaEventCreateWithFlags(&p->fork, cudaEventDisableTiming);
    if (result == cudaSuccess)
        result = cudaEventCreateWithFlags(&p->last, cudaEventDisableTiming);
    if (result == cudaSuccess)
        result = remotes_init(p);
    if (result == cudaSuccess)
        result = cudaMalloc((void **)&p->flags, FLAGS_BYTES);
    if (result == cudaSuccess)
        result = cudaMemset(p->flags, 0, FLAGS_BYTES);
    return result == cudaSuccess ? cudaDeviceSynchronize() : result;
}

enum status transport_peer_create(struct transport *control, cudaStream_t stream,
                                  struct transport **t, struct error *error)
{
    void *places[WORLD_SIZE_MAX];
    bool all = false;
    struct peer_transport *p = calloc(1, sizeof(*p));
    if (!p)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a transport");
    p->base = (struct transport){
        .ops = &peer_ops, .rank = control->rank, .world_size = control->world_size};
    p->control = control;
    p->stream = stream;
    bool good = peer_init(p) == cudaSuccess;
    (void)cudaGetLastError();
    enum status status = memory_map(p, good ? p->flags : NULL, places, &all, error);
    if (status == STATUS_OK && !all)
        status = error_set(error, STATUS_UNAVAILABLE,
                           "a device of the pool cannot map the memory of another");
    if (status != STATUS_OK) {
        peer_destroy(&p->base);
        return status;
    }
    for (int peer = 0; peer < p->base.world_size; peer++)
        p->remotes[peer].flags = places[peer];
    *t = &p->base;
    return STATUS_OK;
}
