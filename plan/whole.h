// SPDX-License-Identifier: Apache-2.0
// Whole tensors of a case, not divided among ranks: names, shapes, rows of tokens.
//
// q, k, v, do, out, dq, dk and dv are [batch][seqlen][heads][head_dim] in bshd,
// [seqlen][batch][heads][head_dim] in sbhd, and [tokens][heads][head_dim] in thd, where the
// sequences follow each other, each with the tokens that it occupies. A row is one token: all its
// heads. lse is fp32 [batch][heads][seqlen_q], in thd [heads][tokens]. bias and dbias are [1 or
// batch][1 or heads][1 or seqlen_q][seqlen_kv]; sink, dsink and max_logit are fp32 [heads]. All are
// dense, without a gap.
#ifndef CPATTN_PLAN_WHOLE_H
#define CPATTN_PLAN_WHOLE_H

#include "plan/case.h"

// X(name in C, name for people)
#define WHOLE_LIST(X)                                                                              \
    X(Q, "q")                                                                                      \
    X(K, "k")                                                                                      \
    X(V, "v")                                                                                      \
    X(DO, "do")                                                                                    \
    X(BIAS, "bias")                                                                                \
    X(SINK, "sink")                                                                                \
    X(OUT, "out")                                                                                  \
    X(LSE, "lse")                                                                                  \
    X(DQ, "dq")                                                                                    \
    X(DK, "dk")                                                                                    \
    X(DV, "dv")                                                                                    \
    X(DBIAS, "dbias")                                                                              \
    X(DSINK, "dsink")                                                                              \
    X(MAX_LOGIT, "max_logit")

enum whole_tensor {
#define WHOLE_ENUM(name, text) WHOLE_##name,
    WHOLE_LIST(WHOLE_ENUM)
#undef WHOLE_ENUM
        WHOLE_TENSORS
};
// The inputs come first.
#define WHOLE_INPUTS  6
#define WHOLE_RESULTS (WHOLE_TENSORS - WHOLE_INPUTS)

const char *whole_name(enum whole_tensor tensor);

#define WHOLE_DIMS_MAX 4
struct whole_shape {
    int dims;
    int64_t size[WHOLE_DIMS_MAX];
    enum case_dtype dtype;
};

// False: the case has no such tensor, such as do and gradients without training.
bool whole_shape(const struct cp_case *c, enum whole_tensor tensor, struct whole_shape *shape);

// Size in bytes; 0: the case has no such tensor. The case must pass case_check().
int64_t whole_bytes(const struct cp_case *c, enum whole_tensor tensor);

// "bf16 [2, 512, 8, 128]". Returns `text`.
#define WHOLE_SHAPE_TEXT_MAX 112
const char *whole_shape_text(const struct whole_shape *shape, char text[WHOLE_SHAPE_TEXT_MAX]);

// Bytes of an element.
int whole_element_bytes(enum case_dtype dtype);

// Number of rows of a side; row of the first token of a sequence; rows from one token of a sequence
// to the next.
int64_t whole_rows(const struct cp_case *c, enum shard_side side);
int64_t whole_row_first(const struct cp_case *c, enum shard_side side, int32_t sequence);
int64_t whole_row_step(const struct cp_case *c);

#endif
