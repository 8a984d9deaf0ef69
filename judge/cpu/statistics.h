// SPDX-License-Identifier: Apache-2.0
// LSE and delta of all queries of a case, which the ranks exchange before keys are judged.
#ifndef CPATTN_JUDGE_CPU_STATISTICS_H
#define CPATTN_JUDGE_CPU_STATISTICS_H

#include "common/arena.h"
#include "common/message.h"
#include "judge/cpu/expected.h"
#include "judge/results.h"
#include "plan/shard.h"

// Statistics by rank: LSE of its queries as [sequence][head][local token], then delta and the
// twin's delta in the same order. Padding is not initialized.
struct statistics {
    const struct cp_case *c;
    int rank;
    double *ranks[WORLD_SIZE_MAX];
    double *lse, *delta, *delta_twin; // of the heads that share a key head, [heads][seqlen_q]
    int32_t sequence;                 // `before` are the local tokens of all sequences before this
    int64_t before[WORLD_SIZE_MAX];
};

// Adds the bytes that statistics_take() takes from the arena.
enum status statistics_reserve(const struct cp_case *c, size_t *total,
                               struct error *error) MUST_CHECK;
void statistics_take(struct statistics *s, const struct cp_case *c, int rank, struct arena *arena);

// Stores the statistics of queries of the rank: `count` tokens of a span and head, from its token
// `first` on.
void statistics_keep(struct statistics *s, const struct span *span, int head, int64_t first,
                     int64_t count, const struct expected_statistics *values);

// Stores the statistics of all queries of the rank from its results: the delivered LSE, and delta
// of the delivered out for both deltas.
void statistics_keep_results(struct statistics *s, const struct span *spans, int count,
                             const struct rank_results *results);

// Adds the contribution of the stored queries of a span to the gradient of a head's sink, to its
// terms, and to the twin's terms, which use the rounded out.
void statistics_add_sink(struct statistics *s, const struct span *span, int head,
                         const struct expected_sums *sums);

// The message with this rank's statistics for a peer.
struct message statistics_message(const struct statistics *s, int peer);

// The statistics of all queries of a sequence and key head in the order of positions, after the
// exchange.
struct expected_statistics statistics_of(struct statistics *s, int32_t sequence, int kv_head);

#endif
