// SPDX-License-Identifier: Apache-2.0
// The report of the soak.
#ifndef CPATTN_BENCH_SOAK_REPORT_H
#define CPATTN_BENCH_SOAK_REPORT_H

// Checks that memory, descriptors, threads and ranks did not grow; calls problem() if they did.
void report_judge(void);
// Prints the report in Markdown to stdout. `end`: how the daemon ended.
void report_print(int argc, char **argv, const char *end);

#endif
