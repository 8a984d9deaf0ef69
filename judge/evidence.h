// SPDX-License-Identifier: Apache-2.0
// The rows of a failed tensor that a diagnosis examines: those named in the figures, their
// neighbours, and some rows of the same chunk drawn from the seed.
#ifndef CPATTN_JUDGE_EVIDENCE_H
#define CPATTN_JUDGE_EVIDENCE_H

#include "judge/diagnosis.h"
#include "judge/results.h"
#include "plan/shard.h"

// Reads elements [first, first + count) of a result of the rank as fp32, in the layout of
// plan/plan.h. False: not available.
typedef bool evidence_read(void *context, enum report_tensor tensor, int64_t first, int64_t count,
                           float *values);

struct evidence {
    const struct cp_case *c;
    int rank;
    const struct span *spans[2]; // of the rank, by enum shard_side
    int span_count[2];
    int64_t lse_rows; // row stride between heads of LSE; 0: the rank's rows
    evidence_read *read;
    void *read_context;
    diagnosis_statistics *statistics; // or NULL
    void *statistics_context;
    bool unfilled;        // the memory of results was not filled with NaN before the run
    bool steps_unknown;   // another program's ring: its steps have no known order
    uint64_t deadline_ns; // end of the search by the monotonic clock; 0: none
};

// A reader of results in the memory of this process, and its context.
struct evidence_host {
    const struct cp_case *c;
    const struct rank_results *results;
};
evidence_read evidence_host_read;

// The two steps of this reader, for results in other memory. evidence_place(): the address and
// bytes of elements; NULL: no such tensor. evidence_convert(): converts a host copy of them to
// fp32.
const void *evidence_place(const struct evidence_host *host, enum report_tensor tensor,
                           int64_t first, int64_t count, size_t *bytes);
void evidence_convert(const struct cp_case *c, enum report_tensor tensor, const void *data,
                      int64_t count, float *values);

// Diagnoses the failed tensors of the report, a tensor before those that are computed from it.
// Stops at the first finding, and at the deadline.
void evidence_diagnose(const struct evidence *e, const struct rank_report *report,
                       struct finding *result);

#endif
