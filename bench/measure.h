// SPDX-License-Identifier: Apache-2.0
// What benchmarks of the daemon measure with: a clock, quantiles, and an echo beside which figures
// of a busy machine can be read.
#ifndef CPATTN_BENCH_MEASURE_H
#define CPATTN_BENCH_MEASURE_H

#include <stdbool.h>
#include <sys/types.h>

double measure_now_us(void); // of a clock that only goes forward

// The value that the given part of all does not exceed. Sorts.
double measure_quantile(double *values, int count, double part);

// A process that sends back what it gets.
struct echo {
    pid_t pid;
    int fd;
};

// False when it cannot be started. To be called before there are threads.
bool echo_start(struct echo *echo);
void echo_end(struct echo *echo);

// Microseconds for 200 bytes there and back; negative when the echo is gone.
double echo_once(const struct echo *echo);

#endif
