// SPDX-License-Identifier: Apache-2.0
// The judge of collectives: fills their inputs and checks their results. It shares no code with
// plans and kernels; it derives the origin of each element from the definition (plan/collective.h).
//
// Integers, minima, maxima and copied elements must be exact, including the sign of zeros and the
// bits of copied NaNs. For a minimum or maximum over zeros of both signs, or over a NaN, the result
// of any standard is accepted (view_right_most()). Sums, products and averages of real numbers are
// compared with their value in fp64: infinities and NaNs exactly, finite values by three rules:
//   element  |error| <= ((1 + u)^(P - 1) - 1) * (sum of |x| of all ranks, or |product|), where u
//            is the unit roundoff of the dtype: the largest error of P - 1 operations in any order,
//            each rounded to nearest. An average has one more rounding.
//   rmse     the RMS error is at most (1.5 + 6 / sqrt(elements)) times that of the twin, which
//            adds in the order of ranks and rounds to the dtype after each addition. With fewer
//            than 64 elements it is at most the RMS of the elements' limits.
//   slope    checked with 64 elements or more: |<error, right>| / <right, right> is at most
//              3e-4 with bf16, 1e-4 with fp16, 3e-6 with fp32
//              + 4 standard deviations of the slope that the twin's roundings have by chance, times
//                1 + 6 / sqrt(elements), with the effective number of elements
//              + twice the twin's own slope
//              + for an average the relative error of 1/P rounded to the dtype.
//            This rule detects a wrong factor, and results that are truncated.
#ifndef CPATTN_JUDGE_COLLECTIVE_H
#define CPATTN_JUDGE_COLLECTIVE_H

#include <stddef.h>

#include "common/report.h"
#include "judge/collective_view.h"
#include "plan/collective.h"

// Fills the view of a rank's judge.
void collective_view_set(struct collective_view *v, const struct collective *c, int rank);

// The functions of the judge for host or device memory. `queue`: the struct cuda_queue of the
// device, on whose stream they run; NULL on the host. They fail only with errors of the device.
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
    // Checks that the rank's send is unchanged, except where it shares memory with the receive
    // (NULL: there is none). Fills `figures`; a changed element breaks RULE_PADDING.
    enum status (*send)(void *queue, const struct collective *c, int rank, const void *send,
                        const void *receive, struct figures *figures, struct error *error);
    // Computes the digest of judge/digest.h. `spare`: scratch of `bytes` bytes, or NULL if the data
    // is aligned to 8 bytes.
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

// Reads an element of an array in memory.
union view_number collective_element(const struct collective_view *v, const void *data,
                                     int64_t index);

// The right value of an element of the receive, as a number for messages.
double collective_expected(const struct collective_view *v, int64_t index);
// The right value of an element of the rank's send, as a number for messages.
double collective_sent(const struct collective_view *v, int64_t index);

// Fills the figures of a receive from its tally, except first_bad_got.
void collective_figures(const struct collective_view *v, const struct view_tally *tally,
                        struct figures *figures);

#endif
