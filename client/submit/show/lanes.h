// SPDX-License-Identifier: Apache-2.0
// The rows of a drawn timeline (ranks that do the same at the same times can share one), its
// critical operations, and the time it loses by waiting. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_LANES_H
#define CPATTN_CLIENT_SUBMIT_SHOW_LANES_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/timeline.h"

#define LANES_OPS_MAX 4096

struct lanes {
    int row[WORLD_SIZE_MAX];   // of each rank
    int first[WORLD_SIZE_MAX]; // of each row: the first of its ranks
    int count[WORLD_SIZE_MAX]; // of each row: number of its ranks
    int rows;
    // Bit mask of the critical operations of each row, among the first LANES_OPS_MAX.
    uint64_t critical[WORLD_SIZE_MAX][LANES_OPS_MAX / 64];
};

// Makes one row for each rank or, if they are to be `joined`, for all ranks that are alike.
void lanes_init(struct lanes *lanes, struct plan *const *plans, const struct timeline *timeline,
                bool joined);

// True if this operation of one of the row's ranks is on the critical path: the chain of operations
// to the end of the timeline in which each operation starts when the one before it ends. The path
// goes to another rank where an exchange waits for that rank.
bool lanes_is_critical(const struct lanes *lanes, int row, int32_t op);

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
