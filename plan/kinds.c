// SPDX-License-Identifier: Apache-2.0
#include "plan/kind.h"
#include "plan/kind_list.h"

#define KIND_EXTERN(name) extern const struct job_kind job_kind_##name;
KIND_LIST(KIND_EXTERN)

#define KIND_ENTRY(name) &job_kind_##name,
const struct job_kind *const job_kinds[] = {KIND_LIST(KIND_ENTRY) NULL};
