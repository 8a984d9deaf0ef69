// SPDX-License-Identifier: Apache-2.0
// The meaning of a case, from the text of its fields. Uses no code that is tested.
#ifndef CPATTN_TESTS_SUPPORT_DEFINITION_H
#define CPATTN_TESTS_SUPPORT_DEFINITION_H

#include "plan/case.h"

// Tokens of a sequence, and its length with padding over all ranks.
int64_t definition_length(const struct cp_case *c, enum shard_side side, int sequence);
int64_t definition_occupied(const struct cp_case *c, enum shard_side side, int sequence);

// True if query i of a sequence sees key j; positions of padding are allowed.
bool definition_visible(const struct cp_case *c, int sequence, int64_t i, int64_t j);

#endif
