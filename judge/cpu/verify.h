// SPDX-License-Identifier: Apache-2.0
// Verification of a case against the reference and the twin (judge/cpu/expected.h). The work is
// divided among the ranks: each rank computes the reference of its own queries (O, LSE, dQ), sends
// LSE and delta of these rows to the others, and then computes the reference of its own keys (dK,
// dV). Sums over all queries (the largest logits, the gradients of sinks and bias) are exchanged,
// too. No part is computed twice.
#ifndef CPATTN_JUDGE_CPU_VERIFY_H
#define CPATTN_JUDGE_CPU_VERIFY_H

#include "common/arena.h"
#include "common/message.h"
#include "common/report.h"
#include "judge/results.h"
#include "plan/shard.h"

// Number of rows of the reference in memory at a time. With training it also stores one LSE and two
// deltas in fp64 per query and head of the whole case, and the errors of a rank: memory is linear
// in the lengths.
#define VERIFY_BLOCK_ROWS 512

// Number of multiplications of a rank for a verdict with `verify: auto` (judge/tiles.h): about ten
// seconds of a core.
#define VERIFY_WORK 2e11

// The input of a verification.
struct verification {
    const struct cp_case *c;
    int rank;
    const struct span *spans[2]; // of the rank, by enum shard_side
    int span_count[2];
    struct rank_results results;
    double work; // multiplications of a rank with `verify: auto`, such as VERIFY_WORK; 0: no limit
    struct arena *arena; // has the bytes that verify_reserve() adds
    struct swap swap;    // with the other ranks; not called if there are none
    struct progress *progress;
    uint64_t job; // for the progress word
    // NULL, or receives LSE and delta of all queries with training; their memory is the arena's.
    struct statistics *statistics;
};

// Adds the bytes that verify_run() takes from the arena.
enum status verify_reserve(const struct cp_case *c, int rank, size_t *total,
                           struct error *error) MUST_CHECK;

// Fills figures, pass, and the reference and compare times of the report. All ranks of the case
// must call it. A chunk without tokens has no figures. Errors of the reference and of the swap are
// returned; a mismatch is not an error.
enum status verify_run(const struct verification *v, struct rank_report *report,
                       struct error *error) MUST_CHECK;

#endif
