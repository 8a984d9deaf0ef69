// SPDX-License-Identifier: Apache-2.0
// Carries out the actions of the core: starts and kills pools, gives cases to their ranks, answers
// requests, and reports changes to watchers.
#ifndef CPATTN_DAEMON_SERVICE_ACTIONS_H
#define CPATTN_DAEMON_SERVICE_ACTIONS_H

#include "daemon/service/service_state.h"

// Call after each event reported to the core. A nested call, from an event that an action reports,
// does nothing: the call in progress carries out the actions of that event, too.
void actions_do(struct service *s);

#endif
