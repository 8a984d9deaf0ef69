// SPDX-License-Identifier: Apache-2.0
// Whether a verdict is one: a verification that has looked at less than it should, for whatever
// reason, must not pass for one that has found nothing.
#ifndef CPATTN_JUDGE_COMPLETE_H
#define CPATTN_JUDGE_COMPLETE_H

#include "common/report.h"
#include "plan/case.h"

// Checks that a rank has figures for each chunk of each tensor that the case has on it, padding
// included, exactly once, of as many elements as there are, and that it has judged all of them, or
// those of the sample that `work` makes (judge/tiles.h). Without `lse` there must be none of LSE.
// Counts by itself what there is. INTERNAL, with the tensor and the numbers, where it is not so.
// RESOURCE_EXHAUSTED when memory is short.
enum status complete_check(const struct cp_case *c, int rank, double work, bool lse,
                           const struct rank_report *report, struct error *error) MUST_CHECK;

#endif
