// SPDX-License-Identifier: Apache-2.0
// Consecutive memory operations of a stream are enqueued as one batch: a batch costs the host as
// much as a kernel in a graph, whatever its size.
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

// Waits for a counter of this rank. A captured exchange then resets the flag.
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

// Counts an exchange in *exchanges, r->sends or r->receives, and returns its number. Captured
// exchanges are not counted.
static uint32_t exchange_next(const struct peer_transport *p, uint32_t *exchanges)
{
    *exchanges += !p->capturing;
    return *exchanges;
}

// ---- messages -----------------------------------------------------------------------------------

// A copy that is contiguous on both sides.
struct run {
    const char *from;
    char *to;
    int64_t bytes;
};

static bool place_fits(const struct message_place *place, int64_t bytes, size_t window_bytes)
{
    int64_t reach = strides_reach(&place->strides, bytes);
    return place->offset >= 0 && reach >= 0 && (size_t)place->offset <= window_bytes &&
           (size_t)reach <= window_bytes - (size_t)place->offset;
}

// Takes the announced place of the next message to a peer; NULL: none was announced, or the message
// exceeds the window there.
static const struct message_place *place_take(struct remote *r, int64_t bytes, size_t window_bytes)
{
    if (r->place_next == r->place_count)
        r->place_next = 0; // repeats the announced exchanges
    const struct message_place *place =
        r->place_next < r->place_count ? &r->places[r->place_next++] : NULL;
    return place && place_fits(place, bytes, window_bytes) ? place : NULL;
}

// Enqueues the run, if there is one, and clears it.
static cudaError_t run_end(struct run *run, peer_copy_put *put, void *context)
{
    const struct strided_copy copy = {.bytes = run->bytes};
    const struct run ended = *run;
    *run = (struct run){0};
    return ended.bytes > 0 ? put(context, ended.to, ended.from, &copy) : cudaSuccess;
}

// Appends a message to the run if it is adjacent on both sides; else ends the run and begins a new
// one.
static cudaError_t run_add(struct run *run, const struct run *message, peer_copy_put *put,
                           void *context)
{
    cudaError_t result = cudaSuccess;
    if (message->from != run->from + run->bytes || message->to != run->to + run->bytes)
        result = run_end(run, put, context);
    if (run->bytes == 0)
        *run = (struct run){message->from, message->to, 0};
    run->bytes += message->bytes;
    return result;
}

// Copies a message with these strides to `to`. A contiguous message only extends the run.
static cudaError_t message_put(const struct message *m, const struct message_strides *strides,
                               char *to, struct run *run, peer_copy_put *put, void *context)
{
    const int64_t bytes = (int64_t)m->send_bytes;
    struct strided_copy copy;
    if (strides->send.bytes == 0 && strides->receive.bytes == 0)
        return run_add(run, &(struct run){m->send, to, bytes}, put, context);
    if (!strided_copy_make(&strides->send, &strides->receive, bytes, &copy))
        return cudaErrorInvalidValue;
    cudaError_t result = run_end(run, put, context);
    return result == cudaSuccess ? put(context, to, m->send, &copy) : result;
}

cudaError_t peer_copies_put(struct peer_transport *p, int peer, const struct message *messages,
                            int count, peer_copy_put *put, void *context)
{
    struct remote *r = &p->remotes[peer];
    struct run run = {0};
    cudaError_t result = cudaSuccess;
    for (int i = 0; i < count && result == cudaSuccess; i++) {
        const struct message *m = &messages[i];
        if (m->peer != peer || m->send_bytes == 0)
            continue;
        struct message_strides strides = {0};
        char *to = m->receive;
        if (p->strides)
            strides = p->strides[i];
        if (peer != p->base.rank) {
            const struct message_place *place =
                place_take(r, (int64_t)m->send_bytes, p->window_bytes);
            if (!place)
                return cudaErrorInvalidValue;
            strides.receive = place->strides;
            to = r->window + place->offset;
        }
        result = message_put(m, &strides, to, &run, put, context);
    }
    return result == cudaSuccess ? run_end(&run, put, context) : result;
}

// ---- copy engines -------------------------------------------------------------------------------

// Number of loops that one runtime call can do: 2 with cudaMemcpy3DAsync(), where a block must be a
// multiple of the row stride; 1 with cudaMemcpy2DAsync(); 0.
static int loops_at_once(const struct strided_copy *c)
{
    const struct strided_loop *rows = &c->loops[0], *blocks = &c->loops[1];
    if (c->loop_count == 0 || rows->from > INT32_MAX || rows->to > INT32_MAX)
        return 0;
    bool boxes = c->loop_count > 1 && blocks->from % rows->from == 0 &&
                 blocks->to % rows->to == 0 && blocks->from >= rows->count * rows->from &&
                 blocks->to >= rows->count * rows->to;
    return boxes ? 2 : 1;
}

