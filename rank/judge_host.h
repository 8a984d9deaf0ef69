// SPDX-License-Identifier: Apache-2.0
// Runs the CPU's judge on results in host memory.
#ifndef CPATTN_RANK_JUDGE_HOST_H
#define CPATTN_RANK_JUDGE_HOST_H

#include "rank/job.h"

// Adds the bytes that job_judge() takes from the job's arena.
enum status job_judge_reserve(const struct job *j, size_t *host_bytes,
                              struct error *error) MUST_CHECK;

// Fills figures, pass, times and diagnosis of the report. `results` are in host memory, in the
// layouts of plan/plan.h. All ranks of the case call it; `control` has no exchange in progress.
enum status job_judge(struct job *j, const struct rank_results *results,
                      struct error *error) MUST_CHECK;

#endif
