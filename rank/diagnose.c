// SPDX-License-Identifier: Apache-2.0
#include "rank/diagnose.h"

#include "common/clock.h"

void job_diagnose(struct job *j, evidence_read *read, void *read_context,
                  diagnosis_statistics *statistics, void *statistics_context)
{
    uint64_t start_ns = clock_now_ns();
    struct finding finding;
    struct evidence evidence = {
        .c = j->c,
        .rank = j->rank,
        .spans = {j->spans[SIDE_Q], j->spans[SIDE_KV]},
        .span_count = {j->span_count[SIDE_Q], j->span_count[SIDE_KV]},
        .read = read,
        .read_context = read_context,
        .statistics = statistics,
        .statistics_context = statistics_context,
        .steps_unknown = j->foreign,
        .deadline_ns = start_ns + DIAGNOSE_NS,
    };
    if (j->report->pass)
        return;
    evidence_diagnose(&evidence, j->report, &finding);
    j->report->diagnosis = finding.diagnosis;
    j->report->timings.compare_ns += clock_now_ns() - start_ns;
}
