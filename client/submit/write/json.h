// SPDX-License-Identifier: Apache-2.0
// Answers for programs: one JSON object per line; cpattn-submit(1) lists the members.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_JSON_H
#define CPATTN_CLIENT_SUBMIT_WRITE_JSON_H

#include <stdio.h>

#include "client/cpattn_watch.h"
#include "client/submit/outcome/bench.h"
#include "client/submit/outcome/outcome.h"
#include "plan/kind.h"

// Each writes one line; returns false if memory is short or the stream fails. `id` and `result` may
// be NULL.
bool json_answer(FILE *out, const char *id, const struct cp_case *c, const struct outcome *outcome,
                 const struct cpattn_result *result);
// The same for a job of any kind.
bool json_job(FILE *out, const char *id, const struct job_spec *spec, const struct outcome *outcome,
              const struct cpattn_result *result);
// `spec`: the job as timed; `verified`: the outcome of the verified run before.
bool json_bench(FILE *out, const struct job_spec *spec, const struct outcome *verified, int warmup,
                const struct bench *bench);
bool json_description(FILE *out, const struct cpattn_description *d);
bool json_status(FILE *out, const struct cpattn_daemon_status *s);
bool json_event(FILE *out, const struct cpattn_event *e);

#endif
