// SPDX-License-Identifier: Apache-2.0
// Random cases of every kind on real ranks (tests/support/world.h), and what to do about one that
// fails.
#ifndef CPATTN_TESTS_RANK_RANDOM_CASES_H
#define CPATTN_TESTS_RANK_RANDOM_CASES_H

#include "plan/case.h"

// The case of a seed: up to 8 ranks; mostly short, some with a thousand tokens and few heads.
void random_case(uint64_t seed, struct cp_case *c);

enum random_end { RANDOM_PASSES, RANDOM_FAILS, RANDOM_BREAKS_OFF };
enum random_end random_run(const struct cp_case *c);

// Runs a case; returns a digest of all results, 0 if it is aborted.
uint64_t random_digest(const struct cp_case *c);

// Reduces a failing case, keeping the kind of failure, or a passing case whose bits differ between
// the order of its explore_seed and plan order. Writes the command line that runs it to `text`
// (CASE_COMMAND_MAX bytes). Prints progress as TAP comments. Returns the number of cases that were
// run.
int random_minimize(struct cp_case *c, char *text);

#endif
