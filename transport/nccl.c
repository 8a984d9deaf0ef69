// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl.h"

#include <nccl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/limits.h"

// Tag of the exchange of NCCL's id on the control transport. Tags of cases are larger: they have
// the job number, from 1 on, in the bits from 24.
#define TAG_ID 1

// Bytes between every two ranks in the first exchange: enough for NCCL to connect all channels of a
// pair.
#define FIRST_BYTES 256

struct nccl_transport {
    struct transport base;
    struct transport *control;
    cudaStream_t stream;
    cudaEvent_t last; // after the newest exchange
    ncclComm_t comm;  // NULL in a world of one rank
    bool failed;
};

static struct nccl_transport *self(const struct transport *t)
{
    return (struct nccl_transport *)(uintptr_t)t;
}

cudaStream_t transport_nccl_stream(const struct transport *t)
{
    return self(t)->stream;
}

// ---- errors ----

static enum status cuda_failed(struct nccl_transport *n, cudaError_t result, const char *what,
                               struct error *error)
{
    n->failed = true;
    return error_set(error, STATUS_INTERNAL, "%s: %s (%s)", what, cudaGetErrorString(result),
                     cudaGetErrorName(result));
}

static enum status nccl_failed(struct nccl_transport *n, ncclResult_t result, const char *what,
                               struct error *error)
{
    const char *last = ncclGetLastError(n->comm);
    n->failed = true;
    return error_set(error, STATUS_INTERNAL, "%s: NCCL reports %s%s%s", what,
                     ncclGetErrorString(result), last && *last ? ": " : "", last ? last : "");
}

// ---- an exchange ----

static enum status messages_check(const struct nccl_transport *n, const struct message *messages,
                                  int count, struct error *error)
{
    if (n->failed)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the exchange before has failed");
    for (int i = 0; i < count; i++)
        if (messages[i].peer < 0 || messages[i].peer >= n->base.world_size)
            return error_set(error, STATUS_INVALID_ARGUMENT, "a message with rank %d of %d",
                             messages[i].peer, n->base.world_size);
    return STATUS_OK;
}

// Index of the first message from `at` on that is sent to (sends), or received from, the own rank.
static int own_next(const struct nccl_transport *n, const struct message *messages, int count,
                    int at, bool sends)
{
    for (; at < count; at++) {
        size_t bytes = sends ? messages[at].send_bytes : messages[at].receive_bytes;
        if (messages[at].peer == n->base.rank && bytes > 0)
            break;
    }
    return at;
}

static enum status own_copy(struct nccl_transport *n, const struct message *messages, int count,
                            struct error *error)
{
    int from = own_next(n, messages, count, 0, true);
    int to = own_next(n, messages, count, 0, false);
    while (from < count || to < count) {
        size_t bytes = from < count ? messages[from].send_bytes : 0;
        size_t room = to < count ? messages[to].receive_bytes : 0;
        if (bytes != room)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "a local copy of %zu bytes to a place of %zu", bytes, room);
        cudaError_t result = cudaMemcpyAsync(messages[to].receive, messages[from].send, bytes,
                                             cudaMemcpyDeviceToDevice, n->stream);
        if (result != cudaSuccess)
            return cuda_failed(n, result, "a local copy", error);
        from = own_next(n, messages, count, from + 1, true);
        to = own_next(n, messages, count, to + 1, false);
    }
    return STATUS_OK;
}

static ncclResult_t message_put(const struct nccl_transport *n, const struct message *m)
{
    ncclResult_t result = ncclSuccess;
    if (m->send_bytes > 0)
        result = ncclSend(m->send, m->send_bytes, ncclInt8, m->peer, n->comm, n->stream);
    if (result == ncclSuccess && m->receive_bytes > 0)
        result = ncclRecv(m->receive, m->receive_bytes, ncclInt8, m->peer, n->comm, n->stream);
    return result;
}

// Enqueues all messages with other ranks as one NCCL group.
static enum status group_put(struct nccl_transport *n, const struct message *messages, int count,
                             struct error *error)
{
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess)
        return nccl_failed(n, result, "an exchange", error);
    for (int i = 0; i < count && result == ncclSuccess; i++)
        if (messages[i].peer != n->base.rank)
            result = message_put(n, &messages[i]);
    // The group must be closed even after an error.
    ncclResult_t end = ncclGroupEnd();
    if (result == ncclSuccess)
        result = end;
    return result == ncclSuccess ? STATUS_OK : nccl_failed(n, result, "an exchange", error);
}

static bool others_have_part(const struct nccl_transport *n, const struct message *messages,
                             int count)
{
    for (int i = 0; i < count; i++)
        if (messages[i].peer != n->base.rank &&
            messages[i].send_bytes + messages[i].receive_bytes > 0)
            return true;
    return false;
}

