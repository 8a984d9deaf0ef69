// SPDX-License-Identifier: Apache-2.0
// Whether a verdict is one: a verification that has looked at less than everything, for whatever
// reason, must not pass for one that has found nothing.
#ifndef CPATTN_JUDGE_COMPLETE_H
#define CPATTN_JUDGE_COMPLETE_H

#include "common/report.h"
#include "plan/case.h"

// Checks that a rank's figures are of every element of every tensor that the case has on it,
// padding included, each once. Counts by itself what there is. INTERNAL, with the tensor and both
// numbers, where they are not.
enum status complete_check(const struct cp_case *c, int rank, const struct rank_report *report,
                           struct error *error) MUST_CHECK;

#endif
