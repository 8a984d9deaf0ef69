// SPDX-License-Identifier: Apache-2.0
// Helpers for benchmarks of the daemon: a clock, quantiles, and an echo process, whose round trip
// is a baseline on busy machines.
#ifndef CPATTN_BENCH_MEASURE_H
#define CPATTN_BENCH_MEASURE_H

#include <stdbool.h>
#include <sys/types.h>

double measure_now_us(void); // monotonic clock

// The quantile `part`, 0..1, of values[count], count > 0. Sorts the values.
double measure_quantile(double *values, int count, double part);

// A child process that sends every packet back.
struct echo {
    pid_t pid;
    int fd;
};

// Forks the process; false: failed. Call before this process has threads.
bool echo_start(struct echo *echo);
void echo_end(struct echo *echo);

// Microseconds of a round trip of 200 bytes; negative: the process has ended.
double echo_once(const struct echo *echo);

#endif
