// SPDX-License-Identifier: Apache-2.0
// The kinds of jobs that ranks run.
#include "rank/kind.h"

const struct rank_kind *const rank_kinds[] = {&rank_kind_attention, NULL};
