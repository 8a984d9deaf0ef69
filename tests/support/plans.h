// SPDX-License-Identifier: Apache-2.0
// The plans of all ranks of a case, for tests. A failure to build them ends the test.
#ifndef CPATTN_TESTS_SUPPORT_PLANS_H
#define CPATTN_TESTS_SUPPORT_PLANS_H

#include "plan/plan.h"

struct plans {
    struct plan *plans[WORLD_SIZE_MAX];
    int size;
};

void plans_create(struct plans *p, const struct cp_case *c);
void plans_destroy(struct plans *p);

// A generated case with dimensions small enough for tests/support/symbolic.h.
void plans_small_case(uint64_t seed, struct cp_case *c);

// A generated case of up to 8 ranks.
void plans_any_case(uint64_t seed, int64_t seqlen_max, struct cp_case *c);

// plans_even_case() with another comm, 4 heads over 2 key heads, bias 1hss, learnable sinks and
// max_logit.
void plans_full_case(enum case_comm comm, int world_size, struct cp_case *c);

// A causal training case: chunks of 8 tokens, 2 heads over 1 key head, d_qk 4 and d_v 8.
void plans_even_case(int world_size, struct cp_case *c);

// Bytes of all buffers of a plan.
int64_t plans_bytes(const struct plan *plan);

// Bytes that the exchanges of a phase send.
int64_t plans_sent(const struct plan *plan, enum plan_phase phase);

// The operation of a kind, phase and step, or -1.
int32_t plans_find(const struct plan *plan, enum op_kind kind, enum plan_phase phase, int step);

// Fails the test unless the operation `op` waits for exactly `other`; -1: for none.
void plans_expect_wait(const struct plan *plan, int32_t op, int32_t other);

#endif
