// SPDX-License-Identifier: Apache-2.0
// The kinds of jobs that there are.
#include "plan/kind.h"

const struct job_kind *const job_kinds[] = {&job_kind_attention, NULL};
