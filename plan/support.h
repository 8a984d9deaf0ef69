// SPDX-License-Identifier: Apache-2.0
// What is refused, and why: the one list that case_check() goes through, that the command prints
// and that the manual has word for word.
#ifndef CPATTN_PLAN_SUPPORT_H
#define CPATTN_PLAN_SUPPORT_H

#include "plan/case.h"

struct support_rule {
    const char *what;    // is refused: "an a2a_size that does not divide world_size"
    const char *why;     // a sentence
    const char *example; // options of a case that this rule and no other refuses
    enum status (*check)(const struct cp_case *c, struct error *error);
};

// In the order in which they are asked, each only of what those before it admit; ends with a NULL
// what. What none of them refuses is supported, in every combination.
const struct support_rule *support_rules(void);

// The rules of fields that other kinds of jobs have, too: where a job runs, and that a guest's job
// has no order to explore.
enum status support_place(int32_t world_size, int32_t nodes, int32_t ranks_per_node,
                          const char *implementation, uint64_t explore_seed,
                          struct error *error) MUST_CHECK;

#endif
