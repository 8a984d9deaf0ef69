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
// A graph would write and await the same numbers each time that it runs. So an exchange that is
// captured has flags in the place of counters: each is raised by one stream, and lowered by the one
// that has awaited it, before that tells the other to go on. They are all down between two runs,
// and graphs and other exchanges follow each other in any order. All ranks must capture an
// exchange, or none.
//
// start() puts an exchange on the stream and waits for nothing, as that of transport/nccl.h does;
// exchanges run one after the other. Every message of an exchange must have been announced; after
// the last of them the same ones may come again, from the first on. If a
// peer dies, the stream waits without end, and the process must be killed.
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

// Where the bytes of the coming exchanges land in the own window: of those that each peer sends, in
// the order of the exchanges and their messages, without the empty ones.
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

// A number for the windows of all ranks as they are mapped now; another after any change, never 0.
uint64_t transport_peer_windows(const struct transport *t);

// Gives windows back that are larger than `keep_bytes`. All ranks must call it, with no exchange
// under way. Errors of `control` are passed on.
enum status transport_peer_trim(struct transport *t, size_t keep_bytes,
                                struct error *error) MUST_CHECK;

#endif
