// SPDX-License-Identifier: Apache-2.0
// Plans of all ranks, executed in one process.
#ifndef CPATTN_TESTS_RANK_PLANS_EXECUTE_H
#define CPATTN_TESTS_RANK_PLANS_EXECUTE_H

#include "plan/plan.h"

// Runs a compute operation of a rank.
typedef void plans_compute(void *scene, int rank, const struct op *op);

// Executes all plans: each up to its next exchange, then the exchange of all ranks, and so on.
// `buffers` has the buffers of each rank. Messages between two ranks match in order. If two sizes
// differ, the smaller one counts.
void plans_execute(struct plan *const *plans, void *const *const *buffers, int world_size,
                   plans_compute *compute, void *scene);

#endif
