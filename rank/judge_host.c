// SPDX-License-Identifier: Apache-2.0
#include "rank/judge_host.h"

#include <string.h>

#include "judge/cpu/statistics.h"
#include "judge/cpu/verify.h"
#include "rank/diagnose.h"
#include "rank/swap.h"

enum status job_judge_reserve(const struct job *j, size_t *host_bytes, struct error *error)
{
    return verify_reserve(j->c, j->rank, host_bytes, error);
}

// Copies LSE and delta of one query head. The query heads of one key head are adjacent in
// `statistics`.
static bool head_statistics(void *context, int32_t sequence, int32_t head, double *lse,
                            double *delta)
{
    struct statistics *s = context;
    int group = s->c->heads / s->c->kv_heads;
    int64_t length = case_length(s->c, SIDE_Q, sequence);
    if (!s->c->training)
        return false;
    struct expected_statistics of_group = statistics_of(s, sequence, head / group);
    memcpy(lse, of_group.lse + head % group * length, (size_t)length * sizeof(double));
    memcpy(delta, of_group.delta + head % group * length, (size_t)length * sizeof(double));
    return true;
}

enum status job_judge(struct job *j, const struct rank_results *results, struct error *error)
{
    struct transport_swap swap = {j->control, j->progress,
                                  j->number << 24 | REPORT_REFERENCE << 16};
    struct statistics statistics = {.c = j->c};
    struct verification v = {
        .c = j->c,
        .rank = j->rank,
        .spans = {j->spans[SIDE_Q], j->spans[SIDE_KV]},
        .span_count = {j->span_count[SIDE_Q], j->span_count[SIDE_KV]},
        .results = *results,
        .arena = j->arena,
        .work = VERIFY_WORK,
        .swap = transport_swap(&swap),
        .progress = j->progress,
        .job = j->number,
        .statistics = &statistics,
    };
    enum status status = verify_run(&v, j->report, error);
    if (status != STATUS_OK)
        return status;
    job_drop_absent(j);
    struct evidence_host host = {j->c, &v.results};
    job_diagnose(j, evidence_host_read, &host, head_statistics, &statistics);
    return STATUS_OK;
}
