// SPDX-License-Identifier: Apache-2.0
// Numbers the rows of one chunk of a rank's tensor: by span, then token, then head (fastest).
#ifndef CPATTN_JUDGE_CHUNK_H
#define CPATTN_JUDGE_CHUNK_H

#include "common/report.h"
#include "plan/shard.h"

// Number of tokens in the chunk. `spans`: the rank's spans of one side.
int64_t chunk_tokens(const struct span *spans, int count, int chunk);

// Sequence, position and head of row `index` of the chunk; dim is 0. The row must exist.
struct element chunk_element(const struct span *spans, int count, int chunk, int heads,
                             int64_t index);

#endif
