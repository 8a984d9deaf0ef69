// SPDX-License-Identifier: Apache-2.0
// Who sees whom in a sequence, from the definition of the case's mask and window: for each query a
// range of keys, and both its ends never move back from one query to the next.
#ifndef CPATTN_JUDGE_MASK_H
#define CPATTN_JUDGE_MASK_H

#include "plan/case.h"

struct mask {
    int64_t queries, keys; // tokens of the sequence
    int64_t low, high;     // query i sees keys i + low to i + high
};

// Positions [begin, end); begin == end where there is none.
struct range {
    int64_t begin, end;
};

struct mask mask_of(const struct cp_case *c, int32_t sequence);

// Keys that query i sees, and queries that see key j.
struct range mask_keys(const struct mask *m, int64_t query);
struct range mask_queries(const struct mask *m, int64_t key);

// The keys that any of some queries sees and all between them, and the same the other way round.
struct range mask_keys_of(const struct mask *m, struct range queries);
struct range mask_queries_of(const struct mask *m, struct range keys);

// Pairs of a query and a key that it sees.
double mask_pairs(const struct mask *m);

#endif
