// SPDX-License-Identifier: Apache-2.0
// The judge of collectives: their elements, and whether results are right. It shares no code with
// plans and kernels; what goes where it reads off the definition (plan/collective.h).
//
// Whole numbers, minima, maxima and what is only moved have to be exact, down to the sign of a zero
// and the bits of a NaN that is moved. Where zeros of both signs or a NaN meet in a minimum or
// maximum, each answer of a standard is right (view_right_most()). Sums, products and averages of
// real numbers are compared with their value in fp64, an infinity or a NaN exactly, and the rest
// under two rules:
//   element  |error| <= ((1 + u)^(P - 1) - 1) * (sum of |x| of all ranks, or |product|), where u
//            is the unit roundoff of the dtype: what P - 1 operations that each round to nearest
//            can be off at most, in whatever order. An average has one more rounding.
//   rmse     the RMS of the error is at most (1.5 + 6 / sqrt(elements)) times that of the twin,
//            which adds in the order of ranks and rounds to the dtype each time; of fewer than 64
//            elements it is at most the RMS of what each may be off.
#ifndef CPATTN_JUDGE_COLLECTIVE_H
#define CPATTN_JUDGE_COLLECTIVE_H

#include <stddef.h>

#include "common/report.h"
#include "judge/collective_view.h"
#include "plan/collective.h"

// The collective as the judge of a rank has it.
void collective_view_set(struct collective_view *v, const struct collective *c, int rank);

// The judge in the memory of the host, or of a device. `queue` is the struct cuda_queue of the
// device, whose stream everything goes by; NULL on the host. Errors are those of the device.
struct collective_judge {
    // Sets bytes; copies bytes to the host.
    enum status (*set)(void *queue, void *data, int value, size_t bytes, struct error *error);
    enum status (*read)(void *queue, const void *data, size_t bytes, void *to, struct error *error);
    // Fills a rank's send.
    enum status (*fill)(void *queue, const struct collective *c, int rank, void *send,
                        struct error *error);
    // Compares a rank's receive. `figures` is filled but for its name; of an error that is
    // relative, to the RMS of the right values. first_bad.position counts elements of the receive.
    enum status (*receive)(void *queue, const struct collective *c, int rank, const void *receive,
                           struct figures *figures, struct error *error);
    // Whether the send is as it was filled, but for what shares memory with the receive; NULL:
    // there is none.
    enum status (*send)(void *queue, const struct collective *c, int rank, const void *send,
                        const void *receive, struct figures *figures, struct error *error);
    // judge/digest.h; `spare` has as many bytes, or is NULL where the data is aligned to 8.
    enum status (*digest)(void *queue, const void *data, size_t bytes, void *spare,
                          uint64_t *digest, struct error *error);
};
extern const struct collective_judge collective_judge_host;

// ---- on the host ----

void collective_fill(const struct collective *c, int rank, void *send);
void collective_judge_receive(const struct collective *c, int rank, const void *receive,
                              struct figures *figures);
void collective_judge_send(const struct collective *c, int rank, const void *send,
                           const void *receive, struct figures *figures);

// ---- for the judge on a device ----

// An element of an array.
union view_number collective_element(const struct collective_view *v, const void *data,
                                     int64_t index);

// What is right of an element of the receive, as a number that is shown.
double collective_expected(const struct collective_view *v, int64_t index);

// The figures of a receive but for first_bad_got, from what was counted.
void collective_figures(const struct collective_view *v, const struct view_tally *tally,
                        struct figures *figures);

#endif
