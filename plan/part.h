// SPDX-License-Identifier: Apache-2.0
// A part: the query side of an attention. It holds a subset of heads of a team's queries, and their
// accumulators. The queries stay in place while keys arrive. Every algorithm is made of parts.
#ifndef CPATTN_PLAN_PART_H
#define CPATTN_PLAN_PART_H

#include "plan/team.h"
#include "plan/tensors.h"

struct part {
    struct builder *b;
    const struct cp_case *c;
    struct team team;
    struct heads heads;
    int64_t q_rows;                       // of the team
    struct region q, d_out;               // dtype [q_rows][heads][d]
    struct region o_sum;                  // fp32, running result
    struct region lse;                    // fp32 [heads][q_rows], running result
    struct region d, dq_sum;              // fp32, when training
    struct region sink, dsink, max_logit; // of the part's heads; the latter two: this rank's share
    struct region bias, dbias;            // of the part's heads; dbias: this rank's share
    int64_t bias_rows;

    struct span *q_spans, *kv_spans;
    int q_span_count;
    // Slices with the keys of the team that begins at rank slice_source; slice_count -1: not valid.
    struct slice *slices;
    int slice_count, slice_source;
};

// Creates a part over all heads of the rank's own tokens, directly on the inputs and outputs. Each
// init creates the buffers of the accumulators. False: out of memory; the algorithm then returns.
bool part_init_own(struct part *p, struct builder *b, const struct tensors *t);

// Creates a part for a subset of heads of a team's tokens. Its buffers are new, named with
// `suffix`. The caller fills q and d_out.
bool part_init_team(struct part *p, struct builder *b, const struct tensors *t, struct team team,
                    struct heads heads, const char *suffix);

// Initializes the running result: O = 0, and LSE = -inf or the sink, a logit without a value
// vector.
void part_forward_begin(struct part *p);
// Attends the keys and values of `source`.
void part_forward(struct part *p, struct pair kv, struct team source);
// D, the sink's gradient, and dQ = 0. Needs q, d_out and the complete forward.
void part_backward_begin(struct part *p);
// Adds to dQ and to `dkv` (fp32) the contributions of the keys and values of `source`.
void part_backward(struct part *p, struct pair kv, struct pair dkv, struct team source);

// For the part's key heads: creates a buffer of `rows` rows; returns K and V in such a buffer.
int32_t part_key_buffer(const struct part *p, const char *name, const char *suffix, int64_t rows,
                        int element);
struct pair part_keys(const struct part *p, int32_t buffer, int64_t rows, int element);

#endif
