// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/choice.h"

#include <inttypes.h>
#include <stdio.h>

#include "transport/agree.h"
#include "transport/peer.h"

// Number of timed exchanges per transport; the fastest counts. One exchange before is not timed.
#define TIMED 2

static enum status cuda_failed(cudaError_t result, struct error *error)
{
    return error_set(error, STATUS_INTERNAL, "timing of an exchange: CUDA reports %s: %s",
                     cudaGetErrorName(result), cudaGetErrorString(result));
}

// Opens the windows of the timed exchanges: received bytes come first, then the bytes to send.
static enum status window_open(struct transport *peer, bool *lacks, struct error *error)
{
    struct message_place place = {0};
    // With this size copy engines make the exchange, not kernels (transport/peer_direct.h).
    struct peer_landings landings = {.window_bytes = 2 * CHOICE_BYTES, .exchange_bytes = INT64_MAX};
    int next = (peer->rank + 1) % peer->world_size;
    int previous = (peer->rank + peer->world_size - 1) % peer->world_size;
    landings.places[previous] = &place;
    landings.count[previous] = 1;
    landings.send_count[next] = 1;
    return transport_peer_announce(peer, &landings, lacks, error);
}

static enum status exchange(struct transport *t, char *memory, struct error *error)
{
    struct message messages[2] = {
        {.peer = (t->rank + 1) % t->world_size,
         .send = memory + CHOICE_BYTES,
         .send_bytes = CHOICE_BYTES},
        {.peer = (t->rank + t->world_size - 1) % t->world_size,
         .receive = memory,
         .receive_bytes = CHOICE_BYTES},
    };
    return t->ops->start(t, 0, messages, 2, error);
}

// Runs the exchanges and waits. *ns: the stream's time for the fastest timed exchange.
static enum status exchanges_time(struct transport *t, char *memory, cudaStream_t stream,
                                  cudaEvent_t events[TIMED + 1], uint64_t *ns, struct error *error)
{
    float best_ms = 0;
    cudaError_t result = cudaSuccess;
    for (int i = 0; i <= TIMED && result == cudaSuccess; i++) {
        enum status status = exchange(t, memory, error);
        if (status != STATUS_OK)
            return status;
        result = cudaEventRecord(events[i], stream);
    }
    if (result == cudaSuccess)
        result = cudaStreamSynchronize(stream);
    for (int i = 0; i < TIMED && result == cudaSuccess; i++) {
        float ms = 0;
        result = cudaEventElapsedTime(&ms, events[i], events[i + 1]);
        best_ms = i == 0 || ms < best_ms ? ms : best_ms;
    }
    *ns = (uint64_t)((double)best_ms * 1e6) + 1;
    return result == cudaSuccess ? STATUS_OK : cuda_failed(result, error);
}

static enum status both_time(struct transport *peer, struct transport *nccl, cudaStream_t stream,
                             struct choice *choice, struct error *error)
{
    cudaEvent_t events[TIMED + 1] = {NULL};
    cudaError_t result = cudaSuccess;
    enum status status = STATUS_OK;
    for (int i = 0; i <= TIMED && result == cudaSuccess; i++)
        result = cudaEventCreate(&events[i]);
    if (result != cudaSuccess)
        status = cuda_failed(result, error);
    char *memory = transport_peer_window(peer);
    if (status == STATUS_OK)
        status = exchanges_time(peer, memory, stream, events, &choice->peer_ns, error);
    if (status == STATUS_OK)
        status = exchanges_time(nccl, memory, stream, events, &choice->nccl_ns, error);
    for (int i = 0; i <= TIMED; i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    return status;
}

enum status choice_time(struct transport *control, struct transport *peer, struct transport *nccl,
                        cudaStream_t stream, struct choice *choice, struct error *error)
{
    struct choice mine = {0}, all[WORLD_SIZE_MAX] = {{0}};
    bool lacks;
    *choice = mine;
    enum status status = window_open(peer, &lacks, error);
    if (status != STATUS_OK || lacks)
        return status;
    status = both_time(peer, nccl, stream, &mine, error);
    if (status == STATUS_OK)
        status = agree_share(control, &mine, (char *)all, sizeof(mine), error);
    all[control->rank] = mine;
    for (int rank = 0; rank < control->world_size && status == STATUS_OK; rank++) {
        if (all[rank].peer_ns > choice->peer_ns)
            choice->peer_ns = all[rank].peer_ns;
        if (all[rank].nccl_ns > choice->nccl_ns)
            choice->nccl_ns = all[rank].nccl_ns;
    }
    return status;
}

void choice_describe(const struct choice *c, char *text, size_t size)
{
    bool nccl = choice_is_nccl(c);
    const char *names[2] = {nccl ? "NCCL" : "copy engines", nccl ? "copy engines" : "NCCL"};
    uint64_t us[2] = {(nccl ? c->nccl_ns : c->peer_ns) / 1000,
                      (nccl ? c->peer_ns : c->nccl_ns) / 1000};
    if (c->nccl_ns == 0)
        snprintf(text, size, "%s", names[0]);
    else
        snprintf(text, size, "%s (%zu MiB in %" PRIu64 " us, %s in %" PRIu64 " us)", names[0],
                 CHOICE_BYTES >> 20, us[0], names[1], us[1]);
}
