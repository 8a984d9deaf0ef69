// SPDX-License-Identifier: Apache-2.0
// Linear layers in fp64, for some tokens or some features. As the `rival` the layer has the other
// definition of GELU, and of each result only the values are made.
#ifndef CPATTN_JUDGE_LINEAR_REFERENCE_H
#define CPATTN_JUDGE_LINEAR_REFERENCE_H

#include "judge/linear_draw.h"
#include "judge/linear_triple.h"

// What is summed over ranks: y and dx of `tokens`, all columns. Others are empty. Memory belongs to
// the caller: linear_free().
enum status linear_sums(const struct linear *l, struct linear_some tokens, bool rival,
                        struct triple out[LINEAR_TENSORS], struct error *error) MUST_CHECK;

// What a rank makes of its own features, for some of these, counted from its first: y of a column
// and dx of a row layer [tokens][features], dw1 [gates * features][in], db1 [1][gates * features],
// dw2 [out][features], db2 [1][out].
enum status linear_shares(const struct linear *l, int rank, struct linear_some features, bool rival,
                          struct triple out[LINEAR_TENSORS], struct error *error) MUST_CHECK;

#endif
