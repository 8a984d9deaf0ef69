// SPDX-License-Identifier: Apache-2.0
// Names the mistake of a ring that reduces its data in P blocks: each block is a sum of other
// ranks.
#ifndef CPATTN_JUDGE_COLLECTIVE_BLOCKS_H
#define CPATTN_JUDGE_COLLECTIVE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/report.h"
#include "judge/collective_view.h"

// Finds for each of P equal blocks of the receive how often each rank is in the sum. There are
// `count` sampled elements, with their indices and delivered values; `bad`: which are wrong. Fills
// the text and the explained share of the diagnosis. False: the receive is no sum, there are too
// many ranks, or not all blocks with wrong elements are such sums.
bool collective_blocks_find(const struct collective_view *v, int count, const int64_t *index,
                            const union view_number *got, const bool *bad,
                            struct diagnosis *diagnosis);

#endif
