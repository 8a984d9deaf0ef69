// SPDX-License-Identifier: Apache-2.0
// Counters since the daemon's start that the pool core does not keep.
#ifndef CPATTN_DAEMON_SERVICE_TALLY_H
#define CPATTN_DAEMON_SERVICE_TALLY_H

#include <stdint.h>

#include "daemon/core/core.h"
#include "proto/wire.h"

// Upper bounds of the histogram buckets in ns. One more bucket counts longer times.
#define TALLY_BOUNDS 14
extern const uint64_t tally_bounds_ns[TALLY_BOUNDS];

struct tally_times {
    uint64_t counts[TALLY_BOUNDS + 1]; // bucket i: above bound i - 1, up to bound i
    double sum_s;
};

struct tally {
    uint64_t began_ns; // start of the daemon
    uint64_t verdicts[VERDICT_UNVERIFIED + 1];
    uint64_t codes[STATUS_COUNT];        // of admitted cases without a verdict
    uint64_t refused;                    // refused before they reached the core
    struct tally_times total, wait, run; // admission to answer, admission to run, run
};

// Counts the answer of a case.
void tally_answer(struct tally *t, const struct action *answer, const struct wire_reply *reply);

// Fills in the members of a status that are counted here; adds to status->refused.
void tally_fill(const struct tally *t, uint64_t now_ns, struct wire_status *status);

#endif
