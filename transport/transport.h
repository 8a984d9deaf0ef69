// SPDX-License-Identifier: Apache-2.0
// A transport moves bytes between the ranks of a pool. It has one operation, the exchange.
#ifndef CPATTN_TRANSPORT_TRANSPORT_H
#define CPATTN_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/message.h"
#include "common/status.h"
#include "transport/strided.h"

// At most one exchange is in progress at a time. Ranks that share exchanges start them in the same
// order. The memory of the messages belongs to the transport until the exchange is complete.
struct transport;

struct transport_ops {
    const char *name; // "socket"
    // Starts an exchange. `tag` identifies it: the same on all participating ranks, a different one
    // for the next exchange. Each message carries tag and size, and the receiver compares them, so
    // ranks that disagree about the schedule fail at once. Copies `messages`. Messages of 0 bytes
    // are not sent; the others between two ranks match in list order. A message to the own rank is
    // copied in this call. FAILED_PRECONDITION: the previous exchange is not complete or has
    // failed; INVALID_ARGUMENT: no such peer, or a local copy whose two sides differ in size.
    enum status (*start)(struct transport *t, uint64_t tag, const struct message *messages,
                         int count, struct error *error);
    // Moves as many bytes as possible without waiting. If none can be moved, waits up to timeout_ms
    // (0: do not wait, -1: until some can). *done: the exchange is complete. UNAVAILABLE: a peer is
    // gone (lost_peer()), even if it takes no part in this exchange; INTERNAL: a peer runs another
    // schedule. After a failure the transport is unusable.
    enum status (*progress)(struct transport *t, int timeout_ms, int *done, struct error *error);
    // Sets the strides of the next exchange's messages: strides[count], borrowed until start()
    // returns. NULL: the transport takes only contiguous messages.
    void (*lay)(struct transport *t, const struct message_strides *strides);
    // The next exchange also writes `value` to this device address when its bytes have arrived.
    // NULL: not supported.
    void (*mark)(struct transport *t, uint64_t place, uint32_t value);
    // The next exchange also writes the device's clock in nanoseconds to this device address when
    // its bytes have arrived; 0: only asks. False: the announced exchanges cannot. NULL: not
    // supported.
    bool (*stamp)(struct transport *t, uint64_t place);
    int (*waiting_for)(const struct transport *t); // a peer the exchange still waits for, or -1
    int (*lost_peer)(const struct transport *t);   // the peer that is gone, or -1
    void (*destroy)(struct transport *t);
};

struct transport {
    const struct transport_ops *ops;
    int rank, world_size;
    uint64_t far; // bit p: rank p is on another host
};

// Sockets between rank processes. peer_fds[world_size]: connected stream sockets, -1 for this rank.
// Peers behind sockets that are not unix sockets are on other hosts. Makes the descriptors
// non-blocking, and owns them if it returns STATUS_OK.
enum status transport_socket_create(int rank, int world_size, const int *peer_fds,
                                    struct transport **t, struct error *error) MUST_CHECK;

#endif
