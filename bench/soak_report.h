// SPDX-License-Identifier: Apache-2.0
// The report of the soak.
#ifndef CPATTN_BENCH_SOAK_REPORT_H
#define CPATTN_BENCH_SOAK_REPORT_H

// Checks that resources did not grow; adds problems.
void report_judge(void);
// Markdown, on stdout.
void report_print(int argc, char **argv, const char *end);

#endif
