// SPDX-License-Identifier: Apache-2.0
// What the parts of the soak share.
#ifndef CPATTN_BENCH_SOAK_H
#define CPATTN_BENCH_SOAK_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/soak_process.h"
#include "proto/wire.h"

#define SOAK_SAMPLES_MAX 2048

enum soak_kind { KIND_NONE, KIND_RUN, KIND_STATUS, KIND_CANCEL, KINDS };

// Times, counted in buckets of a sixteenth of their size.
#define SPREAD_BUCKETS (16 * 44)
struct spread {
    uint64_t counts[SPREAD_BUCKETS], count;
    int64_t max_us;
};

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
    int problems;
} soak;

int64_t soak_now_us(void);
bool soak_chance(int per_mille);

// Something that must not be; told at once.
__attribute__((format(printf, 1, 2))) void problem(const char *format, ...);

void spread_add(struct spread *spread, int64_t us);
// The time that the part of all does not exceed, in milliseconds.
double spread_quantile_ms(const struct spread *spread, double part);

// ---- clients -----------------------------------------------------------------------------------

void clients_begin(void);
// Takes what has come and tells what did not; gives back how many requests are open.
int clients_serve(int64_t now_us);
// Waits for something to come, or for so long.
void clients_wait(int timeout_ms);
// What each of them feels like doing in a turn.
void clients_act(void);
void clients_close(void);

// One of them goes, with half a request on the line or not; another comes.
void client_die(void);
// Ten times what the queue holds. Whoever is through with the last flood takes part.
void clients_flood(void);
// A connection that breaks the rules, or one without the token.
void client_hostile(void);

// ---- the report --------------------------------------------------------------------------------

// Whether what was to stay flat did; problems for what did not.
void report_judge(void);
// Markdown, on stdout.
void report_print(int argc, char **argv, const char *end);

#endif
