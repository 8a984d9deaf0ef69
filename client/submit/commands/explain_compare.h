// SPDX-License-Identifier: Apache-2.0
// The plans of a case, built and checked; and a comparison of several values of comm.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_EXPLAIN_COMPARE_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_EXPLAIN_COMPARE_H

#include <stdbool.h>
#include <stdio.h>

#include "plan/timeline.h"

// Builds the plans of all ranks and checks them, each alone and all together. Only the plan of rank
// `shown` keeps its slices, or all for -1. `plans` has WORLD_SIZE_MAX entries, initially NULL; the
// caller frees them, also after a failure.
enum status explain_make_plans(const struct cp_case *c, int shown, struct plan **plans,
                               struct error *error) MUST_CHECK;

// Checks that `words` ("p2p,a2a") are values of comm and not too many; complains if not. If a2a+p2p
// is one of them, it becomes the comm of `about`, so that an a2a_size is accepted.
bool explain_check_words(const char *words, struct cp_case *about);

// Compares the case with each value of comm in `words` ("p2p,a2a"); its a2a_size is for a2a+p2p
// alone. Prints a table, unless `svg` is
// stdout, and draws a picture, unless `svg` is NULL. Returns the first failure of case_check(), the
// plans or their timeline.
enum status explain_compare(const struct cp_case *c, const char *words,
                            const struct timeline_rates *rates, FILE *svg,
                            struct error *error) MUST_CHECK;

#endif
