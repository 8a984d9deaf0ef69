// SPDX-License-Identifier: Apache-2.0
// The exchange between devices of one machine by copy engines: each rank writes directly to the
// receiver's memory, without using multiprocessors.
//
// Received bytes go to *windows*: device memory of equal size on all ranks, which the other ranks
// have mapped (CUDA IPC). A receiver raises a counter in the sender's memory when the destination
// of an exchange is free; the sender raises one in the receiver's memory when the bytes have
// arrived. Streams raise and await these counters in order, without the host. Counters only grow,
// so none is reset while a peer may still read it.
//
// A graph writes and awaits the same numbers in each run. So a captured exchange uses flags in
// place of counters: one stream sets a flag to 1; the stream that awaits the flag resets it to 0
// before it lets the other continue. All flags are 0 between two runs, so graphs and other
// exchanges may follow each other in any order. Either all ranks capture an exchange, or none.
//
// If no two ranks share a device, kernels make small exchanges (transport/peer_direct.h).
//
// As in transport/nccl.h, start() enqueues an exchange on the stream without waiting; exchanges run
// one after the other. Every message must have been announced. After the last announced exchange
// the sequence may start again with the first. If a peer dies, the stream waits forever, and the
// process must be killed.
#ifndef CPATTN_TRANSPORT_PEER_H
#define CPATTN_TRANSPORT_PEER_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "common/limits.h"
#include "transport/transport.h"

// Connects the ranks of `control`, each with the current device of its process. All ranks must call
// it; `control` (no exchange in progress) and `stream` are borrowed for the life of the transport.
// `alone`: no other rank uses the device. UNAVAILABLE, on all ranks: a rank cannot map the memory
// of another.
enum status transport_peer_create(struct transport *control, cudaStream_t stream, bool alone,
                                  struct transport **t, struct error *error) MUST_CHECK;

// The messages of a case and their destinations in this rank's window, by peer. Messages are in the
// order of the exchanges, without empty ones. Both sides may be strided, if they have common loops
// (transport/strided.h).
struct peer_landings {
    const struct message_place *places[WORLD_SIZE_MAX]; // [count] destinations of a peer's messages
    int count[WORLD_SIZE_MAX];                          // messages from each peer
    int send_count[WORLD_SIZE_MAX];                     // messages to each peer
    size_t window_bytes;                                // size of the window that this rank needs
    size_t exchange_bytes; // sent in this rank's largest exchange, local copies included
    bool captured;         // the exchanges will be captured; the same on all ranks
    size_t keep_bytes;     // largest window that this rank may keep between cases
    bool patient;          // wait up to a second for memory of other processes
};

// Announces the exchanges of a case and ensures windows of the largest size that a rank needs. All
// ranks must call it, without an exchange in progress. *lacks: a rank lacks the memory (on that
// rank `error` has the reason); then no rank has a window, and nothing else has changed. Errors of
// `control` are returned.
enum status transport_peer_announce(struct transport *t, const struct peer_landings *landings,
                                    bool *lacks, struct error *error) MUST_CHECK;

// This rank's window, until the next announcement.
char *transport_peer_window(const struct transport *t);

// Version number of the windows: increases whenever a window is freed or replaced. Never 0.
uint64_t transport_peer_windows(const struct transport *t);

// The size of the windows of all ranks; 0: there are none.
size_t transport_peer_window_bytes(const struct transport *t);

// Frees the windows. All ranks must call it, without an exchange in progress. Errors of `control`
// are returned.
enum status transport_peer_free(struct transport *t, struct error *error) MUST_CHECK;

// The same, but only if the windows exceed the smallest keep_bytes that a rank has announced.
enum status transport_peer_trim(struct transport *t, struct error *error) MUST_CHECK;

#endif
