// SPDX-License-Identifier: Apache-2.0
// The figures of a verdict for people: a table of errors in units of the twin's error, and remarks.
// cpattn-submit(1), VERDICTS, explains the units.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_FIGURES_H
#define CPATTN_CLIENT_SUBMIT_SHOW_FIGURES_H

#include <stdio.h>

#include "client/cpattn.h"
#include "plan/case.h"

// A row for the worst chunk of each tensor; with `verbose` one for every chunk of every rank, and
// columns for numbers that are no part of a rule. A cell that breaks its limit begins with '!'.
void figures_print(FILE *out, const struct cpattn_result *result, bool verbose);

// Prints lines after `indent` for facts outside the table: the diagnosis of a fail, the judged part
// of a sample, remarks, features that the case cannot test, and the result of TransformerEngine's
// rule.
void figures_print_notes(FILE *out, const char *indent, const struct cp_case *c,
                         const struct cpattn_result *result);

// Prints only the lines of the diagnosis.
void figures_print_diagnosis(FILE *out, const char *indent, const struct cpattn_result *result);

#endif
