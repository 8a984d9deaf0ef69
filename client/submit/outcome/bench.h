// SPDX-License-Identifier: Apache-2.0
// What `cpattn-submit bench` has measured: series of numbers, one for each timed run, and what they
// come down to. Pure.
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
    BENCH_EXCHANGE,
    BENCH_EXPOSED,
    BENCH_LAUNCH, // of the host
    BENCH_WALL,   // from admission to answer
    // FLOP per second and rank, which is one device: the mean over the ranks, each by its own time;
    // of attention alone.
    BENCH_FORWARD_RATE,
    BENCH_BACKWARD_RATE,
    BENCH_RATE,
    BENCH_SERIES,
};

struct bench {
    int runs_max, runs;
    double *values[BENCH_SERIES]; // [runs_max], of the runs in their order
    int operations;               // of a rank's plan, the most of all ranks
};

// Owns its arrays. RESOURCE_EXHAUSTED when memory is short; bench_fini() takes that state, too.
enum status bench_init(struct bench *bench, int runs_max, struct error *error) MUST_CHECK;
void bench_fini(struct bench *bench);

// Takes a run in; at most runs_max.
void bench_add(struct bench *bench, const struct job_spec *spec,
               const struct cpattn_result *result);

const char *bench_series_name(enum bench_series series); // "forward", "forward_tflops"
bool bench_is_rate(enum bench_series series);

// Quartiles between runs are interpolated. `spread` is what lies between them, as part of the
// median.
struct bench_summary {
    double median, least, most, spread;
};

// Of a series with at least one run. Sorts a copy; RESOURCE_EXHAUSTED when there is no memory for
// it.
enum status bench_sum(const struct bench *bench, enum bench_series series,
                      struct bench_summary *summary, struct error *error) MUST_CHECK;

// The rates of a job of another kind, by the median time of forward and backward together: what
// they are, and their values. Returns how many; 0 when memory is short.
int bench_rates(const struct bench *bench, const struct job_spec *spec,
                struct job_rate rates[JOB_RATES_MAX], double values[JOB_RATES_MAX]);

#endif
