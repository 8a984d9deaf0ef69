// SPDX-License-Identifier: Apache-2.0
// Cases made by hand. A field that cannot be set fails the test.
#ifndef CPATTN_TESTS_SUPPORT_CASES_H
#define CPATTN_TESTS_SUPPORT_CASES_H

#include "plan/case.h"

// The case of case_init().
struct cp_case cases_usual(void);

// Sets a field from text.
void cases_set(struct cp_case *c, const char *name, const char *value);

// The usual case in thd with these lists.
struct cp_case cases_thd(const char *lengths_q, const char *lengths_kv, const char *padded_q,
                         const char *padded_kv);

// Parses a command line of case_command(), as a shell and the command do.
void cases_read_command(const char *command, struct cp_case *c);

#endif
