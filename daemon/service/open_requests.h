// SPDX-License-Identifier: Apache-2.0
// Waiting and running requests for a status reply.
#ifndef CPATTN_DAEMON_SERVICE_OPEN_REQUESTS_H
#define CPATTN_DAEMON_SERVICE_OPEN_REQUESTS_H

#include "daemon/net/peer.h"
#include "daemon/pool/crew.h"
#include "daemon/service/tasks.h"
#include "proto/wire.h"

// Fills in the requests of the slots 0..slots-1, running ones first, in order of admission. Returns
// their number. Only the user of a request and administrators get its id and its case. Each network
// client counts as another user.
int open_requests_list(const struct tasks *tasks, int slots, struct crews *crews,
                       const struct peer *peer, bool rules,
                       struct wire_open_request open[OPEN_LISTED_MAX]);

#endif
