// SPDX-License-Identifier: Apache-2.0
// --trace FILE and --svg FILE: the timeline of a case or job in a file.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_TRACE_FILE_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_TRACE_FILE_H

#include "client/cpattn.h"
#include "plan/kind.h"
#include "plan/timeline.h"

// Asks for the times of operations where the case can have them.
void trace_file_ask(struct cp_case *c);

// Writes the prediction of a case that case_check() admits and, with a `result`, what was measured.
// The exit status, after a complaint where it is not 0.
int trace_file_write(const char *path, const struct cp_case *c, const struct timeline_rates *rates,
                     const struct cpattn_result *result);

// The same of a job of another kind, which has plans.
int trace_file_write_job(const char *path, const struct job_spec *spec,
                         const struct cpattn_result *result);

// Draws the timeline of such a job of all ranks as SVG; "-" is standard output. Checks the plans
// first. The exit status, likewise.
int picture_file_write_job(const char *path, const struct job_spec *spec);

#endif
