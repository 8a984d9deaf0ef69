// SPDX-License-Identifier: Apache-2.0
#include "bench/spread.h"

// Buckets 0 to 15 are for one microsecond each. Each further power of two has 16 equal buckets.
static int spread_bucket(uint64_t us)
{
    if (us < 16)
        return (int)us;
    int doubling = 63 - __builtin_clzll(us) - 4;
    int bucket = 16 * (doubling + 1) + (int)(us >> doubling) - 16;
    return bucket < SPREAD_BUCKETS ? bucket : SPREAD_BUCKETS - 1;
}

// Upper bound of the times in the bucket.
static double spread_top_us(int bucket)
{
    if (bucket < 16)
        return bucket;
    int doubling = bucket / 16 - 1;
    return (double)((uint64_t)(bucket % 16 + 17) << doubling);
}

void spread_add(struct spread *spread, int64_t us)
{
    us = us > 0 ? us : 0;
    spread->counts[spread_bucket((uint64_t)us)]++;
    spread->count++;
    spread->max_us = us > spread->max_us ? us : spread->max_us;
}

double spread_quantile_ms(const struct spread *spread, double part)
{
    uint64_t below = 0;
    for (int i = 0; i < SPREAD_BUCKETS; i++) {
        below += spread->counts[i];
        if (spread->counts[i] > 0 && (double)below >= part * (double)spread->count) {
            double top_us = spread_top_us(i), max_us = (double)spread->max_us;
            return (top_us < max_us ? top_us : max_us) * 1e-3;
        }
    }
    return 0;
}
