// SPDX-License-Identifier: Apache-2.0
// The judge of collectives: their elements, and whether results are right. It shares no code with
// plans and kernels; what goes where it reads off the definition (plan/collective.h).
//
// Whole numbers, minima, maxima and what is only moved have to be exact. Sums, products and
// averages of real numbers are compared with their value in fp64, under two rules:
//   element  |error| <= ((1 + u)^(P - 1) - 1) * (sum of |x| of all ranks, or |product|), where u
//            is the unit roundoff of the dtype: what P - 1 operations that each round to nearest
//            can be off at most, in whatever order. An average has one more rounding.
//   rmse     the RMS of the error is at most (1.5 + 6 / sqrt(elements)) times that of the twin,
//            which adds in the order of ranks and rounds to the dtype each time; of fewer than 64
//            elements it is at most the RMS of what each may be off.
#ifndef CPATTN_JUDGE_COLLECTIVE_H
#define CPATTN_JUDGE_COLLECTIVE_H

#include "common/report.h"
#include "plan/collective.h"

// Fills a rank's send.
void collective_fill(const struct collective *c, int rank, void *send);

// Compares a rank's receive. `figures` is filled but for its name; of an error that is relative, to
// the RMS of the right values. first_bad.position counts elements of the receive.
void collective_judge(const struct collective *c, int rank, const void *receive,
                      struct figures *figures);

// Whether the send is as it was filled, but for what shares memory with the receive; NULL: there is
// none.
void collective_judge_send(const struct collective *c, int rank, const void *send,
                           const void *receive, struct figures *figures);

#endif
