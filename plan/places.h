// SPDX-License-Identifier: Apache-2.0
// Places of a client's whole tensors in two segments of memory: one with given inputs, one for the
// wanted results.
#ifndef CPATTN_PLAN_PLACES_H
#define CPATTN_PLAN_PLACES_H

#include "plan/whole.h"

// Bytes from the start of a segment; PLACE_NONE: the tensor is not placed.
#define PLACE_NONE      (-1)
#define PLACE_ALIGNMENT 64

struct whole_places {
    int64_t given[WHOLE_INPUTS];     // in the first segment; inputs that are not given are drawn
    int64_t wanted[WHOLE_TENSORS];   // in the second: inputs, and results as the ranks compute them
    int64_t expected[WHOLE_TENSORS]; // in the second: results as the reference computes them
};

// Frame to a rank, sent with the descriptors of the segments.
struct places_frame {
    struct whole_places places;
    int32_t has_given, has_wanted; // which descriptors are sent, in this order
};

void places_init(struct whole_places *p); // places no tensor

bool places_have_given(const struct whole_places *p);
bool places_have_wanted(const struct whole_places *p); // wanted or expected

// Assigns consecutive places, multiples of PLACE_ALIGNMENT, to all tensors whose place is not
// PLACE_NONE. Stores the sizes of the segments; 0: an empty segment.
void places_lay_out(const struct cp_case *c, struct whole_places *p, int64_t *given_bytes,
                    int64_t *wanted_bytes);

// Checks that the case has every placed tensor, that the place is a multiple of 4, and that the
// tensor is inside its segment. INVALID_ARGUMENT names the tensor; UNIMPLEMENTED: a tensor that is
// not delivered.
enum status places_check(const struct cp_case *c, const struct whole_places *p, int64_t given_bytes,
                         int64_t wanted_bytes, struct error *error) MUST_CHECK;

#endif
