// SPDX-License-Identifier: Apache-2.0
// A source of given inputs, instead of drawn ones. A case points to its source, and the functions
// of judge/inputs.h then return the given elements.
#ifndef CPATTN_JUDGE_SOURCE_H
#define CPATTN_JUDGE_SOURCE_H

#include "judge/input_shape.h"
#include "plan/whole.h"

struct input_source {
    const struct cp_case *c;           // the case of the tensors; borrowed
    const void *tensors[WHOLE_INPUTS]; // as plan/whole.h lays them out; borrowed; NULL: drawn
    int64_t *first[2];                 // [batch]: row of the first token of each sequence
    double rms[WHOLE_INPUTS];          // RMS of the given tensors among Q, K, V, dO; 0: drawn
};

// `tensors` are by enum whole_tensor, aligned for their elements, and must stay as they are until
// source_fini(), as must `c`, whose own source is NULL. RESOURCE_EXHAUSTED.
enum status source_init(struct input_source *s, const struct cp_case *c,
                        const void *const tensors[WHOLE_INPUTS], struct error *error) MUST_CHECK;
void source_fini(struct input_source *s); // accepts a zeroed source

// Return a pointer into the given tensor: source_token() to one token's elements of `count` heads
// from `head` on, source_bias() to a row of the bias from key `first` on, source_sink() to a head's
// sink. NULL: the tensor is not given, or the elements are outside of it, as they may be in a
// search for mistakes. The latter sets *outside.
const void *source_token(const struct cp_case *c, enum input_tensor tensor, int32_t sequence,
                         int64_t position, int head, int count, bool *outside);
const void *source_bias(const struct cp_case *c, int32_t sequence, int head, int64_t position,
                        int64_t first, int64_t count, bool *outside);
const float *source_sink(const struct cp_case *c, int head);

// RMS of the elements of the given Q, K, V or dO; negative: it is not given.
double source_rms(const struct cp_case *c, enum input_tensor tensor);

#endif
