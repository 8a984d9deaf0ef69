// SPDX-License-Identifier: Apache-2.0
// Runs the plans of all ranks with symbols in place of numbers: an element is the sum (modulo 2^64)
// of the contributions that went into it, each a hash of the very elements it was made from. So an
// output is right if and only if (but for a chance of 2^-64) every visible pair contributed exactly
// once and with the right operands, whatever the order.
#ifndef CPATTN_TESTS_SUPPORT_SYMBOLIC_H
#define CPATTN_TESTS_SUPPORT_SYMBOLIC_H

#include "plan/folds.h"

// Executes the plans in a legal order drawn from the seed: a compute operation runs, an exchange
// starts and a message moves at any moment that streams, waits and peers allow. Buffers begin with
// garbage. False, with a message in `why` (ERROR_TEXT_MAX bytes), if the plans get stuck, access
// memory outside their buffers, or an output differs from the definition of attention.
bool symbolic_run(struct plan *const *plans, uint64_t seed, char *why);

// The same where attentions do what folds[rank] says.
bool symbolic_run_folded(struct plan *const *plans, struct fold *const *folds, uint64_t seed,
                         char *why);

#endif
