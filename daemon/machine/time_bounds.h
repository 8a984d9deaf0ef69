// SPDX-License-Identifier: Apache-2.0
// Upper bounds of the speed of devices, and lower bounds of the time of a case derived from them.
// In doubt the speed is overestimated: a case that could finish in time must never be refused.
#ifndef CPATTN_DAEMON_MACHINE_TIME_BOUNDS_H
#define CPATTN_DAEMON_MACHINE_TIME_BOUNDS_H

#include <stdbool.h>

#include "plan/cost.h"
#include "proto/wire.h"

// Rates per device and second.
struct device_rates {
    double attention; // operations of forward and backward, in the dtypes of cases
    double reference; // operations of the fp64 reference
    double drawn;     // elements of the inputs
    int devices;      // devices that work at the same time
    bool gpus;        // devices are GPUs, not cores
};

// Bounds of the described machine. `cores`: cores for ranks, used if the machine has no GPUs. If
// the GPUs differ, each rate is that of the fastest.
struct device_rates time_bounds_rates(const struct wire_description *description, int cores);

// Adds another host with `devices` devices of the same kind, GPUs or cores. Nothing else is known
// of them, so they count as the fastest.
void time_bounds_add_host(struct device_rates *rates, int devices);

// Lower bound of the time of this work, divided evenly among the ranks. Inputs, attention and
// reference run one after the other. At most CORE_COST_MAX_NS.
uint64_t time_bounds_ns(const struct device_rates *rates, int world_size,
                        const struct case_cost *cost);

// The same for a case that case_check() admits.
uint64_t time_bounds_case_ns(const struct device_rates *rates, const struct cp_case *c);

#endif
