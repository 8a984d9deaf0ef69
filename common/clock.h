// SPDX-License-Identifier: Apache-2.0
// The only place that reads the clock; all other code gets the time as an argument.
#ifndef CPATTN_COMMON_CLOCK_H
#define CPATTN_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

// Monotonic nanoseconds, which do not change when the wall clock is set.
static inline uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

// CPU time of the calling thread in nanoseconds, user and system.
static inline uint64_t clock_thread_cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

#endif
