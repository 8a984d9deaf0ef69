// SPDX-License-Identifier: Apache-2.0
// Runs the plans of all ranks with symbols in place of numbers. An element is the sum (modulo 2^64)
// of its contributions. A contribution is a hash of the elements it was made from. So an output is
// right in any order if every visible pair has contributed exactly once, with the right operands.
// Another output is wrong, but for a chance of 2^-64.
#ifndef CPATTN_TESTS_SUPPORT_SYMBOLIC_H
#define CPATTN_TESTS_SUPPORT_SYMBOLIC_H

#include "plan/folds.h"

// Executes the plans in a legal order drawn from the seed: a compute operation runs, an exchange
// starts and a message moves at any moment that streams, waits and peers allow. Buffers begin with
// garbage. False, with a message in `why` (ERROR_TEXT_MAX bytes), if the plans get stuck, access
// memory outside their buffers, or an output differs from the definition of attention.
bool symbolic_run(struct plan *const *plans, uint64_t seed, char *why);

// The same with the folds of each rank (plan/folds.h).
bool symbolic_run_folded(struct plan *const *plans, struct fold *const *folds, uint64_t seed,
                         char *why);

#endif
