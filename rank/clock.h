// SPDX-License-Identifier: Apache-2.0
// The clock that timings are taken with.
#ifndef CPATTN_RANK_CLOCK_H
#define CPATTN_RANK_CLOCK_H

#include <stdint.h>
#include <time.h>

// Monotonic nanoseconds.
static inline uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
