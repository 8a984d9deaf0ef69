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
    TIME_VERDICT,  // from the request to a verdict
    TIME_FAULT,    // from the request to ABORTED or INTERNAL
    TIME_BUSY,     // from the request to RESOURCE_EXHAUSTED
    TIME_STATUS,   // from a status call to its answer
    TIME_DEADLINE, // from the deadline to DEADLINE_EXCEEDED
    SOAK_TIMES,
};

// again: repeated requests; again_same: repetitions that got the same answer; differing: another
// answer. wrong: unexpected status or id. deaths of clients, halves: of these in the middle of a
// frame, abandoned: requests that they had in flight. strangers: clients without the token.
// dropped: clients that the daemon dropped without a reason.
struct soak_counts {
    uint64_t sent[KINDS], answered[KINDS], by_status[STATUS_COUNT];
    uint64_t passed, failed, again, again_same, over_network;
    uint64_t lost, twice, differing, wrong;
    uint64_t deaths, halves, abandoned, hostile, strangers, floods, dropped, reloads, reloaded;
    uint64_t faults[SOAK_FAULTS];
    uint64_t stalls,
        dropped_late; // stalls of the soak; clients that the daemon dropped because of them
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
    // Time of the last iteration, end of the last stall, longest time between two iterations.
    int64_t turn_us, stalled_us, stall_longest_us;
    int problems;
} soak;

int64_t soak_now_us(void);
bool soak_chance(int per_mille);

// Counts a violation and prints it at once.
__attribute__((format(printf, 1, 2))) void problem(const char *format, ...);

#endif
