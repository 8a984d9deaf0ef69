// SPDX-License-Identifier: Apache-2.0
// The requests that wait or run, as a status shows them.
#ifndef CPATTN_DAEMON_SERVICE_OPEN_REQUESTS_H
#define CPATTN_DAEMON_SERVICE_OPEN_REQUESTS_H

#include "daemon/net/peer.h"
#include "daemon/pool/crew.h"
#include "daemon/service/tasks.h"
#include "proto/wire.h"

// Fills in those of the slots 0..slots-1, first those that run, each in order of admission, and
// returns how many there are. The id and the case of a request are filled in for its own user and
// for those who rule the daemon. Each client over a network counts as another user.
int open_requests_list(const struct tasks *tasks, int slots, struct crews *crews,
                       const struct peer *peer, bool rules,
                       struct wire_open_request open[OPEN_LISTED_MAX]);

#endif
