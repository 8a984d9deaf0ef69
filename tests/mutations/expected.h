// SPDX-License-Identifier: Apache-2.0
// The cases that deliberate errors are tried on, and in which tensors each has to show.
#ifndef CPATTN_TESTS_MUTATIONS_EXPECTED_H
#define CPATTN_TESTS_MUTATIONS_EXPECTED_H

#include "plan/case.h"

// The first four are plain; each of the others has one special feature.
enum {
    PLAIN_CAUSAL,
    PLAIN_FULL,
    PLAIN_CAUSAL_4,
    PLAIN_FULL_4,
    GATHER,
    ULYSSES,
    HIERARCHICAL,
    WINDOW,
    BOTTOM_RIGHT,
    BOTTOM_RIGHT_WINDOW,
    UNEVEN,
    PACKED,
    PADDED,
    SINKS,
    BIAS_OWN,
    BIAS_SHARED,
    PACKED_WINDOW,
    EMPTY_ROWS,
    SINKS_8,
    OFF_BY_ONE,
    SATURATED,
    MASKED_RANK,
    UNSEEN_KEYS,
    SINGLE,
    VARIANTS
};
const char *variant_name(int variant);
// Mostly 192 tokens with sharp inputs, 768 with those of TransformerEngine's tests, 4 heads over 2,
// bf16.
void variant_case(int variant, enum case_inputs inputs, struct cp_case *c);

struct expectation {
    const char *mutation;
    uint32_t variants; // bit 1 << variant
    uint32_t shows;    // bit 1 << tensor (common/report.h): breaks a rule on some rank, if there is
                       // such a tensor; no other case has
    uint32_t may;      // but for these, where it hangs on the numbers
    const char *refused; // BY_CHECKER: part of the checker's sentence
};
extern const struct expectation expectations[];
extern const int expectations_count;

#endif
