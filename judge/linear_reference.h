// SPDX-License-Identifier: Apache-2.0
// The reference of linear layers in fp64, for some tokens or some features. `rival`: with the other
// definition of GELU, and only the values of each result, without bounds and twin.
#ifndef CPATTN_JUDGE_LINEAR_REFERENCE_H
#define CPATTN_JUDGE_LINEAR_REFERENCE_H

#include "judge/linear_draw.h"
#include "judge/linear_triple.h"

// Computes the results that are summed over ranks: y and dx of `tokens`, all columns. The other
// triples are empty. The caller frees `out` with linear_free().
enum status linear_sums(const struct linear *l, struct linear_some tokens, bool rival,
                        struct triple out[LINEAR_TENSORS], struct error *error) MUST_CHECK;

// Computes the results of a rank's own features, for some of them; `features` counts from the
// rank's first. y of a column layer and dx of a row layer [tokens][features], dw1 [gates *
// features][in], db1 [1][gates * features], dw2 [out][features], db2 [1][out].
enum status linear_shares(const struct linear *l, int rank, struct linear_some features, bool rival,
                          struct triple out[LINEAR_TENSORS], struct error *error) MUST_CHECK;

#endif
