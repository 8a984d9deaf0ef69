// SPDX-License-Identifier: Apache-2.0
// Completeness check: rejects a report that does not cover every element that must be judged, so
// that an incomplete verification cannot pass.
#ifndef CPATTN_JUDGE_COMPLETE_H
#define CPATTN_JUDGE_COMPLETE_H

#include "common/report.h"
#include "plan/case.h"

// Checks that a rank has figures for each chunk of each of its tensors, including padding, exactly
// once and with the right number of elements, and that all elements, or those of the sample for
// `work` (judge/tiles.h), are judged. Without `lse` there must be no figures of LSE. Counts
// independently of the backends. INTERNAL names the tensor and the numbers. RESOURCE_EXHAUSTED: out
// of memory.
enum status complete_check(const struct cp_case *c, int rank, double work, bool lse,
                           const struct rank_report *report, struct error *error) MUST_CHECK;

#endif
