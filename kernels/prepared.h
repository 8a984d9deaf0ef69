// SPDX-License-Identifier: Apache-2.0
// The properties and the memory of a prepared operation. Operations of a plan are prepared once and
// launched any number of times. All host work that grows with the slices is done in the
// preparation.
#ifndef CPATTN_KERNELS_PREPARED_H
#define CPATTN_KERNELS_PREPARED_H

#include "kernels/attention.h"

// One attention of a plan.
struct attention_op {
    struct attention_shape shape;
    bool backward;
    bool bias, dbias, max_logit; // whether it has or computes one
    bool aligned; // tensors, and what a fold writes, will begin at multiples of 16 bytes
    const struct slice *slices;
    int32_t slice_count;
};

// What an operation needs in addition to its tensors, in bytes, and what it can do.
struct op_needs {
    size_t table_bytes;   // written by the host once, then only read
    size_t zero_bytes;    // all zeros whenever the operation begins
    size_t scratch_bytes; // with undefined contents; consecutive operations share it
    bool folds; // a forward takes any struct attention_fold; a backward may begin and round keys
    bool begins_queries; // and begin queries
};

#endif
