// SPDX-License-Identifier: Apache-2.0
// Deposits: shared memory that clients hand in before the request that uses it (common/deposit.h).
// Nothing is mapped here. The kernel tells whether a descriptor is a memfd, its seals, its size and
// whether it has holes; the seals guarantee that these stay true.
//
// The number of deposits of a client is limited. A deposit is dropped after a while if its request
// does not arrive, and at once when its connection ends. All calls on the loop's thread.
#ifndef CPATTN_DAEMON_NET_DEPOSITS_H
#define CPATTN_DAEMON_NET_DEPOSITS_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/net/peer.h"
#include "proto/wire.h"

// Upper bound of the deposits of all requests: announced, waiting and running. One user may have
// half of them. There may be twice as many connections. A daemon with few descriptors allows fewer
// deposits, to keep descriptors for its ranks.
#define DEPOSITS_MAX         32
#define DEPOSITS_DESCRIPTORS 64 // of the process, for each deposit

// -1 and 0: there is none.
struct segments {
    int given_fd, wanted_fd;
    int64_t given_bytes, wanted_bytes;
};

struct deposits;

struct deposits_handler {
    void *context;
    // Checks that the user may use the daemon; else says why not.
    enum status (*check)(void *context, const struct peer *peer, struct error *error);
};

// Listens beside the daemon's socket, whose lock the caller holds. `descriptors`: limit of this
// process. INVALID_ARGUMENT, FAILED_PRECONDITION: the path is taken (daemon/net/listener.h);
// UNAVAILABLE: the system refused.
enum status deposits_create(struct ev_loop *loop, const char *socket, int descriptors,
                            const struct deposits_handler *handler, struct deposits **deposits,
                            struct error *error) MUST_CHECK;

// Closes all and removes the socket file. Accepts NULL.
void deposits_destroy(struct deposits *d);

// Checks the tensors of a request against the client's deposit. NOT_FOUND: there is no deposit for
// it; INVALID_ARGUMENT: a tensor does not fit; UNIMPLEMENTED: the request came over a network.
// *bytes is what its ranks map.
enum status deposits_check(const struct deposits *d, const struct peer *peer,
                           const struct wire_request *request, int64_t *bytes,
                           struct error *error) MUST_CHECK;

// Moves the segments of a checked request to the caller, who ends with deposits_release().
struct segments deposits_take(struct deposits *d, const struct peer *peer,
                              const struct wire_request *request);
void deposits_release(struct deposits *d, struct segments *segments); // also if there are none

#endif
