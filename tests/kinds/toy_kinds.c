// SPDX-License-Identifier: Apache-2.0
// The table of kinds, in place of plan/kinds.c.
#include "tests/kinds/toy_sum.h"

const struct job_kind *const job_kinds[] = {&job_kind_attention, &job_kind_toy_sum, NULL};
