// SPDX-License-Identifier: Apache-2.0
// The rows of a chunk of a rank's tensor, numbered span by span, token by token, head by head.
#ifndef CPATTN_JUDGE_CHUNK_H
#define CPATTN_JUDGE_CHUNK_H

#include "common/report.h"
#include "plan/shard.h"

// Number of tokens in the chunk; `spans` are those of one side of a rank.
int64_t chunk_tokens(const struct span *spans, int count, int chunk);

// Place of row `index` of a chunk, with dim 0. The row must exist.
struct element chunk_element(const struct span *spans, int count, int chunk, int heads,
                             int64_t index);

#endif
