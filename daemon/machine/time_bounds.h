// SPDX-License-Identifier: Apache-2.0
// Upper bounds of the speed of devices, and from them lower bounds of the time of a case. In doubt
// the speed is overestimated: a case that could be computed in time must never be refused.
#ifndef CPATTN_DAEMON_MACHINE_TIME_BOUNDS_H
#define CPATTN_DAEMON_MACHINE_TIME_BOUNDS_H

#include "plan/cost.h"
#include "proto/wire.h"

// Per device and second.
struct device_rates {
    double attention; // operations in the dtypes of cases
    double reference; // operations in fp64
    double drawn;     // elements of the inputs
    int devices;      // number that work at the same time
};

// Bounds of the described machine; `cores`: number of cores for ranks if it has no GPUs. With
// different GPUs the fastest counts.
struct device_rates time_bounds_rates(const struct wire_description *description, int cores);

// Lower bound of the time of this work, which is divided evenly among the ranks: inputs,
// computation and reference one after the other. Up to CORE_COST_MAX_NS.
uint64_t time_bounds_ns(const struct device_rates *rates, int world_size,
                        const struct case_cost *cost);

// The same for a case that case_check() admits.
uint64_t time_bounds_case_ns(const struct device_rates *rates, const struct cp_case *c);

#endif
