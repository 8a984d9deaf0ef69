// SPDX-License-Identifier: Apache-2.0
// Random cases on real ranks (tests/support/world.h), and the reduction of a case that fails.
#ifndef CPATTN_TESTS_RANK_RANDOM_CASES_H
#define CPATTN_TESTS_RANK_RANDOM_CASES_H

#include "plan/case.h"

// The case of a seed. Up to 8 ranks. Most cases are short; some have a thousand tokens and few
// heads.
void random_case(uint64_t seed, struct cp_case *c);

enum random_end { RANDOM_PASSES, RANDOM_FAILS, RANDOM_BREAKS_OFF };
enum random_end random_run(const struct cp_case *c);

// Runs a case; returns a digest of all results, 0 if it is aborted.
uint64_t random_digest(const struct cp_case *c);

// Makes a failing case smaller; the kind of failure stays. A passing case must have other bits in
// the order of its explore_seed than in plan order, and this difference stays. Writes the command
// line of the small case to `text` (CASE_COMMAND_MAX bytes). Prints its failure as TAP comments.
// Returns the number of cases that were run.
int random_minimize(struct cp_case *c, char *text);

#endif
