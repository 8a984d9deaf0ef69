// SPDX-License-Identifier: Apache-2.0
// Padding in a rank's tensors: rows without a token. They are NaN in the inputs and must be exactly
// zero in the results.
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

// Fills the figures of a tensor's padding: number of elements, number and first of those that are
// not zero. False: there is no padding, and nothing is filled.
bool padding_judge(const struct cp_case *c, int rank, const struct padded_tensor *tensor,
                   struct figures *figures);

#endif
