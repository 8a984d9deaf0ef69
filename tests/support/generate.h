// SPDX-License-Identifier: Apache-2.0
// Random cases for property tests: the whole space of supported cases. Its edges are frequent.
#ifndef CPATTN_TESTS_SUPPORT_GENERATE_H
#define CPATTN_TESTS_SUPPORT_GENERATE_H

#include "plan/case.h"

// Maximum number of sequences of a generated case, and maximum length with padding.
#define GENERATE_BATCH_MAX                            6
#define GENERATE_OCCUPIED(seqlen_max, world_size_max) ((seqlen_max) + 2 * (world_size_max) + 8)

// Fills a case that case_check() admits. The same seed and bounds give the same case on every
// machine. World size is at most world_size_max, lengths at most seqlen_max. There are at most
// GENERATE_BATCH_MAX sequences and 16 heads, so a bounded length bounds the work.
void generate_case(uint64_t seed, int world_size_max, int64_t seqlen_max, struct cp_case *c);

// Draws softcap, bias, softmax and max_logit.
void generate_logits(uint64_t *state, struct cp_case *c);

// The generator (splitmix64): the next number, and a number of 0..count-1.
uint64_t generate_next(uint64_t *state);
int64_t generate_below(uint64_t *state, int64_t count);

#endif
