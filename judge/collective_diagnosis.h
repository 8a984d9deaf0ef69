// SPDX-License-Identifier: Apache-2.0
// Names the mistake behind a wrong collective: computes some elements again with each deliberate
// mistake, and reports the one that yields nearly all wrong elements.
#ifndef CPATTN_JUDGE_COLLECTIVE_DIAGNOSIS_H
#define CPATTN_JUDGE_COLLECTIVE_DIAGNOSIS_H

#include "judge/collective.h"

// In the order in which they are tried.
enum collective_mistake {
    MISTAKE_NONE,
    MISTAKE_UNTOUCHED,      // the memory is as it was before the collective
    MISTAKE_ZERO,           // all zeros
    MISTAKE_NOT_DIVIDED,    // an average is the sum
    MISTAKE_WORLD_FACTOR,   // P times too large, or too small
    MISTAKE_DIVISOR,        // an average is divided by another number of ranks
    MISTAKE_RANK_MISSING,   // one rank has no part in the reduction
    MISTAKE_RANK_TWICE,     // one has part twice
    MISTAKE_RANK_ALONE,     // nothing but one rank's elements
    MISTAKE_REDUCTION,      // reduced by another operation
    MISTAKE_WRONG_RANK,     // from another rank than the right one, as a wrong root
    MISTAKE_BLOCKS_SWAPPED, // two blocks have each other's elements
    MISTAKE_WRONG_BLOCK,    // the elements that another rank is to have
    MISTAKE_SHIFTED,        // the right elements, some places further
    COLLECTIVE_MISTAKES
};

// Elements of the receive that are looked at, and where they are.
#define COLLECTIVE_SAMPLES 256

struct collective_sample {
    int64_t index[COLLECTIVE_SAMPLES]; // ascending
    union view_number got[COLLECTIVE_SAMPLES];
    int count;
};

// Chooses elements of a receive whose first bad one is known: some from there on, some from all
// over it, none twice. `got` is the caller's to fill.
void collective_sample_choose(const struct collective_view *v, int64_t first_bad,
                              struct collective_sample *sample);

// Finds the mistake and fills the diagnosis of the tensor `receive`; NONE leaves it as it is.
// `memory` is the byte that memory held before.
enum collective_mistake collective_diagnose(const struct collective *c, int rank,
                                            const struct collective_sample *sample, int memory,
                                            struct diagnosis *diagnosis);

#endif
