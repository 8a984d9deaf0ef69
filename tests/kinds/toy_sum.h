// SPDX-License-Identifier: Apache-2.0
// A kind of job to copy: `sum` adds up a vector of each rank. See CONTRIBUTING.md, "A kind of job".
#ifndef CPATTN_TESTS_KINDS_TOY_SUM_H
#define CPATTN_TESTS_KINDS_TOY_SUM_H

#include "plan/kind.h"

#define TOY_SUM_COUNT_MAX (1 << 20)

struct toy_sum {
    int32_t world_size;
    int32_t count;  // elements of each vector, 64-bit integers
    int32_t rounds; // number of times that the sum is computed
    int32_t wrong;  // a rank that adds 1 too much to the last element, or -1
    uint64_t seed;  // of the vectors
};

extern const struct job_kind job_kind_toy_sum;

#endif
