// SPDX-License-Identifier: Apache-2.0
// The measurements of a bench, for people.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_BENCH_TABLE_H
#define CPATTN_CLIENT_SUBMIT_SHOW_BENCH_TABLE_H

#include "client/submit/outcome/bench.h"
#include "client/submit/outcome/outcome.h"
#include "client/submit/show/table.h"

// A bench of one job.
struct bench_shown {
    const struct job_spec *spec; // as it was timed
    const struct bench *bench;
    const struct outcome *verified;
    int warmup, repeat; // as requested
    int64_t sent;       // most bytes that any rank sends in a run; 0: none or unknown
    double earlier_ns;  // forward and backward in an earlier bench; 0: there is none
};

// Prints the case, the verdict and a row for each series. RESOURCE_EXHAUSTED when memory is short.
enum status bench_table_print(FILE *out, const struct bench_shown *shown,
                              struct error *error) MUST_CHECK;

// Creates a table of several jobs of the kind of `spec`. `names` (upper case, separated by spaces)
// are the headings of the columns that tell the jobs apart. For each job the caller fills these
// columns; then bench_table_row() fills the others.
struct table *bench_table_create(FILE *out, const char *names, const struct job_spec *spec,
                                 bool compared);
enum status bench_table_row(struct table *table, const struct bench_shown *shown, bool compared,
                            struct error *error) MUST_CHECK;

// Median time of forward and backward together, of the slowest rank. RESOURCE_EXHAUSTED when memory
// is short.
enum status bench_device_ns(const struct bench *bench, double *ns, struct error *error) MUST_CHECK;

#endif
