// SPDX-License-Identifier: Apache-2.0
// Plans of all ranks in one process: what an exchange moves.
#ifndef CPATTN_TESTS_RANK_PLAN_EXCHANGE_H
#define CPATTN_TESTS_RANK_PLAN_EXCHANGE_H

#include "plan/plan.h"

// Moves what the exchanges at plans[rank]->ops[at[rank]] send. `buffers` has the buffers of each
// rank. Messages between two ranks are matched in order; of two sizes the smaller is moved.
void plan_exchange(struct plan *const *plans, void *const *const *buffers, const int *at,
                   int world_size);

#endif
