// SPDX-License-Identifier: Apache-2.0
// Moving bytes between the ranks of a pool: one operation, the exchange.
#ifndef CPATTN_TRANSPORT_TRANSPORT_H
#define CPATTN_TRANSPORT_TRANSPORT_H

#include <stdint.h>

#include "common/message.h"
#include "common/status.h"

// At most one exchange is under way at a time; ranks that have exchanges in common start them in
// the same order. Memory named in the messages belongs to the transport until the exchange is done.
struct transport;

struct transport_ops {
    const char *name; // "socket"
    // Starts an exchange. `tag` names it: the same on all ranks that take part, another for the
    // next one. It travels with each message and is compared, as is the size, so that ranks that
    // disagree about the schedule fail at once. Copies `messages`. A side of 0 bytes does not
    // travel at all; messages between two ranks match in list order, the empty ones left out. What
    // goes to the own rank is copied right here. FAILED_PRECONDITION: the one before is not done or
    // has failed; INVALID_ARGUMENT: no such peer, or local copies of unequal sides.
    enum status (*start)(struct transport *t, uint64_t tag, const struct message *messages,
                         int count, struct error *error);
    // Moves what can be moved; waits up to timeout_ms (0: not at all, -1: until something moves)
    // when nothing can. *done tells whether the exchange is complete. UNAVAILABLE: a peer is gone
    // (lost_peer() says which), also one that this exchange has no business with; INTERNAL: a peer
    // runs another schedule. After a failure the ranks are out of step and the transport is of no
    // further use.
    enum status (*progress)(struct transport *t, int timeout_ms, int *done, struct error *error);
    int (*waiting_for)(const struct transport *t); // a peer the exchange still waits for, or -1
    int (*lost_peer)(const struct transport *t);   // the peer that is gone, or -1
    void (*destroy)(struct transport *t);
};

struct transport {
    const struct transport_ops *ops;
    int rank, world_size;
};

// Sockets between rank processes. peer_fds[world_size]: connected stream sockets, the own entry -1.
// Makes the descriptors non-blocking, and owns them once it returns STATUS_OK.
enum status transport_socket_create(int rank, int world_size, const int *peer_fds,
                                    struct transport **t, struct error *error) MUST_CHECK;

#endif
