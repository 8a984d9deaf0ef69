// SPDX-License-Identifier: Apache-2.0
// The cases on which deliberate errors are tried, and the tensors in which each error must show.
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
// A case with 4 query heads, 2 key heads, usually bf16, and usually 192 tokens. With the inputs of
// TransformerEngine's tests it has 768 tokens.
void variant_case(int variant, enum case_inputs inputs, struct cp_case *c);

struct expectation {
    const char *mutation;
    uint32_t variants; // bit 1 << variant
    uint32_t shows;    // bit 1 << tensor (common/report.h): must break a rule on some rank, if the
                       // case has this tensor
    uint32_t may;      // these tensors may also break a rule; no others may
    const char *refused; // BY_CHECKER: part of the checker's sentence
};
extern const struct expectation expectations[];
extern const int expectations_count;

#endif
