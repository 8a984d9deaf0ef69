// SPDX-License-Identifier: Apache-2.0
// What the soak has found.
#ifndef CPATTN_BENCH_SOAK_REPORT_H
#define CPATTN_BENCH_SOAK_REPORT_H

// Whether what was to stay flat did; problems for what did not.
void report_judge(void);
// Markdown, on stdout.
void report_print(int argc, char **argv, const char *end);

#endif
