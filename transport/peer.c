// SPDX-License-Identifier: Apache-2.0
#include "transport/peer.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/cuda/device_arena.h"
#include "transport/agree.h"
#include "transport/peer_direct.h"

// Window sizes are multiples of this.
#define WINDOW_STEP ((size_t)32 << 20)
// Size of a driver allocation: a smaller one would share its IPC mapping with others.
#define FLAGS_BYTES ((size_t)2 << 20)

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

// Shares `own` with the other ranks and maps their memory: places[world_size]. *all is false, and
// nothing is mapped, if a rank passes NULL or cannot map the memory of a peer. All ranks call it.
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

// Unmaps the peers' windows, waits until all ranks have done so, and frees the own window. All
// ranks call it.
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

// Replaces the windows by windows of at least `bytes` bytes. All ranks call it with the same size,
// and their existing windows have equal sizes.
static enum status windows_open(struct peer_transport *p, size_t bytes, bool patient, bool *lacks,
                                struct error *error)
{
    void *places[WORLD_SIZE_MAX], *memory = NULL;
    struct error broken;
    bool all = false, unmapped;
    enum status status = windows_close(p, error);
    if (status != STATUS_OK)
        return status;
    bytes = (bytes + WINDOW_STEP - 1) / WINDOW_STEP * WINDOW_STEP;
    cudaError_t result = device_memory_take(&memory, bytes, patient);
    if (result != cudaSuccess) {
        (void)cudaGetLastError();
        error_set(error, STATUS_RESOURCE_EXHAUSTED,
                  "the case needs %zu MiB of device memory for what its ranks send each other: %s",
                  bytes >> 20, cudaGetErrorString(result));
    }
    status = memory_map(p, memory, places, &all, &broken);
    *lacks = status == STATUS_OK && !all;
    if (*lacks) // waits until all peers have unmapped `memory`, which is freed next
        status = agree_all(p->control, true, &unmapped, &broken);
    if (status != STATUS_OK)
        *error = broken;
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

size_t transport_peer_window_bytes(const struct transport *t)
{
    return self(t)->window_bytes;
}

enum status transport_peer_free(struct transport *t, struct error *error)
{
    struct peer_transport *p = self(t);
    return p->window_bytes > 0 ? windows_close(p, error) : STATUS_OK;
}

enum status transport_peer_trim(struct transport *t, struct error *error)
{
    const struct peer_transport *p = self(t);
    return p->window_bytes > p->keep_bytes ? transport_peer_free(t, error) : STATUS_OK;
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

// Numbers that all ranks exchange and combine in the same way (told_join()).
enum { TOLD_WINDOW, TOLD_EXCHANGE, TOLD_KEEP, TOLD };

static void told_set(const struct peer_landings *l, int64_t told[TOLD])
{
    told[TOLD_WINDOW] = (int64_t)l->window_bytes;
    told[TOLD_EXCHANGE] = (int64_t)l->exchange_bytes;
    told[TOLD_KEEP] = (int64_t)l->keep_bytes;
}

// Combines announcements: the maximum of each number, but the minimum of TOLD_KEEP.
static void told_join(int64_t all[TOLD], const int64_t theirs[TOLD])
{
    for (int i = 0; i < TOLD; i++)
        if (i == TOLD_KEEP ? theirs[i] < all[i] : theirs[i] > all[i])
            all[i] = theirs[i];
}

// Size of a place in an announcement, in int64_t.
#define PLACE (sizeof(struct message_place) / sizeof(int64_t))
_Static_assert(PLACE * sizeof(int64_t) == sizeof(struct message_place), "a place is numbers alone");

// Exchanges announcements with every peer: the TOLD numbers, then the places of the peer's
// messages. Leaves those of the peers in p->heard, and the combined numbers in `all`.
static enum status landings_swap(struct peer_transport *p, const struct peer_landings *l,
                                 int64_t all[TOLD], struct error *error)
{
    struct message messages[WORLD_SIZE_MAX];
    size_t tell = 0, hear = 0;
    int count = 0;
    for (int peer = 0; peer < p->base.world_size; peer++) {
        tell += TOLD + PLACE * (size_t)l->count[peer];
        hear += TOLD + PLACE * (size_t)l->send_count[peer];
    }
    if (!numbers_grow(&p->told, tell) || !numbers_grow(&p->heard, hear))
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu messages", tell);
    int64_t *out = p->told, *in = p->heard;
    for (int peer = 0; peer < p->base.world_size; peer++) {
        size_t outs = TOLD + PLACE * (size_t)l->count[peer];
        size_t ins = TOLD + PLACE * (size_t)l->send_count[peer];
        if (peer == p->base.rank)
            continue;
        told_set(l, out);
        if (l->count[peer] > 0)
            memcpy(out + TOLD, l->places[peer], (size_t)l->count[peer] * sizeof(**l->places));
        messages[count++] = (struct message){.peer = peer,
                                             .send = out,
                                             .send_bytes = outs * sizeof(*out),
                                             .receive = in,
                                             .receive_bytes = ins * sizeof(*in)};
        out += outs;
        in += ins;
    }
    enum status status = agree_swap(p->control, messages, count, error);
    told_set(l, all);
    for (int i = 0; i < count && status == STATUS_OK; i++)
        told_join(all, messages[i].receive);
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
        memcpy(r->places, in + TOLD, (size_t)r->place_count * sizeof(*r->places));
        in += TOLD + PLACE * (size_t)r->place_count;
    }
    return STATUS_OK;
}

enum status transport_peer_announce(struct transport *t, const struct peer_landings *landings,
                                    bool *lacks, struct error *error)
{
    struct peer_transport *p = self(t);
    int64_t all[TOLD];
    *lacks = false;
    enum status status = landings_swap(p, landings, all, error);
    if (status == STATUS_OK)
        status = places_keep(p, landings, error);
    if (status != STATUS_OK)
        return status;
    size_t most = landings->captured ? PEER_DIRECT_CAPTURED_BYTES : PEER_DIRECT_BYTES;
    p->direct = p->kernels && all[TOLD_EXCHANGE] <= (int64_t)most;
    p->keep_bytes = (size_t)all[TOLD_KEEP];
    if ((size_t)all[TOLD_WINDOW] <= p->window_bytes)
        return STATUS_OK;
    return windows_open(p, (size_t)all[TOLD_WINDOW], landings->patient, lacks, error);
}

// ---- an exchange --------------------------------------------------------------------------------

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
        result = p->direct ? peer_direct_put(p, messages, count, traffic)
                           : peer_exchange_put(p, messages, count, traffic);
    p->strides = NULL;
    return result == cudaSuccess ? STATUS_OK : cuda_failed(p, result, "an exchange", error);
}

static void peer_lay(struct transport *t, const struct message_strides *strides)
{
    self(t)->strides = strides;
}

static void peer_mark(struct transport *t, uint64_t place, uint32_t value)
{
    self(t)->mark = place;
    self(t)->mark_value = value;
}

static bool peer_stamp(struct transport *t, uint64_t place)
{
    self(t)->stamp = place;
    return self(t)->direct;
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

// Does not free the own window and flags, which peers may still have mapped. The process ends soon,
// and the driver frees them.
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
    .lay = peer_lay,
    .mark = peer_mark,
    .stamp = peer_stamp,
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

enum status transport_peer_create(struct transport *control, cudaStream_t stream, bool alone,
                                  struct transport **t, struct error *error)
{
    void *places[WORLD_SIZE_MAX] = {NULL};
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
    if (status == STATUS_OK)
        status = agree_all(control, alone && control->world_size <= PEER_KERNEL_RANKS, &p->kernels,
                           error);
    for (int peer = 0; peer < p->base.world_size && all; peer++)
        p->remotes[peer].flags = places[peer];
    if (status != STATUS_OK) {
        peer_destroy(&p->base);
        return status;
    }
    *t = &p->base;
    return STATUS_OK;
}
