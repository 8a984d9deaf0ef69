// SPDX-License-Identifier: Apache-2.0
// The judge of collectives: fills their inputs and checks their results. It shares no code with
// plans and kernels; it derives the origin of each element from the definition (plan/collective.h).
//
// Integers, minima, maxima and copied elements must be exact, including the sign of zeros and the
// bits of copied NaNs. A minimum or maximum of zeros with both signs, or with a NaN, may be the
// answer of any standard (view_right_most()). Sums, products and averages of real numbers are
// compared with their value in fp64: infinities and NaNs exactly, finite values by three rules:
//   element  |error| <= ((1 + u)^(P - 1) - 1) * (sum of |x| of all ranks, or |product|), where u
//            is the unit roundoff of the dtype: the largest error of P - 1 operations in any order,
//            each rounded to nearest. An average has one more rounding.
//   rmse     the RMS of the error is at most (1.5 + 6 / sqrt(elements)) times that of the twin,
//            which adds in the order of ranks and rounds to the dtype each time; with fewer than 64
//            elements it is at most the RMS of the elements' limits.
//   slope    with 64 elements and more |<error, right>| / <right, right> is at most 3e-4 with bf16,
//            1e-4 with fp16, 3e-6 with fp32, + 4 deviations of what the twin's roundings add up to
//            by chance, times 1 + 6 / sqrt(elements), + twice the twin's own slope; for an average
//            + the error of 1/P rounded to the dtype. It shows a wrong factor, and results that are
//            cut off.
#ifndef CPATTN_JUDGE_COLLECTIVE_H
#define CPATTN_JUDGE_COLLECTIVE_H

#include <stddef.h>

#include "common/report.h"
#include "judge/collective_view.h"
#include "plan/collective.h"

// Fills the view of a rank's judge.
void collective_view_set(struct collective_view *v, const struct collective *c, int rank);

// The functions of the judge for host or device memory. `queue` is the struct cuda_queue of the
// device, on whose stream they run; NULL on the host. Errors are those of the device.
struct collective_judge {
    // Sets bytes; copies bytes to the host.
    enum status (*set)(void *queue, void *data, int value, size_t bytes, struct error *error);
    enum status (*read)(void *queue, const void *data, size_t bytes, void *to, struct error *error);
    // Fills a rank's send.
    enum status (*fill)(void *queue, const struct collective *c, int rank, void *send,
                        struct error *error);
    // Compares a rank's receive. Fills `figures` except its name; relative errors are relative to
    // the RMS of the right values. first_bad.position counts elements of the receive.
    enum status (*receive)(void *queue, const struct collective *c, int rank, const void *receive,
                           struct figures *figures, struct error *error);
    // True if the send is unchanged, except where it shares memory with the receive; NULL: there is
    // no send.
    enum status (*send)(void *queue, const struct collective *c, int rank, const void *send,
                        const void *receive, struct figures *figures, struct error *error);
    // judge/digest.h; `spare` has the same number of bytes, or is NULL if the data is aligned to 8
    // bytes.
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

// The right value of an element of the receive, as a number for messages.
double collective_expected(const struct collective_view *v, int64_t index);
// The same of the rank's send.
double collective_sent(const struct collective_view *v, int64_t index);

// The figures of a receive except first_bad_got, from the counts.
void collective_figures(const struct collective_view *v, const struct view_tally *tally,
                        struct figures *figures);

#endif
