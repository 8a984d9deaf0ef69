// SPDX-License-Identifier: Apache-2.0
// Reports events of ranks to the core and carries out the actions that follow.
#ifndef CPATTN_DAEMON_SERVICE_RANK_EVENTS_H
#define CPATTN_DAEMON_SERVICE_RANK_EVENTS_H

#include "daemon/pool/crew.h"

struct service;

// Returns the handler for crews_create(); its context is the service.
struct crew_handler rank_events_handler(struct service *s);

#endif
