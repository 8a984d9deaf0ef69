// SPDX-License-Identifier: Apache-2.0
// --trace FILE and --svg FILE: the timeline of a case or job in a file.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_TRACE_FILE_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_TRACE_FILE_H

#include "client/cpattn.h"
#include "plan/kind.h"
#include "plan/timeline.h"

// Why --operation-times false is refused beside --trace.
#define OPERATION_TIMES_WHY "false does not go with --trace, which shows these times"

// Sets operation_times in a case that can have them: one without a guest and without a graph.
void trace_file_ask(struct cp_case *c);

// Writes the prediction of a case that case_check() admits and, with a `result`, what was measured.
// Returns the exit status, after a complaint if it is not 0.
int trace_file_write(const char *path, const struct cp_case *c, const struct timeline_rates *rates,
                     const struct cpattn_result *result);

// The same for a job of another kind, which must have plans.
int trace_file_write_job(const char *path, const struct job_spec *spec,
                         const struct cpattn_result *result);

// Checks the plans of such a job and draws the timeline of all its ranks as SVG; the path "-" is
// standard output. Returns the exit status likewise.
int picture_file_write_job(const char *path, const struct job_spec *spec);

#endif
