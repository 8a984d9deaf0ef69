// SPDX-License-Identifier: Apache-2.0
// Description and memory of a prepared operation. An operation of a plan is prepared once and
// launched any number of times. The preparation does all host work that grows with the number of
// slices.
#ifndef CPATTN_KERNELS_PREPARED_H
#define CPATTN_KERNELS_PREPARED_H

#include "kernels/attention.h"

// One attention of a plan.
struct attention_op {
    struct attention_shape shape;
    bool backward;
    bool bias, dbias, max_logit; // reads a bias; computes dbias; computes max_logit
    // Q, K, V, O, dO, dQ, dK, dV and the outputs of folds will begin at multiples of 16 bytes.
    bool aligned;
    const struct slice *slices;
    int32_t slice_count;
};

// The memory that an operation needs in addition to its tensors, and its abilities.
struct op_needs {
    size_t table_bytes;   // place() writes them once; read-only afterwards
    size_t zero_bytes;    // the caller sets them to 0 before each launch
    size_t scratch_bytes; // undefined contents; the operations of a plan share them
    bool folds; // forward: takes any struct attention_fold; backward: keys_begin, dk_out, dv_out
    bool begins_queries; // backward: takes queries_begin
};

#endif