static enum status nccl_start(struct transport *t, uint64_t tag, const struct message *messages,
                              int count, struct error *error)
{
    struct nccl_transport *n = self(t);
    (void)tag;
    enum status status = messages_check(n, messages, count, error);
    if (status == STATUS_OK)
        status = own_copy(n, messages, count, error);
    if (status == STATUS_OK && others_have_part(n, messages, count))
        status = group_put(n, messages, count, error);
    if (status != STATUS_OK)
        return status;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t result = cudaStreamIsCapturing(n->stream, &capture);
    if (result == cudaSuccess && capture == cudaStreamCaptureStatusNone)
        result = cudaEventRecord(n->last, n->stream);
    return result == cudaSuccess ? STATUS_OK : cuda_failed(n, result, "an exchange", error);
}

static enum status nccl_look(struct nccl_transport *n, int *done, struct error *error)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t query = n->comm ? ncclCommGetAsyncError(n->comm, &state) : ncclSuccess;
    if (query != ncclSuccess || state != ncclSuccess)
        return nccl_failed(n, query != ncclSuccess ? query : state, "an exchange", error);
    cudaError_t result = cudaEventQuery(n->last);
    if (result != cudaSuccess && result != cudaErrorNotReady)
        return cuda_failed(n, result, "an exchange", error);
    *done = result == cudaSuccess;
    return STATUS_OK;
}

static enum status nccl_progress(struct transport *t, int timeout_ms, int *done,
                                 struct error *error)
{
    struct nccl_transport *n = self(t);
    if (n->failed)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the exchange before has failed");
    uint64_t start_ns = clock_now_ns();
    for (;;) {
        enum status status = nccl_look(n, done, error);
        if (status != STATUS_OK || *done || timeout_ms == 0)
            return status;
        if (timeout_ms > 0 && clock_now_ns() - start_ns > (uint64_t)timeout_ms * 1000000)
            return STATUS_OK;
        sched_yield();
    }
}

// ---- the library's own collectives ----

static ncclDataType_t type_of(enum nccl_element element)
{
    static const ncclDataType_t types[] = {
        [NCCL_FP32] = ncclFloat32, [NCCL_FP16] = ncclFloat16, [NCCL_BF16] = ncclBfloat16,
        [NCCL_INT32] = ncclInt32,  [NCCL_INT64] = ncclInt64,  [NCCL_UINT8] = ncclUint8};
    return types[element];
}

static ncclRedOp_t reduction_of(enum nccl_reduction reduction)
{
    static const ncclRedOp_t reductions[] = {[NCCL_SUM] = ncclSum,
                                             [NCCL_PROD] = ncclProd,
                                             [NCCL_MIN] = ncclMin,
                                             [NCCL_MAX] = ncclMax,
                                             [NCCL_AVG] = ncclAvg};
    return reductions[reduction];
}

static ncclResult_t call_put(const struct nccl_transport *n, const struct nccl_call *c)
{
    ncclDataType_t type = type_of(c->element);
    ncclRedOp_t reduction = reduction_of(c->reduction);
    switch (c->operation) {
    case NCCL_ALL_REDUCE:
        return ncclAllReduce(c->send, c->receive, c->count, type, reduction, n->comm, n->stream);
    case NCCL_ALL_GATHER:
        return ncclAllGather(c->send, c->receive, c->count, type, n->comm, n->stream);
    case NCCL_REDUCE_SCATTER:
        return ncclReduceScatter(c->send, c->receive, c->count, type, reduction, n->comm,
                                 n->stream);
    case NCCL_BROADCAST:
        return ncclBroadcast(c->send, c->receive, c->count, type, c->root, n->comm, n->stream);
    case NCCL_REDUCE:
        return ncclReduce(c->send, c->receive, c->count, type, reduction, c->root, n->comm,
                          n->stream);
    }
    return ncclInvalidArgument;
}

// In a world of one rank there is no communicator, and the result is a copy of the send.
static cudaError_t call_alone(const struct nccl_transport *n, const struct nccl_call *c)
{
    static const size_t bytes[] = {[NCCL_FP32] = 4,  [NCCL_FP16] = 2,  [NCCL_BF16] = 2,
                                   [NCCL_INT32] = 4, [NCCL_INT64] = 8, [NCCL_UINT8] = 1};
    if (c->send == c->receive || c->count == 0)
        return cudaSuccess;
    return cudaMemcpyAsync(c->receive, c->send, c->count * bytes[c->element],
                           cudaMemcpyDeviceToDevice, n->stream);
}

enum status transport_nccl_call(struct transport *t, const struct nccl_call *call,
                                struct error *error)
{
    struct nccl_transport *n = self(t);
    if (n->failed)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the exchange before has failed");
    ncclResult_t result = ncclSuccess;
    cudaError_t recorded = cudaSuccess;
    if (n->comm)
        result = call_put(n, call);
    else
        recorded = call_alone(n, call);
    if (result != ncclSuccess)
        return nccl_failed(n, result, "a collective", error);
    if (recorded == cudaSuccess)
        recorded = cudaEventRecord(n->last, n->stream);
    return recorded == cudaSuccess ? STATUS_OK : cuda_failed(n, recorded, "a collective", error);
}

