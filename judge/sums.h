// SPDX-License-Identifier: Apache-2.0
// Verification of what adds up over the queries of all ranks: the largest logits, the gradient of
// the sinks and that of the bias. Each rank sums up the reference over its own queries; the sums
// are exchanged in fp64.
#ifndef CPATTN_JUDGE_SUMS_H
#define CPATTN_JUDGE_SUMS_H

#include "common/arena.h"
#include "common/message.h"
#include "judge/cpu/reference.h"
#include "judge/figures.h"

// Messages of sums_messages() to each peer at most.
#define SUMS_MESSAGES_MAX 2

// Tensors that are judged at most.
#define SUMS_TENSORS_MAX 3

// Numbers of a head: the largest logit, the gradient of its sink, the squares of that one's terms.
enum { SUMS_MAX_LOGIT, SUMS_DSINK, SUMS_SQUARES, SUMS_NUMBERS };

struct sums {
    const struct cp_case *c;
    int rank;
    double *heads[WORLD_SIZE_MAX]; // of each rank [SUMS_NUMBERS][heads]
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
int sums_judge(struct sums *s, const struct sums_results *results,
               struct figures figures[SUMS_TENSORS_MAX]);

// ---- the parts of it, for sums that are elsewhere -----------------------------------------------

// Whether a case has numbers per head, and a gradient of the bias.
bool sums_has_heads(const struct cp_case *c);
bool sums_has_bias(const struct cp_case *c);

// Judges the numbers of the heads alone: `heads` of each rank, as in struct sums. `rows` is room
// for those of the case.
int sums_heads_judge(const struct cp_case *c, double *const heads[WORLD_SIZE_MAX],
                     const struct sums_results *results, struct row_error *rows,
                     struct figures figures[SUMS_TENSORS_MAX]);

// The gradient of the bias as a rank holds it before the ranks are added up:
// [heads][rows][columns], see plan/bias.h. A line is one row of one head.
struct sums_layout {
    int64_t heads, rows, columns;
};
struct sums_layout sums_layout(const struct cp_case *c, int rank);

// The rule for what the rank delivers of it, and the sequence, head and position of a line; what
// several sequences or queries share is said to be of the first.
struct figures_rule sums_bias_rule(const struct cp_case *c, int rank,
                                   const struct sums_results *results);
struct element sums_line_element(const struct cp_case *c, int rank, int64_t line);

#endif
