// SPDX-License-Identifier: Apache-2.0
// One exchange by copy engines, and the state of their transport (transport/peer.h).
#ifndef CPATTN_TRANSPORT_PEER_EXCHANGE_H
#define CPATTN_TRANSPORT_PEER_EXCHANGE_H

#include <stdbool.h>

#include "transport/peer_kernel.h"
#include "transport/stream_words.h"
#include "transport/strided.h"
#include "transport/transport.h"

// Counters in the memory of one rank, raised by the others; those of captured exchanges are 1 or 0.
struct counters {
    uint32_t arrived[WORLD_SIZE_MAX]; // number of exchanges whose bytes from this rank have arrived
    uint32_t ready[WORLD_SIZE_MAX]; // number of exchanges whose destinations at this rank are free
};
struct flags {
    struct counters eager, captured;
    struct kernel_counters kernel;
};

struct remote {
    char *window; // mapped; NULL: none
    struct flags *flags;
    cudaStream_t stream; // of copies to it
    cudaEvent_t sent;
    uint32_t sends, receives;     // number of exchanges with it
    struct message_place *places; // of the messages to it
    int place_count, place_next, place_max;
};

struct peer_transport {
    struct transport base;
    struct transport *control;
    cudaStream_t stream;
    cudaEvent_t fork, last;
    stream_words_run *run;
    bool capturing;                        // the exchange at hand
    const struct message_strides *strides; // of the next exchange's messages; NULL: none
    uint64_t mark;                         // where the next exchange writes mark_value; 0: nowhere
    uint32_t mark_value;
    uint64_t stamp;    // where the next exchange by a kernel writes the clock; 0: nowhere
    bool kernels;      // no rank shares its device with another
    bool direct;       // kernels make the announced exchanges
    size_t keep_bytes; // of a window between cases
    uint64_t windows;  // number of changes of windows
    char *window;
    size_t window_bytes; // of every rank
    struct flags *flags;
    struct remote remotes[WORLD_SIZE_MAX];
    int64_t *heard; // announcements of the other ranks
    int64_t *told;
    bool failed;
};

// The part of an exchange with one peer.
struct traffic {
    size_t send_bytes, receive_bytes;
};

// Enqueues a copy.
typedef cudaError_t peer_copy_put(void *context, char *to, const char *from,
                                  const struct strided_copy *copy);

// Passes on all messages to one peer, in as few copies as possible.
cudaError_t peer_copies_put(struct peer_transport *p, int peer, const struct message *messages,
                            int count, peer_copy_put *put, void *context);

// Enqueues an exchange whose messages have been checked; traffic[world_size] sums them up.
cudaError_t peer_exchange_put(struct peer_transport *p, const struct message *messages, int count,
                              const struct traffic *traffic);

#endif
