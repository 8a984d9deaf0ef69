// SPDX-License-Identifier: Apache-2.0
// LSE and delta of all queries of a case, which the ranks exchange before keys are judged.
#ifndef CPATTN_JUDGE_CPU_STATISTICS_H
#define CPATTN_JUDGE_CPU_STATISTICS_H

#include "common/arena.h"
#include "common/message.h"
#include "judge/cpu/expected.h"
#include "judge/results.h"
#include "plan/shard.h"

// ranks[r]: statistics of the queries of rank r: LSE as [sequence][head][local token], then delta,
// then the twin's delta, in the same order. Values of padding are not initialized.
struct statistics {
    const struct cp_case *c;
    int rank;
    double *ranks[WORLD_SIZE_MAX];
    double *lse, *delta, *delta_twin; // result of statistics_of()
    int32_t sequence;                 // the sequence of `before`
    int64_t before[WORLD_SIZE_MAX];   // by rank: local tokens of the sequences before `sequence`
};

// Adds the bytes that statistics_take() takes from the arena.
enum status statistics_reserve(const struct cp_case *c, size_t *total,
                               struct error *error) MUST_CHECK;
void statistics_take(struct statistics *s, const struct cp_case *c, int rank, struct arena *arena);

// Stores statistics of the rank's own queries: `count` tokens of a span and head, from token
// `first` of the span on.
void statistics_keep(struct statistics *s, const struct span *span, int head, int64_t first,
                     int64_t count, const struct expected_statistics *values);

// Stores the statistics of all queries of the rank from its results: the delivered LSE, and for
// both deltas the delta of the delivered out.
void statistics_keep_results(struct statistics *s, const struct span *spans, int count,
                             const struct rank_results *results);

// Adds the stored queries of a span to the sums of a head's sink: to its gradient, to the squares
// of its terms, and to the squares of the twin's errors, estimated from the rounding of out.
void statistics_add_sink(struct statistics *s, const struct span *span, int head,
                         const struct expected_sums *sums);

// The message with this rank's statistics for a peer.
struct message statistics_message(const struct statistics *s, int peer);

// The statistics of all queries of a sequence and key head in the order of positions. Call after
// the exchange; valid until the next call.
struct expected_statistics statistics_of(struct statistics *s, int32_t sequence, int kv_head);

#endif