static cudaError_t boxes_put(cudaStream_t stream, char *to, const char *from,
                             const struct strided_copy *c)
{
    const struct strided_loop *rows = &c->loops[0], *blocks = &c->loops[1];
    const size_t width = (size_t)c->bytes;
    const struct cudaMemcpy3DParms box = {
        .srcPtr = {(void *)(uintptr_t)from, (size_t)rows->from, width,
                   (size_t)(blocks->from / rows->from)},
        .dstPtr = {to, (size_t)rows->to, width, (size_t)(blocks->to / rows->to)},
        .extent = {width, (size_t)rows->count, (size_t)blocks->count},
        .kind = cudaMemcpyDeviceToDevice};
    return cudaMemcpy3DAsync(&box, stream);
}

// Enqueues a copy on the stream *context. Copy engines copy 2D and 3D boxes as fast as contiguous
// bytes.
static cudaError_t copy_put(void *context, char *to, const char *from, const struct strided_copy *c)
{
    cudaStream_t stream = *(cudaStream_t *)context;
    const int loops = loops_at_once(c);
    const size_t bytes = (size_t)c->bytes;
    cudaError_t result = cudaSuccess;
    for (int64_t i = 0, runs = strided_runs(c, loops); i < runs && result == cudaSuccess; i++) {
        int64_t from_step, to_step;
        strided_run(c, loops, i, &from_step, &to_step);
        if (loops == 2)
            result = boxes_put(stream, to + to_step, from + from_step, c);
        else if (loops == 1)
            result = cudaMemcpy2DAsync(to + to_step, (size_t)c->loops[0].to, from + from_step,
                                       (size_t)c->loops[0].from, bytes, (size_t)c->loops[0].count,
                                       cudaMemcpyDeviceToDevice, stream);
        else
            result = cudaMemcpyAsync(to + to_step, from + from_step, bytes,
                                     cudaMemcpyDeviceToDevice, stream);
    }
    return result;
}

// ---- the sides of an exchange -------------------------------------------------------------------

// Raises the ready counter at every peer that sends to this rank. This must precede all waits of
// the exchange, or ranks could wait for each other in a cycle.
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

// Sends all messages to one peer: waits for its ready counter, copies, and raises its arrived
// counter. The wait is enqueued behind the operations in `w`; the raise is left in `w` for the
// caller to enqueue.
static cudaError_t peer_send(struct peer_transport *p, int peer, const struct message *messages,
                             int count, struct stream_words *w, cudaStream_t stream)
{
    struct remote *r = &p->remotes[peer];
    uint32_t exchange = exchange_next(p, &r->sends);
    counter_await(p, w, &counters_of(p, p->flags)->ready[peer], exchange);
    cudaError_t result = stream_words_put(p->run, w, stream);
    if (result == cudaSuccess)
        result = peer_copies_put(p, peer, messages, count, copy_put, &stream);
    counter_raise(p, w, &counters_of(p, r->flags)->arrived[p->base.rank], exchange);
    return result;
}

// Sends to all peers concurrently, each on its own stream, which branches off the exchange's
// stream. The caller joins the streams with sends_join().
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

// Makes the exchange's stream wait for the sends of all peers. Must precede the waits for arrivals:
// in the other order, branches of a graph that share a hardware queue could deadlock.
static cudaError_t sends_join(struct peer_transport *p, const struct traffic *traffic)
{
    cudaError_t result = cudaSuccess;
    for (int peer = 0; peer < p->base.world_size && result == cudaSuccess; peer++)
        if (peer != p->base.rank && traffic[peer].send_bytes > 0)
            result = cudaStreamWaitEvent(p->stream, p->remotes[peer].sent, 0);
    return result;
}

// Waits for the bytes of every peer, then writes the mark.
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

// The only peer that this rank sends to; -1: none or several. *count: the number of such peers.
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

// A local copy of this size takes as long as the use of a second stream costs. Larger local copies
// run concurrently with the send.
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
        result = peer_copies_put(p, p->base.rank, messages, count, copy_put, &p->stream);
    if (result == cudaSuccess && only >= 0 && !spread)
        result = peer_send(p, only, messages, count, &w, p->stream);
    if (result == cudaSuccess && spread)
        result = sends_join(p, traffic);
    arrivals_await(p, traffic, &w);
    if (result == cudaSuccess)
        result = stream_words_put(p->run, &w, p->stream);
    return result == cudaSuccess && !p->capturing ? cudaEventRecord(p->last, p->stream) : result;
}
