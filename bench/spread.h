// SPDX-License-Identifier: Apache-2.0
// A distribution of times in little memory.
#ifndef CPATTN_BENCH_SPREAD_H
#define CPATTN_BENCH_SPREAD_H

#include <stdint.h>

// Times, counted in buckets of a sixteenth of their size.
#define SPREAD_BUCKETS (16 * 44)
struct spread {
    uint64_t counts[SPREAD_BUCKETS], count;
    int64_t max_us;
};

void spread_add(struct spread *spread, int64_t us);
// The quantile `part`, in milliseconds.
double spread_quantile_ms(const struct spread *spread, double part);

#endif
