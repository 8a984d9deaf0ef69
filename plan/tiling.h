// SPDX-License-Identifier: Apache-2.0
// Tiling: the slices of a team's queries against keys.
#ifndef CPATTN_PLAN_TILING_H
#define CPATTN_PLAN_TILING_H

#include "plan/shard.h"
#include "plan/slice.h"

// Slices of the given query spans against the given key spans of the same sequences (both sequence
// by sequence, each in the order of memory), trimmed to the range that the mask admits. Fully
// masked rectangles are dropped; adjacent rectangles without a mask between them are merged if
// there is no bias. `kv_row_base`, the position of the keys in a gathered buffer, is added to every
// kv_row. Writes at most (spans of one sequence in kv) * q_count slices and returns their number.
int tiling_build(const struct cp_case *c, const struct span *q, int q_count, const struct span *kv,
                 int kv_count, int64_t kv_row_base, struct slice *slices);

#endif
