// SPDX-License-Identifier: Apache-2.0
// Which ranks of a timeline are drawn: of ranks that do the same at the same times, one. And what a
// timeline loses by waiting. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_LANES_H
#define CPATTN_CLIENT_SUBMIT_SHOW_LANES_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/timeline.h"

struct lanes {
    int row[WORLD_SIZE_MAX];   // of each rank
    int first[WORLD_SIZE_MAX]; // of each row: the first of its ranks
    int count[WORLD_SIZE_MAX]; // of each row: its ranks
    int rows;
};

// One row for each rank or, where they are to be `joined`, for all ranks that are alike.
void lanes_init(struct lanes *lanes, struct plan *const *plans, const struct timeline *timeline,
                bool joined);

// The ranks of a row: "0", "0-63", "1, 3, 4 ...".
void lanes_ranks(const struct lanes *lanes, int row, char *text, size_t size);

// What the rank that ends last loses on its compute stream by waiting for exchanges.
struct lanes_lost {
    int rank;
    double total, longest; // seconds
    int32_t exchange;      // operation that was waited for longest; -1: nothing was lost
};
struct lanes_lost lanes_find_lost(struct plan *const *plans, const struct timeline *timeline);

#endif
