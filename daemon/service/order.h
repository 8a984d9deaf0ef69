// SPDX-License-Identifier: Apache-2.0
// Orders of administrators, and the numbers by which they know devices: GPUs by their index, cores
// from 0 on. The pool core counts devices by their place.
#ifndef CPATTN_DAEMON_SERVICE_ORDER_H
#define CPATTN_DAEMON_SERVICE_ORDER_H

#include <stdint.h>

#include "common/status.h"
#include "daemon/core/core.h"
#include "proto/wire.h"

// Carries out all but ORDER_RELOAD. `count`: devices out of use after it, or cases that are refused
// as POISON no more. INVALID_ARGUMENT: there is no such device, with those that there are.
enum status order_do(struct core *core, uint64_t now_ns, const struct wire_description *description,
                     const struct wire_order *order, uint64_t *count,
                     struct error *error) MUST_CHECK;

// The GPU of each rank of a pool on these places, in `gpus`; NULL where there are none.
const int *order_gpus(const struct wire_description *description, uint64_t places, int ranks,
                      int gpus[DEVICES_MAX]);

#endif
