// SPDX-License-Identifier: Apache-2.0
// Converts events of ranks to events of the core.
#ifndef CPATTN_DAEMON_SERVICE_RANK_EVENTS_H
#define CPATTN_DAEMON_SERVICE_RANK_EVENTS_H

#include "daemon/pool/crew.h"

struct service;

struct crew_handler rank_events_handler(struct service *s);

#endif
