// SPDX-License-Identifier: Apache-2.0
// The judge of linear layers: fills their inputs and checks their results. It shares no code with
// plans and kernels.
//
// The reference is the whole layer in fp64: all weights, without shards. The twin is the same, but
// rounds to the dtype where implementations do: tensors in memory between operations; each rank's
// part of a sum and the sum after each addition, as a collective of the dtype does; and a sum to
// which a bias is added. Rules of a tensor:
//   element  |error| is at most the sum of all roundings, all in one direction, with fp32 sums in
//            any order.
//   rmse     the RMS of the error is at most (1.5 + 6 / sqrt(n)) times that of the twin, where n is
//            the number of independent roundings. For fp32 the limit is larger by
//            2^-24 sqrt(terms) of the RMS of the tensor, and with an activation by 2^-22. With
//            fewer than 64 roundings the limit is the RMS of the elements' limits.
//   slope    |<error, reference>| / <reference, reference> is at most 3e-4 with bf16, 1e-4 with
//            fp16, 3e-6 and the additions of rmse with fp32, + 4 deviations; it shows a wrong
//            factor. A deviation of a single layer is the limit of the rmse / sqrt(n). Of an mlp it
//            is the root of the sum of squares of <twin's error, reference> of groups, times 1 + 6
//            / sqrt(groups); a group is a token, of gradients of weights a feature. Of a GELU also:
//            the error is not the difference to the other definition of GELU.
// Of large layers some tokens and features are judged, spread evenly, each over its whole length.
#ifndef CPATTN_JUDGE_LINEAR_H
#define CPATTN_JUDGE_LINEAR_H

#include "common/report.h"
#include "plan/linear.h"

// Fills an input of a rank.
void linear_fill(const struct linear *l, int rank, enum linear_tensor tensor, void *data);

// Compares the results of a rank: `tensors` has the memory of each that is not empty. Of each,
// figures[tensor] is filled but for its name; first_bad has the row as its position and the column
// as its dim. RESOURCE_EXHAUSTED when memory is short.
enum status linear_judge(const struct linear *l, int rank,
                         const void *const tensors[LINEAR_TENSORS],
                         struct figures figures[LINEAR_TENSORS], struct error *error) MUST_CHECK;

// The same where the tensors are; the judge of a device leaves nothing on the queue.
struct linear_tools;
enum status linear_judge_where(const struct linear_tools *tools, void *queue,
                               const struct linear *l, int rank,
                               const void *const tensors[LINEAR_TENSORS],
                               struct figures figures[LINEAR_TENSORS],
                               struct error *error) MUST_CHECK;

// The result whose mistake is looked for: the first broken one; LINEAR_TENSORS: none is.
enum linear_tensor linear_broken(const struct figures figures[LINEAR_TENSORS]);

// What went wrong, after linear_judge(): one sentence, or "" where no mistake that is known
// explains the error. *explained: the share of the squared error of *tensor, 0..1. Of `tensors`
// only that of linear_broken() is read.
enum status linear_diagnose(const struct linear *l, int rank,
                            const void *const tensors[LINEAR_TENSORS],
                            const struct figures figures[LINEAR_TENSORS],
                            char text[DIAGNOSIS_TEXT_MAX], double *explained,
                            enum linear_tensor *tensor, struct error *error) MUST_CHECK;

#endif
