// SPDX-License-Identifier: Apache-2.0
// The measurements of `cpattn-submit bench`: series with a number for each timed run, and their
// statistics. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_BENCH_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_BENCH_H

#include <stdbool.h>

#include "client/cpattn.h"
#include "common/status.h"
#include "plan/kind.h"

enum bench_series {
    // Nanoseconds, of the slowest rank.
    BENCH_FORWARD,
    BENCH_BACKWARD,
    BENCH_RUN, // forward and backward of the same rank
    BENCH_EXCHANGE,
    BENCH_EXPOSED,
    BENCH_LAUNCH, // of the host
    BENCH_WALL,   // from admission to answer
    // FLOP per second of a rank, which is one device: the mean of the ranks' own rates. Of
    // attention only.
    BENCH_FORWARD_RATE,
    BENCH_BACKWARD_RATE,
    BENCH_RATE,
    BENCH_SERIES,
};

struct bench {
    int runs_max, runs;
    double *values[BENCH_SERIES]; // [runs_max], of the runs in their order
    int operations;               // number of operations in a rank's plan, the largest of all ranks
};

// Allocates the arrays. RESOURCE_EXHAUSTED: out of memory; bench_fini() accepts that state, too.
enum status bench_init(struct bench *bench, int runs_max, struct error *error) MUST_CHECK;
void bench_fini(struct bench *bench);

// Adds a run. Ignores runs beyond runs_max.
void bench_add(struct bench *bench, const struct job_spec *spec,
               const struct cpattn_result *result);

const char *bench_series_name(enum bench_series series); // "forward", "forward_tflops"
bool bench_is_rate(enum bench_series series);

// `spread` is the distance between the quartiles, which are interpolated, divided by the median.
struct bench_summary {
    double median, least, most, spread;
};

// Computes the statistics of a series with at least one run. Sorts a copy; RESOURCE_EXHAUSTED: out
// of memory.
enum status bench_sum(const struct bench *bench, enum bench_series series,
                      struct bench_summary *summary, struct error *error) MUST_CHECK;

// Computes the rates of a job of another kind from the median time of its runs. Returns the number
// of rates; 0: the kind has none, or memory is short.
int bench_rates(const struct bench *bench, const struct job_spec *spec,
                struct job_rate rates[JOB_RATES_MAX], double values[JOB_RATES_MAX]);

#endif
