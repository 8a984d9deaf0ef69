// SPDX-License-Identifier: Apache-2.0
// Plans of all ranks, executed in one process.
#ifndef CPATTN_TESTS_RANK_PLANS_EXECUTE_H
#define CPATTN_TESTS_RANK_PLANS_EXECUTE_H

#include "plan/plan.h"

// Runs an operation of a rank that is no exchange.
typedef void plans_compute(void *scene, int rank, const struct op *op);

// Executes all plans: each up to its next exchange, then that exchange of all. `buffers` has the
// buffers of each rank. Messages between two ranks are matched in order; of two sizes the smaller
// is moved.
void plans_execute(struct plan *const *plans, void *const *const *buffers, int world_size,
                   plans_compute *compute, void *scene);

#endif