// ---- the state ----

static int nccl_waiting_for(const struct transport *t)
{
    (void)t; // only the device knows
    return -1;
}

static int nccl_lost_peer(const struct transport *t)
{
    return self(t)->control->ops->lost_peer(self(t)->control);
}

// ---- life ----

// Leaves without waiting for the peers, whose processes may have ended. A failed communicator is
// not aborted, because the abort may wait for them forever; the driver cleans up when the process
// ends.
static void comm_leave(struct nccl_transport *n)
{
    if (n->comm && !n->failed)
        (void)ncclCommAbort(n->comm);
}

static void nccl_destroy(struct transport *t)
{
    if (!t)
        return;
    struct nccl_transport *n = self(t);
    comm_leave(n);
    if (n->last)
        (void)cudaEventDestroy(n->last);
    free(n);
}

static const struct transport_ops nccl_ops = {
    .name = "nccl",
    .start = nccl_start,
    .progress = nccl_progress,
    .waiting_for = nccl_waiting_for,
    .lost_peer = nccl_lost_peer,
    .destroy = nccl_destroy,
};

static enum status exchange_wait(struct transport *t, uint64_t tag, const struct message *messages,
                                 int count, struct error *error)
{
    int done = 0;
    enum status status = t->ops->start(t, tag, messages, count, error);
    while (status == STATUS_OK && !done)
        status = t->ops->progress(t, -1, &done, error);
    return status;
}

// Sends NCCL's id from rank 0 to all others.
static enum status id_share(struct nccl_transport *n, ncclUniqueId *id, struct error *error)
{
    struct message messages[WORLD_SIZE_MAX];
    int count = 0;
    if (n->base.rank == 0) {
        ncclResult_t result = ncclGetUniqueId(id);
        if (result != ncclSuccess)
            return nccl_failed(n, result, "an id for the pool", error);
        for (int peer = 1; peer < n->base.world_size; peer++)
            messages[count++] =
                (struct message){.peer = peer, .send = id, .send_bytes = sizeof(*id)};
    } else {
        messages[count++] = (struct message){.receive = id, .receive_bytes = sizeof(*id)};
    }
    return exchange_wait(n->control, TAG_ID, messages, count, error);
}

static enum status comm_join(struct nccl_transport *n, int channels, struct error *error)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    enum status status = id_share(n, &id, error);
    if (status != STATUS_OK)
        return status;
    if (channels > 0)
        config.maxCTAs = channels;
    ncclResult_t result =
        ncclCommInitRankConfig(&n->comm, n->base.world_size, id, n->base.rank, &config);
    return result == ncclSuccess ? STATUS_OK : nccl_failed(n, result, "joining the pool", error);
}

// NCCL connects two ranks when they exchange their first message, so every pair exchanges one here.
static enum status peers_connect(struct nccl_transport *n, struct error *error)
{
    struct message messages[WORLD_SIZE_MAX];
    char *memory = NULL;
    int count = 0;
    size_t bytes = (size_t)FIRST_BYTES * (size_t)(n->base.world_size + 1);
    cudaError_t result = cudaMalloc((void **)&memory, bytes);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(memory, 0, bytes, n->stream);
    if (result != cudaSuccess)
        return cuda_failed(n, result, "memory for the first exchange", error);
    for (int peer = 0; peer < n->base.world_size; peer++)
        if (peer != n->base.rank)
            messages[count++] = (struct message){.peer = peer,
                                                 .send = memory,
                                                 .send_bytes = FIRST_BYTES,
                                                 .receive = memory + FIRST_BYTES * (peer + 1),
                                                 .receive_bytes = FIRST_BYTES};
    enum status status = exchange_wait(&n->base, 0, messages, count, error);
    if (status == STATUS_OK)
        (void)cudaFree(memory);
    return status == STATUS_OK ? status : error_prefix(error, "the first exchange");
}

enum status transport_nccl_create(struct transport *control, cudaStream_t stream, int channels,
                                  struct transport **t, struct error *error)
{
    struct nccl_transport *n = calloc(1, sizeof(*n));
    if (!n)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a transport");
    n->base = (struct transport){
        .ops = &nccl_ops, .rank = control->rank, .world_size = control->world_size};
    n->control = control;
    n->stream = stream;
    enum status status = STATUS_OK;
    cudaError_t result = cudaEventCreateWithFlags(&n->last, cudaEventDisableTiming);
    if (result != cudaSuccess)
        status = cuda_failed(n, result, "an event", error);
    if (status == STATUS_OK && control->world_size > 1) {
        status = comm_join(n, channels, error);
        if (status == STATUS_OK)
            status = peers_connect(n, error);
    }
    if (status != STATUS_OK) {
        nccl_destroy(&n->base);
        return status;
    }
    *t = &n->base;
    return STATUS_OK;
}
