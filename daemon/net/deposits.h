// SPDX-License-Identifier: Apache-2.0
// Deposits: shared memory that clients hand in before the request that uses it (common/deposit.h).
// The daemon maps nothing. It asks the kernel whether a descriptor is a memfd, and for its seals,
// its size and holes; the seals guarantee that these do not change.
//
// The number of deposits is limited. A deposit is dropped if its request does not arrive within
// 10 s, and at once when its connection ends. All calls on the loop's thread.
#ifndef CPATTN_DAEMON_NET_DEPOSITS_H
#define CPATTN_DAEMON_NET_DEPOSITS_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"
#include "daemon/net/peer.h"
#include "proto/wire.h"

// Upper bound of the deposits whose request has not arrived, is queued or runs. One user may have
// half of them. There may be twice as many connections. A daemon with few descriptors allows fewer
// deposits, to keep descriptors for its ranks.
#define DEPOSITS_MAX         32
#define DEPOSITS_DESCRIPTORS 64 // one deposit is allowed per so many descriptors of the process

// The memory of a deposit: memfds of given inputs and of wanted outputs. -1 and 0: there is none.
struct segments {
    int given_fd, wanted_fd;
    int64_t given_bytes, wanted_bytes;
    uid_t uid; // the client's user
};

struct deposits;

struct deposits_handler {
    void *context;
    // Returns OK if the user may use the daemon, else the reason of the refusal.
    enum status (*check)(void *context, const struct peer *peer, struct error *error);
};

// Listens at the path of the daemon's socket plus DEPOSIT_SUFFIX; the caller holds the lock of the
// socket. If that path is too long, logs it and succeeds without listening. `descriptors`: limit of
// this process. INVALID_ARGUMENT, FAILED_PRECONDITION: the path is taken (daemon/net/listener.h);
// UNAVAILABLE: the system refused.
enum status deposits_create(struct ev_loop *loop, const char *socket, int descriptors,
                            const struct deposits_handler *handler, struct deposits **deposits,
                            struct error *error) MUST_CHECK;

// Closes all connections and removes the socket file. Accepts NULL.
void deposits_destroy(struct deposits *d);

// Checks the tensors of a request against the client's deposit. NOT_FOUND: there is no deposit for
// it; INVALID_ARGUMENT: a tensor does not fit; UNIMPLEMENTED: the request came over a network.
// *bytes: the memory that each rank will map.
enum status deposits_check(const struct deposits *d, const struct peer *peer,
                           const struct wire_request *request, int64_t *bytes,
                           struct error *error) MUST_CHECK;

// Moves the segments of a checked request to the caller, who gives them back to deposits_release()
// after the request is answered.
struct segments deposits_take(struct deposits *d, const struct peer *peer,
                              const struct wire_request *request);
void deposits_release(struct deposits *d, struct segments *segments); // accepts empty segments

#endif
