// SPDX-License-Identifier: Apache-2.0
// Padding in a rank's tensors: rows that belong to no token. In the inputs they hold NaN, in the
// results they must be exactly zero.
#ifndef CPATTN_JUDGE_PADDING_H
#define CPATTN_JUDGE_PADDING_H

#include "common/report.h"
#include "plan/shard.h"

struct padded_tensor {
    enum report_tensor name;
    enum shard_side side;
    const void *data; // [rows of the rank][heads][dim], in the case's dtype
    int heads, dim;
};

// Fills the figures of the padding of a tensor: elements, those that are not zero, the first of
// them. False, and nothing is filled, where there is no padding.
bool padding_judge(const struct cp_case *c, int rank, const struct padded_tensor *tensor,
                   struct figures *figures);

#endif
