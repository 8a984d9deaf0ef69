// SPDX-License-Identifier: Apache-2.0
// An answer for people: the verdict, the figures, the times; or the states of the ranks.
#ifndef CPATTN_CLIENT_SUBMIT_ANSWER_H
#define CPATTN_CLIENT_SUBMIT_ANSWER_H

#include <stdio.h>

#include "client/submit/outcome.h"
#include "client/submit/terminal.h"
#include "plan/case.h"

// Prints the verdict, then what a person asks next. `result` may be NULL. Figures come as the worst
// of each tensor, and all of them with `verbose`.
void answer_print(FILE *out, const struct cp_case *c, const struct outcome *outcome,
                  const struct cpattn_result *result, bool verbose);

enum terminal_paint answer_paint(enum outcome_kind kind);

// The first line alone: "pass  cp_1_0 bf16 ...".
void answer_print_verdict(FILE *out, const char *what, const struct outcome *outcome);

// A broken rule, its first bad element, the command that reproduces it and the diagnosis, or the
// sentence and the states of the ranks, each line after `indent`.
void answer_print_cause(FILE *out, const char *indent, const struct cp_case *c,
                        const struct outcome *outcome, const struct cpattn_result *result);

#endif
