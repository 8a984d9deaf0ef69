// SPDX-License-Identifier: Apache-2.0
// Names the mistake behind a wrong collective: computes some elements again with each deliberate
// mistake, and reports the one that yields nearly all wrong elements.
#ifndef CPATTN_JUDGE_COLLECTIVE_DIAGNOSIS_H
#define CPATTN_JUDGE_COLLECTIVE_DIAGNOSIS_H

#include "judge/collective.h"
#include "judge/collective_mistake.h"

// Number of elements of the receive that a diagnosis examines.
#define COLLECTIVE_SAMPLES 256

struct collective_sample {
    int64_t index[COLLECTIVE_SAMPLES]; // ascending
    union view_number got[COLLECTIVE_SAMPLES];
    int count;
};

// Chooses elements of a receive: some from the first bad element on (-1: from the start), and some
// spread over the array, without duplicates. The caller fills `got`.
void collective_sample_choose(const struct collective_view *v, int64_t first_bad,
                              struct collective_sample *sample);

// Returns the mistake that explains the sample, and fills the diagnosis of the tensor `receive`
// unless no known mistake does. `memory`: the byte that filled the receive before the run.
// `figures`: the figures of the receive.
enum collective_mistake collective_diagnose(const struct collective *c, int rank,
                                            const struct collective_sample *sample, int memory,
                                            const struct figures *figures,
                                            struct diagnosis *diagnosis);

#endif
