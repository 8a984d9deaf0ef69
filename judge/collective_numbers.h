// SPDX-License-Identifier: Apache-2.0
// Mistakes of a collective that change its numbers but not their places: wrong roundings, ranges
// and types.
#ifndef CPATTN_JUDGE_COLLECTIVE_NUMBERS_H
#define CPATTN_JUDGE_COLLECTIVE_NUMBERS_H

#include <stddef.h>

#include "judge/collective_mistake.h"
#include "judge/collective_view.h"

// Sum of the absolute values of all ranks' elements; for a product, its absolute value.
double collective_numbers_size(const struct collective_view *v, int64_t index);

// Reduces two elements.
union view_number collective_numbers_combined(const struct collective_view *v, int reduction,
                                              union view_number a, union view_number b);

// True if the mistake is possible. Sets the range of its `number`.
bool collective_numbers_possible(const struct collective_view *v, enum collective_mistake mistake,
                                 int *low, int *high);

// Predicts an element of the receive under the mistake. `got`: the delivered element, which selects
// among several possible results. False: the mistake predicts nothing there.
bool collective_numbers_predict(const struct collective_view *v, enum collective_mistake mistake,
                                int number, int64_t index, union view_number got,
                                union view_number *is);

// Fills `text` with a sentence about the mistake.
void collective_numbers_sentence(const struct collective_view *v, enum collective_mistake mistake,
                                 int number, char *text, size_t size);

#endif
