// SPDX-License-Identifier: Apache-2.0
// Times of earlier benches: a file with a line of JSON for each, as written by bench --save and
// --json. If a case has several lines, the last one counts.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_BENCH_RECORD_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_BENCH_RECORD_H

#include "common/status.h"

struct bench_entry {
    char *command;    // the case as it was timed, as a command line
    double device_ns; // median time of forward and backward of the slowest rank
};

struct bench_record {
    struct bench_entry *entries;
    int count;
};

// Reads a file. INVALID_ARGUMENT: a line, named by its number, is no bench, and why; NOT_FOUND: no
// such file; INTERNAL: it cannot be read.
enum status bench_record_load(const char *path, struct bench_record **record,
                              struct error *error) MUST_CHECK;
void bench_record_destroy(struct bench_record *record); // accepts NULL

// Returns the last line of this case, else of the same case by another implementation or provider.
// NULL: there is none.
const struct bench_entry *bench_record_find(const struct bench_record *record, const char *command);

#endif
