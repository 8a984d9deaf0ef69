// SPDX-License-Identifier: Apache-2.0
// An answer for people: verdict, figures and times; or the states of the ranks after a failure.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_VERDICT_H
#define CPATTN_CLIENT_SUBMIT_SHOW_VERDICT_H

#include <stdio.h>

#include "client/submit/outcome/outcome.h"
#include "client/submit/show/terminal.h"
#include "plan/kind.h"

// Prints the verdict, the figures and the times. `result` may be NULL. Shows the worst figures of
// each tensor, with `verbose` all.
void verdict_print(FILE *out, const struct cp_case *c, const struct outcome *outcome,
                   const struct cpattn_result *result, bool verbose);

// The same for a job of any kind.
void verdict_print_job(FILE *out, const struct job_spec *spec, const struct outcome *outcome,
                       const struct cpattn_result *result, bool verbose);

enum terminal_paint verdict_paint(enum outcome_kind kind);

// Prints only the first line: "pass  cp_1_0 bf16 ...".
void verdict_print_line(FILE *out, const char *what, const struct outcome *outcome);

// Prints, each line after `indent`: for a fail the broken rules, the first bad element, the command
// that reproduces it and the diagnosis; for an error the sentence, the states of the ranks and the
// command.
void verdict_print_cause(FILE *out, const char *indent, const struct cp_case *c,
                         const struct outcome *outcome, const struct cpattn_result *result);

void verdict_print_cause_job(FILE *out, const char *indent, const struct job_spec *spec,
                             const struct outcome *outcome, const struct cpattn_result *result);

#endif
