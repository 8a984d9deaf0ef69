// SPDX-License-Identifier: Apache-2.0
// --trace FILE: the timeline of a case in a file.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_TRACE_FILE_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_TRACE_FILE_H

#include "client/cpattn.h"
#include "plan/timeline.h"

// Asks for the times of operations where the case can have them.
void trace_file_ask(struct cp_case *c);

// Writes the prediction of a case that case_check() admits and, with a `result`, what was measured.
// The exit status, after a complaint where it is not 0.
int trace_file_write(const char *path, const struct cp_case *c, const struct timeline_rates *rates,
                     const struct cpattn_result *result);

#endif
