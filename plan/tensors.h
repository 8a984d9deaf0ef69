// SPDX-License-Identifier: Apache-2.0
// The inputs and outputs of a case on one rank: its own tokens, all heads.
#ifndef CPATTN_PLAN_TENSORS_H
#define CPATTN_PLAN_TENSORS_H

#include "plan/builder.h"

// Keys and values of some rows, or their gradients.
struct pair {
    struct region k, v, both;
};

// K [rows][kv_heads][d_qk] followed by V [rows][kv_heads][d_v] at the start of a buffer. `element`:
// bytes of an element.
struct pair pair_of(const struct cp_case *c, int32_t buffer, int64_t rows, int kv_heads,
                    int element);
int64_t pair_bytes(const struct cp_case *c, int64_t rows, int kv_heads, int element);

// Creates a buffer named `name` + `suffix`. tensor_buffer() returns its index, tensor_whole() the
// region of the whole buffer.
int32_t tensor_buffer(struct builder *b, const char *name, const char *suffix,
                      enum buffer_role role, int64_t bytes);
struct region tensor_whole(struct builder *b, const char *name, const char *suffix,
                           enum buffer_role role, int64_t bytes);

struct tensors {
    int64_t q_rows, kv_rows;
    struct region q, d_out, out, lse, dq; // d_out and dq only with training
    struct pair kv, dkv;
    // fp32 [heads of the case]; empty where the case has none. dsink_part and max_logit_part are
    // this rank's share; tensors_reduce() sums (maximises) them over the ranks.
    struct region sink, dsink, dsink_part, max_logit, max_logit_part;
    struct region bias, dbias, dbias_part; // plan/bias.h; dbias_part: `sum` of bias_grad_deliver()
};
void tensors_init(struct tensors *t, struct builder *b);

// A range of heads of a tensor [heads of the case]; empty for an empty tensor.
struct region tensor_heads(struct region tensor, struct heads heads);

// Initializes the partial results: maximum = -inf in forward, sums = 0 in backward.
void tensors_begin(const struct tensors *t, struct builder *b, enum plan_phase phase);
// Exchanges the partial results with all ranks and combines them in the order of ranks.
void tensors_reduce(const struct tensors *t, struct builder *b, enum plan_phase phase);

#endif
