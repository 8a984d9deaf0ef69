// SPDX-License-Identifier: Apache-2.0
// One exchange by copy engines, and the state of their transport (transport/peer.h).
#ifndef CPATTN_TRANSPORT_PEER_EXCHANGE_H
#define CPATTN_TRANSPORT_PEER_EXCHANGE_H

#include <stdbool.h>

#include "transport/peer_kernel.h"
#include "transport/stream_words.h"
#include "transport/strided.h"
#include "transport/transport.h"

// Counters in the memory of one rank; element p is raised by rank p. In captured exchanges they are
// flags: 1 or 0.
struct counters {
    uint32_t arrived[WORLD_SIZE_MAX]; // exchanges whose bytes from rank p have arrived
    uint32_t ready[WORLD_SIZE_MAX];   // exchanges whose destinations at rank p are free
};
// All counters of a rank: those of exchanges outside of graphs, in graphs, and by kernels.
struct flags {
    struct counters eager, captured;
    struct kernel_counters kernel;
};

// A peer.
struct remote {
    char *window;             // mapped; NULL: none
    struct flags *flags;      // mapped
    cudaStream_t stream;      // for copies to the peer, if they do not use the exchange's stream
    cudaEvent_t sent;         // on `stream`, after the copies of an exchange
    uint32_t sends, receives; // exchanges with bytes to, and from, the peer; not captured ones
    struct message_place *places;           // announced destinations of the messages to the peer
    int place_count, place_next, place_max; // place_next: of the next message
};

struct peer_transport {
    struct transport base;
    struct transport *control;
    cudaStream_t stream;
    // `fork`: where the sends to several peers branch off the stream. `last`: after the newest
    // exchange that was not captured.
    cudaEvent_t fork, last;
    stream_words_run *run;
    bool capturing;                        // the current exchange is being captured
    const struct message_strides *strides; // of the next exchange's messages; NULL: none
    uint64_t mark;                         // where the next exchange writes mark_value; 0: nowhere
    uint32_t mark_value;
    uint64_t stamp; // where the next exchange by a kernel writes the clock; 0: nowhere
    bool kernels; // kernels may make exchanges: at most PEER_KERNEL_RANKS ranks, a device for each
    bool direct;  // kernels make the announced exchanges
    size_t keep_bytes; // largest window that is kept between cases
    uint64_t windows;  // transport_peer_windows()
    char *window;
    size_t window_bytes; // the same on all ranks
    struct flags *flags; // of this rank, raised by the peers
    struct remote remotes[WORLD_SIZE_MAX];
    int64_t *heard; // announcements of the other ranks
    int64_t *told;  // announcements to the other ranks
    bool failed;
};

// Total size of an exchange's messages with one peer.
struct traffic {
    size_t send_bytes, receive_bytes;
};

// Enqueues one copy.
typedef cudaError_t peer_copy_put(void *context, char *to, const char *from,
                                  const struct strided_copy *copy);

// Calls put() for all messages to one peer, merged into as few copies as possible.
cudaError_t peer_copies_put(struct peer_transport *p, int peer, const struct message *messages,
                            int count, peer_copy_put *put, void *context);

// Enqueues an exchange of checked messages; traffic[world_size] has their total size by peer.
cudaError_t peer_exchange_put(struct peer_transport *p, const struct message *messages, int count,
                              const struct traffic *traffic);

#endif
