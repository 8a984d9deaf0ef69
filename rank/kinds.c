// SPDX-License-Identifier: Apache-2.0
#include "plan/kind_list.h"
#include "rank/kind.h"

#define KIND_EXTERN(name) extern const struct rank_kind rank_kind_##name;
KIND_LIST(KIND_EXTERN)

#define KIND_ENTRY(name) &rank_kind_##name,
const struct rank_kind *const rank_kinds[] = {KIND_LIST(KIND_ENTRY) NULL};
