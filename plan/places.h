// SPDX-License-Identifier: Apache-2.0
// Where the whole tensors of a case lie that a client hands in and wants back. There are two
// segments of memory: one that holds inputs, one that takes what is wanted.
#ifndef CPATTN_PLAN_PLACES_H
#define CPATTN_PLAN_PLACES_H

#include "plan/whole.h"

// Bytes from the start of a segment; PLACE_NONE: not there.
#define PLACE_NONE      (-1)
#define PLACE_ALIGNMENT 64

struct whole_places {
    int64_t given[WHOLE_INPUTS];     // in the first segment; inputs that are not given are drawn
    int64_t wanted[WHOLE_TENSORS];   // in the second: inputs, and results as the ranks compute them
    int64_t expected[WHOLE_TENSORS]; // in the second: results as the reference has them
};

// What the daemon sends a rank with the descriptors of the segments.
struct places_frame {
    struct whole_places places;
    int32_t has_given, has_wanted; // the descriptors that come, in this order
};

void places_init(struct whole_places *p); // none

bool places_have_given(const struct whole_places *p);
bool places_have_wanted(const struct whole_places *p); // wanted or expected

// Lays tensors out one behind the other, each at a multiple of PLACE_ALIGNMENT: those whose place
// is not PLACE_NONE get one. The sizes of the segments; 0 where a segment holds nothing.
void places_lay_out(const struct cp_case *c, struct whole_places *p, int64_t *given_bytes,
                    int64_t *wanted_bytes);

// Whether every place is a multiple of 4 and its tensor, which the case has, lies within segments
// of these sizes. INVALID_ARGUMENT with the tensor that does not; UNIMPLEMENTED for what is not
// delivered.
enum status places_check(const struct cp_case *c, const struct whole_places *p, int64_t given_bytes,
                         int64_t wanted_bytes, struct error *error) MUST_CHECK;

#endif
