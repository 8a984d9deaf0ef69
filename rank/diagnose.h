// SPDX-License-Identifier: Apache-2.0
// What a rank says of a verdict that is a fail, in the time that there is for it.
#ifndef CPATTN_RANK_DIAGNOSE_H
#define CPATTN_RANK_DIAGNOSE_H

#include "judge/evidence.h"
#include "rank/job.h"

// How long a rank looks for a sentence; most are found in a fraction of that.
#define DIAGNOSE_NS UINT64_C(3000000000)

// Fills the report's diagnosis where its figures are a fail and a sentence is found. The results
// are read through `read`; statistics may be NULL (judge/diagnosis.h).
void job_diagnose(struct job *j, evidence_read *read, void *read_context,
                  diagnosis_statistics *statistics, void *statistics_context);

#endif
