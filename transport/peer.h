// SPDX-License-Identifier: Apache-2.0
// The exchange between devices of one machine by their copy engines: each rank puts what it sends
// straight into the receiver's memory, and no multiprocessor has a part in it.
//
// What ranks receive lies in their *windows*: device memory of one size on all ranks, which the
// others have mapped (CUDA IPC). A receiver tells a sender that the places of an exchange are free
// by raising a counter in the sender's memory, a sender tells that the bytes are there by raising
// one in the receiver's. Streams raise and await these counters, in order, and the host takes no
// part. Counters only grow, so that none is ever reset while somebody may still look at it.
//
// start() puts an exchange on the stream and waits for nothing, as that of transport/nccl.h does;
// exchanges run one after the other. Every message of an exchange must have been announced. A peer
// that dies leaves the stream waiting: the process has to be ended then.
#ifndef CPATTN_TRANSPORT_PEER_H
#define CPATTN_TRANSPORT_PEER_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "common/limits.h"
#include "transport/transport.h"

// Connects the ranks of `control`, each with the device that is current in its process. All ranks
// must call it; `control` (nothing under way) and `stream` are borrowed for the life of the
// transport. UNAVAILABLE, on all ranks alike, where a rank cannot map the memory of another.
enum status transport_peer_create(struct transport *control, cudaStream_t stream,
                                  struct transport **t, struct error *error) MUST_CHECK;

// Where the bytes of the coming exchanges land in the own window: of those that each peer sends,
// in the order of the exchanges and their messages, without the empty ones.
struct peer_landings {
    const int64_t *offsets[WORLD_SIZE_MAX]; // [count]
    int count[WORLD_SIZE_MAX];
    int send_count[WORLD_SIZE_MAX]; // messages that the own rank sends to each peer
    size_t window_bytes;            // that the own rank needs
};

// Announces the exchanges of a case and makes sure of a window of at least the bytes that any rank
// needs. All ranks must call it, with no exchange under way. *lacks: a rank has not got the memory
// (`error` has the sentence where it is this one); no rank has a window then, and all are as
// before. Errors of `control` are passed on.
enum status transport_peer_announce(struct transport *t, const struct peer_landings *landings,
                                    bool *lacks, struct error *error) MUST_CHECK;

// The own window, until the next announcement.
char *transport_peer_window(const struct transport *t);

// Gives windows back that are larger than `keep_bytes`. All ranks must call it, with no exchange
// under way. Errors of `control` are passed on.
enum status transport_peer_trim(struct transport *t, size_t keep_bytes,
                                struct error *error) MUST_CHECK;

#endif
