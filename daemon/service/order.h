// SPDX-License-Identifier: Apache-2.0
// Orders of administrators. Orders identify GPUs by index, and cores by number from 0; the pool
// core identifies a device by its position in the list of devices.
#ifndef CPATTN_DAEMON_SERVICE_ORDER_H
#define CPATTN_DAEMON_SERVICE_ORDER_H

#include <stdint.h>

#include "common/status.h"
#include "daemon/core/core.h"
#include "daemon/service/service_config.h"
#include "proto/wire.h"

// Carries out an order other than ORDER_RELOAD. *count: number of devices that are out of use
// afterwards, or of cases that are no longer refused as POISON. INVALID_ARGUMENT: there is no such
// host or device; names the existing ones.
enum status order_do(struct core *core, uint64_t now_ns, const struct service_config *config,
                     const struct wire_order *order, uint64_t *count,
                     struct error *error) MUST_CHECK;

#endif
