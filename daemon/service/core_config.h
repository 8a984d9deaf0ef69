// SPDX-License-Identifier: Apache-2.0
// Creates the pool core from the settings of a service.
#ifndef CPATTN_DAEMON_SERVICE_CORE_CONFIG_H
#define CPATTN_DAEMON_SERVICE_CORE_CONFIG_H

#include "daemon/core/core.h"
#include "daemon/service/service_config.h"

// Returns a new core; free it with core_destroy(). NULL: memory is short.
struct core *core_config_make(const struct service_config *config);

// Sets the maximum and the default time limit of requests in the description.
void description_set_timeouts(struct wire_description *description, uint64_t timeout_max_ns);

#endif
