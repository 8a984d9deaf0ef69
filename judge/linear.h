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
//            the number of independent roundings. The limit is larger by 2^-24 sqrt(terms) of the
//            RMS of the tensor for sums in fp32, and with an activation by 2^-22. With fewer than
//            64 roundings the limit is the RMS of the elements' limits.
//   slope    |<error, reference>| / <reference, reference> is at most 3e-4 with bf16, 1e-4 with
//            fp16, and 3e-6 plus the additions of rmse with fp32, plus 4 standard deviations. It
//            shows a wrong factor. For a single layer the deviation is the limit of rmse / sqrt(n).
//            For an mlp it is the root of the sum over groups of <twin's error, reference>^2,
//            divided by <reference, reference>, times 1 + 6 / sqrt(groups). A group is a token; for
//            gradients of weights it is a feature.
//            With GELU, the error must also not be the difference to the other definition of GELU.
// In large layers only some tokens and features are judged, evenly spread, each over its whole
// length.
#ifndef CPATTN_JUDGE_LINEAR_H
#define CPATTN_JUDGE_LINEAR_H

#include "common/report.h"
#include "plan/linear.h"

// Fills an input of a rank.
void linear_fill(const struct linear *l, int rank, enum linear_tensor tensor, void *data);

// Judges the results of a rank. tensors[t] is the memory of result t, if it is not empty. Fills
// figures[t] of each of these results, except for its name. In first_bad, the position is the row
// and the dim is the column. RESOURCE_EXHAUSTED when memory is short.
enum status linear_judge(const struct linear *l, int rank,
                         const void *const tensors[LINEAR_TENSORS],
                         struct figures figures[LINEAR_TENSORS], struct error *error) MUST_CHECK;

// The same for tensors in host or device memory (judge/linear_view.h). On return no work of the
// judge is left on the queue.
struct linear_tools;
enum status linear_judge_where(const struct linear_tools *tools, void *queue,
                               const struct linear *l, int rank,
                               const void *const tensors[LINEAR_TENSORS],
                               struct figures figures[LINEAR_TENSORS],
                               struct error *error) MUST_CHECK;

// The first result that breaks a rule, which linear_diagnose() examines. LINEAR_TENSORS: none.
enum linear_tensor linear_broken(const struct figures figures[LINEAR_TENSORS]);

// Finds the mistake, after linear_judge(). text: one sentence, or "" if no known mistake explains
// the error. *explained: the share of the squared error of *tensor that it explains, 0..1. Reads
// only the tensor linear_broken().
enum status linear_diagnose(const struct linear *l, int rank,
                            const void *const tensors[LINEAR_TENSORS],
                            const struct figures figures[LINEAR_TENSORS],
                            char text[DIAGNOSIS_TEXT_MAX], double *explained,
                            enum linear_tensor *tensor, struct error *error) MUST_CHECK;

#endif
