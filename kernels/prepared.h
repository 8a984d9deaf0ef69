// SPDX-License-Identifier: Apache-2.0
// What is known of an operation before anything runs, and what it asks for then. Operations of a
// plan are prepared once and launched any number of times: all work of the host that grows with
// the slices is done by preparing.
#ifndef CPATTN_KERNELS_PREPARED_H
#define CPATTN_KERNELS_PREPARED_H

#include "kernels/attention.h"

// One attention of a plan.
struct attention_op {
    struct attention_shape shape;
    bool backward;
    bool bias, dbias, max_logit; // whether it has, or wants, one
    bool aligned;                // Q, K, V, O, dO and gradients will begin at multiples of 16 bytes
    const struct slice *slices;
    int32_t slice_count;
};

// Bytes that an operation takes beside its tensors.
struct op_needs {
    size_t table_bytes;   // written by the host once, then only read
    size_t zero_bytes;    // all zeros whenever the operation begins
    size_t scratch_bytes; // with any contents; operations one behind the other share it
};

#endif
