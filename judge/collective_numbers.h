// SPDX-License-Identifier: Apache-2.0
// Mistakes in the numbers of a collective, in the right places: other roundings, ranges and types.
#ifndef CPATTN_JUDGE_COLLECTIVE_NUMBERS_H
#define CPATTN_JUDGE_COLLECTIVE_NUMBERS_H

#include <stddef.h>

#include "judge/collective_mistake.h"
#include "judge/collective_view.h"

// The sum of the absolute values of all ranks, or of a product its absolute value.
double collective_numbers_size(const struct collective_view *v, int64_t index);

// Two elements, reduced.
union view_number collective_numbers_combined(const struct collective_view *v, int reduction,
                                              union view_number a, union view_number b);

// True if the mistake is possible; with the numbers that it may have, ascending.
bool collective_numbers_possible(const struct collective_view *v, enum collective_mistake mistake,
                                 int *low, int *high);

// What the mistake makes of an element of the receive, where `got` was delivered. False: nothing.
bool collective_numbers_predict(const struct collective_view *v, enum collective_mistake mistake,
                                int number, int64_t index, union view_number got,
                                union view_number *is);

// Fills `text` with a sentence about the mistake.
void collective_numbers_sentence(const struct collective_view *v, enum collective_mistake mistake,
                                 int number, char *text, size_t size);

#endif
