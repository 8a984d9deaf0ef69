// SPDX-License-Identifier: Apache-2.0
// The rows of a chunk of a rank's tensor, numbered span by span, token by token, head by head.
#ifndef CPATTN_JUDGE_CHUNK_H
#define CPATTN_JUDGE_CHUNK_H

#include "common/report.h"
#include "plan/shard.h"

// Tokens of the spans, which are those of one side of a rank, that belong to the chunk.
int64_t chunk_tokens(const struct span *spans, int count, int chunk);

// Where row `index` of a chunk lies, dim 0. The chunk has such a row.
struct element chunk_element(const struct span *spans, int count, int chunk, int heads,
                             int64_t index);

#endif
