// SPDX-License-Identifier: Apache-2.0
// The list of refused cases with the reasons. case_check() applies it, the command prints it, and
// the manual repeats it word for word.
#ifndef CPATTN_PLAN_SUPPORT_H
#define CPATTN_PLAN_SUPPORT_H

#include "plan/case.h"

struct support_rule {
    const char *what;    // is refused, as "an a2a_size that does not divide world_size"
    const char *why;     // a sentence
    const char *example; // options of a case that only this rule refuses
    enum status (*check)(const struct cp_case *c, struct error *error);
};

// Rules in the order of the checks; each requires that the rules before it hold. Ends with a NULL
// what. Cases that no rule refuses are supported, in every combination.
const struct support_rule *support_rules(void);

// The rules that apply to jobs of other kinds, too: placement; no explore_seed and no
// operation_times for guests.
enum status support_place(int32_t world_size, int32_t nodes, int32_t ranks_per_node,
                          struct error *error) MUST_CHECK;
enum status support_guest(const char *implementation, uint64_t explore_seed, bool operation_times,
                          struct error *error) MUST_CHECK;

#endif
