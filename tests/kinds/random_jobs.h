// SPDX-License-Identifier: Apache-2.0
// Random collectives and linear layers that the CPU backend supports, on 1 to 8 ranks. The same
// seed gives the same jobs.
#ifndef CPATTN_TESTS_KINDS_RANDOM_JOBS_H
#define CPATTN_TESTS_KINDS_RANDOM_JOBS_H

#include "plan/collective.h"
#include "plan/linear.h"

void random_jobs_seed(uint64_t seed);
int random_below(int bound); // 0..bound-1
struct collective random_collective(void);
struct linear random_linear(void);

#endif
