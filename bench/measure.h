// SPDX-License-Identifier: Apache-2.0
// Helpers for benchmarks of the daemon: a clock, quantiles, and an echo as a baseline on busy
// machines.
#ifndef CPATTN_BENCH_MEASURE_H
#define CPATTN_BENCH_MEASURE_H

#include <stdbool.h>
#include <sys/types.h>

double measure_now_us(void); // of a monotonic clock

// The quantile `part`. Sorts.
double measure_quantile(double *values, int count, double part);

// A process that returns what it receives.
struct echo {
    pid_t pid;
    int fd;
};

// False if it cannot be started. Call before there are threads.
bool echo_start(struct echo *echo);
void echo_end(struct echo *echo);

// Microseconds of a round trip of 200 bytes; negative if the process has ended.
double echo_once(const struct echo *echo);

#endif
