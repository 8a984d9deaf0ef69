// SPDX-License-Identifier: Apache-2.0
// Visibility in a sequence, from the definition of the case's mask and window: each query sees a
// range of keys, whose ends never decrease from one query to the next.
#ifndef CPATTN_JUDGE_MASK_H
#define CPATTN_JUDGE_MASK_H

#include "plan/case.h"

struct mask {
    int64_t queries, keys; // tokens of the sequence
    int64_t low, high;     // query i sees keys i + low to i + high
};

// Positions [begin, end); begin == end: none.
struct range {
    int64_t begin, end;
};

struct mask mask_of(const struct cp_case *c, int32_t sequence);

// Keys that query i sees, and queries that see key j.
struct range mask_keys(const struct mask *m, int64_t query);
struct range mask_queries(const struct mask *m, int64_t key);

// The range from the first to the last key that any of these queries sees; the same for keys.
struct range mask_keys_of(const struct mask *m, struct range queries);
struct range mask_queries_of(const struct mask *m, struct range keys);

// Number of visible (query, key) pairs.
double mask_pairs(const struct mask *m);

#endif
