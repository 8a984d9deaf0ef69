// SPDX-License-Identifier: Apache-2.0
// Words that follow each other on a stream are enqueued together:
// each group costs the host as much as a kernel in a graph, whatever it has.
#include "transport/peer_exchange.h"

// ---- counters -----------------------------------------------------------------------------------

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

// ---- messages -----------------------------------------------------------------------------------

// Bytes that lie one behind the other on either side.
struct run {
    const char *from;
    int64_t place; // in the peer's window
    size_t bytes;
};

// The place of the next message to a peer; -1: it was not announced.
static int64_t place_take(struct remote *r, size_t bytes, size_t window_bytes)
{
    if (r->place_next == r->place_count)
        r->place_next = 0; // repeats the announced exchanges
    int64_t place = r->place_next < r->place_count ? r->places[r->place_next++] : -1;
    bool fits =
        place >= 0 && (size_t)place <= window_bytes && bytes <= window_bytes - (size_t)place;
    return fits ? place : -1;
}

static cudaError_t run_end(const struct remote *r, const struct run *run, peer_run_put *put,
                           void *context)
{
    return run->bytes > 0 ? put(context, r->window + run->place, run->from, run->bytes)
                          : cudaSuccess;
}

cudaError_t peer_runs_put(struct peer_transport *p, int peer, const struct message *messages,
                          int count, peer_run_put *put, void *context)
{
    struct remote *r = &p->remotes[peer];
    struct run run = {0};
    cudaError_t result = cudaSuccess;
    for (int i = 0; i < count && result == cudaSuccess; i++) {
        const struct message *m = &messages[i];
        if (m->peer != peer || m->send_bytes == 0)
            continue;
        int64_t place = place_take(r, m->send_bytes, p->window_bytes);
        if (place < 0)
            return cudaErrorInvalidValue;
        bool follows = m->send == run.from + run.bytes && place == run.place + (int64_t)run.bytes;
        if (run.bytes == 0 || !follows) {
            result = run_end(r, &run, put, context);
            run = (struct run){m->send, place, 0};
        }
        run.bytes += m->send_bytes;
    }
    return result == cudaSuccess ? run_end(r, &run, put, context) : result;
}

static cudaError_t copy_put(void *context, char *to, const char *from, size_t bytes)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, *(cudaStream_t *)context);
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

// ---- the sides of an exchange -------------------------------------------------------------------

// First tells every peer that its places are free, so that ranks do not wait for each other in a
// circle.
static void peers_tell(struct peer_transport *p, const struct traffic *traffic,
                       struct stream_words *w)
{
    int world_size = p->base.world_size, rank = p->base.rank;
    for (int step = 1; step < world_size; step++) {
        int peer = (rank + world_size - step) % world_size;
        struct remote *r = &p->remotes[peer];
        if (traffic[peer].receive_bytes > 0)
            counter_raise(p, w, &counters_of(p, r->flags)->ready[rank],
                          exchange_next(p, &r->receives));
    }
}

// Sends everything to one peer as soon as its places are free. The words before the copies follow
// those in `w`, and the words behind them are left in `w`.
static cudaError_t peer_send(struct peer_transport *p, int peer, const struct message *messages,
                             int count, struct stream_words *w, cudaStream_t stream)
{
    struct remote *r = &p->remotes[peer];
    uint32_t exchange = exchange_next(p, &r->sends);
    counter_await(p, w, &counters_of(p, p->flags)->ready[peer], exchange);
    cudaError_t result = stream_words_put(p->run, w, stream);
    if (result == cudaSuccess)
        result = peer_runs_put(p, peer, messages, count, copy_put, &stream);
    counter_raise(p, w, &counters_of(p, r->flags)->arrived[p->base.rank], exchange);
    return result;
}

// Sends to all peers at once, each on a stream of its own; the exchange's stream waits for them.
static cudaError_t peers_send(struct peer_transport *p, const struct message *messages, int count,
                              const struct traffic *traffic)
{
    cudaError_t result = cudaEventRecord(p->fork, p->stream);
    for (int step = 1; step < p->base.world_size && result == cudaSuccess; step++) {
        int peer = (p->base.rank + step) % p->base.world_size;
        struct remote *r = &p->remotes[peer];
        struct stream_words w = stream_words_none();
        if (traffic[peer].send_bytes == 0)
            continue;
        result = cudaStreamWaitEvent(r->stream, p->fork, 0);
        if (result == cudaSuccess)
            result = peer_send(p, peer, messages, count, &w, r->stream);
        if (result == cudaSuccess)
            result = stream_words_put(p->run, &w, r->stream);
        if (result == cudaSuccess)
            result = cudaEventRecord(r->sent, r->stream);
    }
    return result;
}

// Before it waits for arrivals: in the other order, branches of a graph that share a hardware queue
// could wait for each other.
static cudaError_t sends_join(struct peer_transport *p, const struct traffic *traffic)
{
    cudaError_t result = cudaSuccess;
    for (int peer = 0; peer < p->base.world_size && result == cudaSuccess; peer++)
        if (peer != p->base.rank && traffic[peer].send_bytes > 0)
            result = cudaStreamWaitEvent(p->stream, p->remotes[peer].sent, 0);
    return result;
}

static void arrivals_await(struct peer_transport *p, const struct traffic *traffic,
                           struct stream_words *w)
{
    for (int peer = 0; peer < p->base.world_size; peer++)
        if (peer != p->base.rank && traffic[peer].receive_bytes > 0)
            counter_await(p, w, &counters_of(p, p->flags)->arrived[peer],
                          p->remotes[peer].receives);
    if (p->mark)
        stream_words_write(w, (CUdeviceptr)p->mark, p->mark_value);
    p->mark = 0;
}

// ---- the exchange -------------------------------------------------------------------------------

// The only peer that this rank sends to; -1: none or several.
static int destination_of(const struct peer_transport *p, const struct traffic *traffic, int *count)
{
    int only = -1;
    *count = 0;
    for (int peer = 0; peer < p->base.world_size; peer++)
        if (peer != p->base.rank && traffic[peer].send_bytes > 0) {
            only = peer;
            ++*count;
        }
    return *count == 1 ? only : -1;
}

// A copy within the device of this size takes as long as a second stream costs. Larger ones run
// beside the send.
#define OWN_COPY_BESIDE_BYTES ((size_t)8 << 20)

cudaError_t peer_exchange_put(struct peer_transport *p, const struct message *messages, int count,
                              const struct traffic *traffic)
{
    struct stream_words w = stream_words_none();
    size_t own = traffic[p->base.rank].send_bytes;
    int destinations, only = destination_of(p, traffic, &destinations);
    bool spread = destinations > 1 || (only >= 0 && own >= OWN_COPY_BESIDE_BYTES);
    cudaError_t result = cudaSuccess;
    peers_tell(p, traffic, &w);
    if (spread || own > 0)
        result = stream_words_put(p->run, &w, p->stream);
    if (result == cudaSuccess && spread)
        result = peers_send(p, messages, count, traffic);
    if (result == cudaSuccess)
        result = own_copy(p, messages, count);
    if (result == cudaSuccess && only >= 0 && !spread)
        result = peer_send(p, only, messages, count, &w, p->stream);
    if (result == cudaSuccess && spread)
        result = sends_join(p, traffic);
    arrivals_await(p, traffic, &w);
    if (result == cudaSuccess)
        result = stream_words_put(p->run, &w, p->stream);
    return result == cudaSuccess && !p->capturing ? cudaEventRecord(p->last, p->stream) : result;
}
