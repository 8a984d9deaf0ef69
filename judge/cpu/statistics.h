// SPDX-License-Identifier: Apache-2.0
// LSE and delta of all queries of a case, which the ranks tell each other before keys are judged.
#ifndef CPATTN_JUDGE_CPU_STATISTICS_H
#define CPATTN_JUDGE_CPU_STATISTICS_H

#include "common/arena.h"
#include "common/message.h"
#include "judge/cpu/expected.h"
#include "judge/results.h"
#include "plan/shard.h"

// What is kept of all ranks: LSE of the queries of rank r as [sequence][head][local token], then
// delta and the twin's delta in the same order. Padding is left as it is.
struct statistics {
    const struct cp_case *c;
    int rank;
    double *ranks[WORLD_SIZE_MAX];
    double *lse, *delta, *delta_twin; // of the heads that share a key head, [heads][seqlen_q]
    int32_t sequence;                 // `before` are the local tokens of all sequences before this
    int64_t before[WORLD_SIZE_MAX];
};

// Adds what statistics_take() takes from the arena.
enum status statistics_reserve(const struct cp_case *c, size_t *total,
                               struct error *error) MUST_CHECK;
void statistics_take(struct statistics *s, const struct cp_case *c, int rank, struct arena *arena);

// Keeps those of queries of the rank: `count` tokens of a span and head, from its token `first` on.
void statistics_keep(struct statistics *s, const struct span *span, int head, int64_t first,
                     int64_t count, const struct expected_statistics *values);

// Keeps those of all queries of the rank as its results have them: the LSE it delivers, and delta
// of the out that it delivers, for either delta.
void statistics_keep_results(struct statistics *s, const struct span *spans, int count,
                             const struct rank_results *results);

// Adds what the kept queries of a span make of the gradient of a head's sink, its terms, and what
// an out that is rounded to the dtype makes of these.
void statistics_add_sink(struct statistics *s, const struct span *span, int head,
                         const struct expected_sums *sums);

// The message that tells a peer the own ones.
struct message statistics_message(const struct statistics *s, int peer);

// Those of all queries of a sequence and key head in the order of positions, once all are there.
struct expected_statistics statistics_of(struct statistics *s, int32_t sequence, int kv_head);

#endif
