// SPDX-License-Identifier: Apache-2.0
// Tiling: the slices of a team's queries against keys.
#ifndef CPATTN_PLAN_TILING_H
#define CPATTN_PLAN_TILING_H

#include "plan/shard.h"
#include "plan/slice.h"

// Slices of the given query spans against the given key spans of the same sequences (both sequence
// by sequence, each in the order of memory), trimmed to what the mask admits at all; a fully masked
// rectangle is dropped, neighbours without a mask between them are merged if there is no bias.
// `kv_row_base` is added to every kv_row (where a source rank's rows lie in a gathered buffer).
// Writes at most (spans of one sequence in kv) * q_count slices and returns how many.
int tiling_build(const struct cp_case *c, const struct span *q, int q_count, const struct span *kv,
                 int kv_count, int64_t kv_row_base, struct slice *slices);

#endif
