// SPDX-License-Identifier: Apache-2.0
// A histogram of times.
#ifndef CPATTN_BENCH_SPREAD_H
#define CPATTN_BENCH_SPREAD_H

#include <stdint.h>

// Counts of times. The width of a bucket is at most a sixteenth of its times.
#define SPREAD_BUCKETS (16 * 44)
struct spread {
    uint64_t counts[SPREAD_BUCKETS], count;
    int64_t max_us;
};

void spread_add(struct spread *spread, int64_t us);
// The quantile `part`, 0..1, in milliseconds: the upper bound of its bucket; 0 without times.
double spread_quantile_ms(const struct spread *spread, double part);

#endif
