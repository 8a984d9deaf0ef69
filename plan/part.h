// SPDX-License-Identifier: Apache-2.0
// The query side of an attention: some heads of a team's queries, which stay where they are, and
// what is summed up for them while keys come by. Every algorithm is made of such parts.
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
    struct region sink, dsink, max_logit; // of the part's heads; the latter two are the rank's part
    struct region bias, dbias;            // of the part's heads; dbias is the rank's part
    int64_t bias_rows;

    struct span *q_spans, *kv_spans;
    int q_span_count;
    struct slice *slices;
    int slice_count, slice_source; // those there are, of the team that begins there; -1: others
};

// A part over all heads of the rank's own tokens: its operands are inputs and outputs as they are.
// Each init makes the buffers of the sums and returns false when memory is short: the algorithm
// then just returns.
bool part_init_own(struct part *p, struct builder *b, const struct tensors *t);

// A part over some heads of a team's tokens, all in buffers of its own with `suffix` behind their
// names. q and d_out are the caller's to fill.
bool part_init_team(struct part *p, struct builder *b, const struct tensors *t, struct team team,
                    struct heads heads, const char *suffix);

// Starts the running result: O = 0, and LSE = -inf or the sink: a logit without a value.
void part_forward_begin(struct part *p);
// Attends the keys and values of `source`.
void part_forward(struct part *p, struct pair kv, struct team source);
// D, the sink's gradient, and dQ = 0. Needs q, d_out and the complete forward.
void part_backward_begin(struct part *p);
// Adds to dQ and to `dkv` (fp32) the contributions of the keys and values of `source`.
void part_backward(struct part *p, struct pair kv, struct pair dkv, struct team source);

// For the part's key heads: a new buffer of some rows, and the pair in one.
int32_t part_key_buffer(const struct part *p, const char *name, const char *suffix, int64_t rows,
                        int element);
struct pair part_keys(const struct part *p, int32_t buffer, int64_t rows, int element);

#endif
