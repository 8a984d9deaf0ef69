// SPDX-License-Identifier: Apache-2.0
// The shared state of a soak: counts, times, random generator, problems.
#ifndef CPATTN_BENCH_SOAK_STATE_H
#define CPATTN_BENCH_SOAK_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/soak_process.h"
#include "bench/spread.h"
#include "proto/wire.h"

#define SOAK_SAMPLES_MAX 2048

enum soak_kind { KIND_NONE, KIND_RUN, KIND_STATUS, KIND_CANCEL, KINDS };

enum soak_time {
    TIME_VERDICT,  // until a verdict
    TIME_FAULT,    // until ABORTED or INTERNAL
    TIME_BUSY,     // until RESOURCE_EXHAUSTED
    TIME_STATUS,   // until the answer to a status call
    TIME_DEADLINE, // from the deadline to DEADLINE_EXCEEDED
    SOAK_TIMES,
};

struct soak_counts {
    uint64_t sent[KINDS], answered[KINDS], by_status[STATUS_COUNT];
    uint64_t passed, failed, again, again_same, over_network;
    uint64_t lost, twice, differing, wrong;
    uint64_t deaths, halves, abandoned, hostile, strangers, floods, dropped, reloads, reloaded;
    uint64_t faults[SOAK_FAULTS];
    uint64_t stalls,
        dropped_late; // stalls of the soak; clients that the daemon dropped during them
};

extern struct soak {
    struct soak_process process;
    struct soak_counts counts;
    struct spread times[SOAK_TIMES];
    struct soak_sample samples[SOAK_SAMPLES_MAX];
    int sample_count;
    struct soak_sample base, rest; // before the first client, and after the last
    uint64_t random, seed;
    int64_t began_us, end_us;
    int64_t turn_us, stalled_us, stall_longest_us; // last iteration, end of the last stall
    int problems;
} soak;

int64_t soak_now_us(void);
bool soak_chance(int per_mille);

// A violation; printed at once.
__attribute__((format(printf, 1, 2))) void problem(const char *format, ...);

#endif
