// SPDX-License-Identifier: Apache-2.0
// Waiting and running requests for a status reply.
#ifndef CPATTN_DAEMON_SERVICE_OPEN_REQUESTS_H
#define CPATTN_DAEMON_SERVICE_OPEN_REQUESTS_H

#include "daemon/net/peer.h"
#include "daemon/pool/crew.h"
#include "daemon/service/tasks.h"
#include "proto/wire.h"

// Lists the requests of the slots 0..slots-1, running ones first, in order of admission, up to
// OPEN_LISTED_MAX. Returns their number. Only the user of a request and administrators (`rules`)
// get its id and case. A network client without a certificate subject gets them of no request.
int open_requests_list(const struct tasks *tasks, int slots, struct crews *crews,
                       const struct peer *peer, bool rules,
                       struct wire_open_request open[OPEN_LISTED_MAX]);

#endif
