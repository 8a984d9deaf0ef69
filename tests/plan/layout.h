// SPDX-License-Identifier: Apache-2.0
// The places of tokens in memory, computed token by token from the text of plan/shard.h. Shares no
// code with plan/.
#ifndef CPATTN_TESTS_PLAN_LAYOUT_H
#define CPATTN_TESTS_PLAN_LAYOUT_H

#include "plan/case.h"
#include "tests/support/generate.h"

#define LAYOUT_RANKS_MAX    8
#define LAYOUT_LENGTH_MAX   24
#define LAYOUT_OCCUPIED_MAX ((int)GENERATE_OCCUPIED(LAYOUT_LENGTH_MAX, LAYOUT_RANKS_MAX))

struct place {
    int rank;
    int chunk;   // 0 or 1: first or second chunk of the rank
    int64_t row; // in the rank's tensor
};

// One side of a generated case of up to LAYOUT_RANKS_MAX ranks and lengths up to LAYOUT_LENGTH_MAX.
struct layout {
    int64_t length[GENERATE_BATCH_MAX], occupied[GENERATE_BATCH_MAX]; // [sequence]
    struct place places[GENERATE_BATCH_MAX][LAYOUT_OCCUPIED_MAX];     // [sequence][position]
    int64_t tokens[LAYOUT_RANKS_MAX][GENERATE_BATCH_MAX];             // [rank][sequence]
    int64_t rows[LAYOUT_RANKS_MAX];
};
void layout_make(const struct cp_case *c, enum shard_side side, struct layout *layout);

#endif
