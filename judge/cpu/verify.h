// SPDX-License-Identifier: Apache-2.0
// Verification of a case against the reference and the twin (judge/cpu/expected.h). The work is
// dealt: each rank computes the reference of its own queries (O, LSE, dQ), tells the others LSE and
// delta of these rows, and then computes the reference of its own keys (dK, dV). What sums up over
// all queries (the largest logits, the gradients of sinks and bias) is told the others, too.
// Nothing is computed twice.
#ifndef CPATTN_JUDGE_CPU_VERIFY_H
#define CPATTN_JUDGE_CPU_VERIFY_H

#include "common/arena.h"
#include "common/message.h"
#include "common/report.h"
#include "judge/results.h"
#include "plan/shard.h"

// Rows of the reference that are in memory at a time. One LSE and two deltas in fp64 per query and
// head of the whole case are kept when training, and the errors of a rank: memory is linear in the
// lengths.
#define VERIFY_BLOCK_ROWS 512

// Multiplications that a rank spends on a verdict with `verify: auto` (judge/tiles.h): some ten
// seconds of a core.
#define VERIFY_WORK 2e11

// What is judged.
struct verification {
    const struct cp_case *c;
    int rank;
    const struct span *spans[2]; // of the rank, by enum shard_side
    int span_count[2];
    struct rank_results results;
    double work; // that a rank spends with `verify: auto`, like VERIFY_WORK; 0: no end of it
    struct arena *arena; // has room for what verify_reserve() adds
    struct swap swap;    // with the other ranks; not called where there are none
    struct progress *progress;
    uint64_t job; // for the progress word
    // NULL, or where LSE and delta of all queries are left when training; their memory is the
    // arena's.
    struct statistics *statistics;
};

// Adds what verify_run() takes from the arena.
enum status verify_reserve(const struct cp_case *c, int rank, size_t *total,
                           struct error *error) MUST_CHECK;

// Fills figures, pass, and the reference and compare times of the report. All ranks of the case
// must call it. A chunk without tokens has no figures. Errors of the reference and of the swap
// are passed on; a mismatch is no error.
enum status verify_run(const struct verification *v, struct rank_report *report,
                       struct error *error) MUST_CHECK;

#endif
