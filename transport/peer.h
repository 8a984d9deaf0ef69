// SPDX-License-Identifier: Apache-2.0
// The exchange between devices of one machine by copy engines: each rank writes directly to the
// receiver's memory, without using multiprocessors.
//
// Received bytes go to *windows*: device memory of equal size on all ranks, which the other ranks
// have mapped (CUDA IPC). A receiver raises a counter in the sender's memory when the destination
// of an exchange is free; the sender raises one in the receiver's memory when the bytes have
// arrived. Streams raise and await these counters in order, without the host. Counters only grow,
// so that none is reset while a peer may still read it.
//
// A graph writes and awaits the same numbers in each run. So a captured exchange uses flags in
// place of counters: one stream raises a flag; the stream that has awaited it lowers it before it
// lets the other continue. All flags are down between two runs, so graphs and other exchanges may
// follow each other in any order. Either all ranks capture an exchange, or none.
//
// Where every rank has a device to itself, kernels make small exchanges (transport/peer_direct.h).
//
// As in transport/nccl.h, start() enqueues an exchange on the stream without waiting; exchanges run
// one after the other. Every message must have been announced; after the last announced exchange
// the sequence may be repeated from the first on. If a peer dies, the stream waits forever, and the
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

// Places in this rank's window of the bytes that each peer will send, in the order of the exchanges
// and their messages, without empty ones. Bytes may lie in pieces on both sides, if both have
// common loops (transport/strided.h).
struct peer_landings {
    const struct message_place *places[WORLD_SIZE_MAX]; // [count]
    int count[WORLD_SIZE_MAX];
    int send_count[WORLD_SIZE_MAX]; // number of messages that this rank sends to each peer
    size_t window_bytes;            // that this rank needs
    size_t exchange_bytes; // that this rank sends in its largest exchange, its own included
    bool captured;         // the exchanges will be captured; on all ranks the same
    size_t keep_bytes;     // of a window that this rank may keep between cases
    bool patient;          // wait up to a second for memory of other processes
};

// Announces the exchanges of a case and ensures windows of the size that the largest rank needs.
// All ranks must call it, without an exchange in progress. *lacks: a rank lacks the memory (on that
// rank `error` has the reason); then no rank has a window, and nothing else has changed. Errors of
// `control` are returned.
enum status transport_peer_announce(struct transport *t, const struct peer_landings *landings,
                                    bool *lacks, struct error *error) MUST_CHECK;

// This rank's window, until the next announcement.
char *transport_peer_window(const struct transport *t);

// A number for the current windows of all ranks, which changes with every change of a window; never
// 0.
uint64_t transport_peer_windows(const struct transport *t);

// The size of the windows of all ranks; 0: there are none.
size_t transport_peer_window_bytes(const struct transport *t);

// Frees the windows. All ranks must call it, without an exchange in progress. Errors of `control`
// are returned.
enum status transport_peer_free(struct transport *t, struct error *error) MUST_CHECK;

// The same, if they are larger than a rank has announced to keep.
enum status transport_peer_trim(struct transport *t, struct error *error) MUST_CHECK;

#endif
