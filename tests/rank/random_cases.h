// SPDX-License-Identifier: Apache-2.0
// Random cases of every kind on real ranks (tests/support/world.h), and what to do about one that
// fails.
#ifndef CPATTN_TESTS_RANK_RANDOM_CASES_H
#define CPATTN_TESTS_RANK_RANDOM_CASES_H

#include "plan/case.h"

// The case of that seed: up to 8 ranks; mostly short, some a thousand tokens long and of few heads.
void random_case(uint64_t seed, struct cp_case *c);

enum random_end { RANDOM_PASSES, RANDOM_FAILS, RANDOM_BREAKS_OFF };
enum random_end random_run(const struct cp_case *c);

// Runs a case; one number for all bits of its results, 0 when it is broken off.
uint64_t random_digest(const struct cp_case *c);

// Makes a case small that does not pass, keeping the way it ends; or one that passes with other
// bits in the order of its explore_seed than in plan order. Writes the command line that runs it
// again to `text` (CASE_COMMAND_MAX bytes). Prints what it is about as a comment in TAP. Returns
// how many cases were run on the way.
int random_minimize(struct cp_case *c, char *text);

#endif
