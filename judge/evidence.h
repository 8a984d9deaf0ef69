// SPDX-License-Identifier: Apache-2.0
// The rows of a failed tensor that a diagnosis looks at: those that the figures name, their
// neighbours, and a seeded few of the same chunk.
#ifndef CPATTN_JUDGE_EVIDENCE_H
#define CPATTN_JUDGE_EVIDENCE_H

#include "judge/diagnosis.h"
#include "judge/results.h"
#include "plan/shard.h"

// Elements [first, first + count) of what the rank has to show of a tensor, in the layout of
// plan/plan.h, as fp32. False where they cannot be had.
typedef bool evidence_read(void *context, enum report_tensor tensor, int64_t first, int64_t count,
                           float *values);

struct evidence {
    const struct cp_case *c;
    int rank;
    const struct span *spans[2]; // of the rank, by enum shard_side
    int span_count[2];
    int64_t lse_rows; // between two heads of LSE; 0: the rank's rows
    evidence_read *read;
    void *read_context;
    diagnosis_statistics *statistics; // or NULL
    void *statistics_context;
    uint64_t deadline_ns; // of the monotonic clock, when the search ends; 0: never
};

// Reads results that lie in the memory of this process; its context.
struct evidence_host {
    const struct cp_case *c;
    const struct rank_results *results;
};
evidence_read evidence_host_read;

// The same in parts, where the memory is of another kind: where elements lie (NULL: there is no
// such tensor), and what a copy of them in host memory holds.
const void *evidence_place(const struct evidence_host *host, enum report_tensor tensor,
                           int64_t first, int64_t count, size_t *bytes);
void evidence_convert(const struct cp_case *c, enum report_tensor tensor, const void *data,
                      int64_t count, float *values);

// Looks for a sentence on the tensors that the report says have failed, those that others are
// computed from first, and ends with the first one found.
void evidence_diagnose(const struct evidence *e, const struct rank_report *report,
                       struct finding *result);

#endif
