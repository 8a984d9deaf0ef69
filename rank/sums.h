// SPDX-License-Identifier: Apache-2.0
// Verification of what adds up over the queries of all ranks: the largest logits, the gradient of
// the sinks and that of the bias. Each rank sums up the reference over its own queries; the sums
// are exchanged in fp64.
#ifndef CPATTN_RANK_SUMS_H
#define CPATTN_RANK_SUMS_H

#include "kernels/reference/reference.h"
#include "rank/arena.h"
#include "rank/figures.h"
#include "transport/transport.h"

// Messages of sums_messages() to each peer at most.
#define SUMS_MESSAGES_MAX 2

struct sums {
    const struct cp_case *c;
    int rank;
    double *heads[WORLD_SIZE_MAX]; // of each rank [3][heads]: largest logit, dsink, its squares
    double *bias;                  // dbias of the own queries, in the layout of the output, whole
    double *bias_parts;            // of the elements delivered here, by rank
    float *got;                    // one row
    struct row_error *rows;
};

// Adds what sums_take() takes from the arena; nothing where the case has none of all this.
enum status sums_reserve(const struct cp_case *c, int rank, size_t *total,
                         struct error *error) MUST_CHECK;
void sums_take(struct sums *s, const struct cp_case *c, int rank, struct arena *arena);

// Where queries of a head, tokens `first` and on of a span, add to; for reference_queries().
struct reference_sums sums_of(const struct sums *s, const struct span *span, int64_t first,
                              int head);

// The messages with one peer that exchange the sums, after the last query. Returns how many.
int sums_messages(const struct sums *s, int peer, struct message messages[SUMS_MESSAGES_MAX]);

// What is judged: the buffers of plan/plan.h, each NULL where the case has none.
struct sums_results {
    const float *max_logit, *dsink;
    const void *dbias;
    const struct span *spans; // of the rank's queries
    int span_count;
};

// Fills one figures for each tensor that there is, after the exchange. Returns how many.
int sums_judge(struct sums *s, const struct sums_results *results, struct figures figures[3]);

#endif
