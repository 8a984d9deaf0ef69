// SPDX-License-Identifier: Apache-2.0
// The status of the daemon: its pools, its devices and counts of its cases.
#ifndef CPATTN_DAEMON_SERVICE_STATUS_H
#define CPATTN_DAEMON_SERVICE_STATUS_H

#include "daemon/service/service_state.h"

// Fills `status`, which points to `pools`, an array of POOLS_MAX, and to texts of the service; both
// are valid until the next event.
void status_fill(struct service *s, struct wire_status *status, struct wire_pool *pools);

#endif
