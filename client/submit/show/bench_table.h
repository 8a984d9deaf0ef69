// SPDX-License-Identifier: Apache-2.0
// What a bench has measured, for people.
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
    int64_t sent;      // bytes that a rank sends to others in a run, the most of all ranks; 0: none
    double earlier_ns; // forward and backward of an earlier bench; 0: there is none
};

// The case, the verdict and a row for each series. RESOURCE_EXHAUSTED when memory is short.
enum status bench_table_print(FILE *out, const struct bench_shown *shown,
                              struct error *error) MUST_CHECK;

// A table of several jobs of a kind, as `spec`: `names` (upper case, a space between them) head the
// columns of what distinguishes them, which the caller fills before bench_table_row() fills the
// others.
struct table *bench_table_create(FILE *out, const char *names, const struct job_spec *spec,
                                 bool compared);
enum status bench_table_row(struct table *table, const struct bench_shown *shown, bool compared,
                            struct error *error) MUST_CHECK;

// Medians of forward and backward together, of the slowest rank. RESOURCE_EXHAUSTED when memory is
// short.
enum status bench_device_ns(const struct bench *bench, double *ns, struct error *error) MUST_CHECK;

#endif
