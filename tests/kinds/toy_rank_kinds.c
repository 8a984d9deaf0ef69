// SPDX-License-Identifier: Apache-2.0
// The ranks' table of kinds, in place of rank/kinds.c.
#include "rank/kind.h"

extern const struct rank_kind rank_kind_toy_sum;

const struct rank_kind *const rank_kinds[] = {&rank_kind_attention, &rank_kind_toy_sum, NULL};
