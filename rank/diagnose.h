// SPDX-License-Identifier: Apache-2.0
// Adds a diagnosis to a failed report, within a time limit.
#ifndef CPATTN_RANK_DIAGNOSE_H
#define CPATTN_RANK_DIAGNOSE_H

#include "judge/evidence.h"
#include "rank/job.h"

// Time limit of a rank's search; most searches take a fraction of it.
#define DIAGNOSE_NS UINT64_C(3000000000)

// If the report is a fail, searches for the mistake and fills the report's diagnosis. Reads results
// through `read`; statistics may be NULL (judge/diagnosis.h).
void job_diagnose(struct job *j, evidence_read *read, void *read_context,
                  diagnosis_statistics *statistics, void *statistics_context);

#endif
