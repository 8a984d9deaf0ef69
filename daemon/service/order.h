// SPDX-License-Identifier: Apache-2.0
// Orders of administrators. They number GPUs by index and cores from 0; the pool core uses the
// position in its list of devices.
#ifndef CPATTN_DAEMON_SERVICE_ORDER_H
#define CPATTN_DAEMON_SERVICE_ORDER_H

#include <stdint.h>

#include "common/status.h"
#include "daemon/core/core.h"
#include "daemon/service/service_config.h"
#include "proto/wire.h"

// Carries out all orders except ORDER_RELOAD. *count: devices that are out of use afterwards, or
// cases that are no longer refused as POISON. INVALID_ARGUMENT: no such host or device; names the
// existing ones.
enum status order_do(struct core *core, uint64_t now_ns, const struct service_config *config,
                     const struct wire_order *order, uint64_t *count,
                     struct error *error) MUST_CHECK;

#endif
