// SPDX-License-Identifier: Apache-2.0
// Verification of sums (and maxima) over the queries of all ranks: the largest logits, the
// gradients of sinks and bias. Each rank computes the expected values of its own queries; the ranks
// exchange them in fp64.
#ifndef CPATTN_JUDGE_TOTALS_H
#define CPATTN_JUDGE_TOTALS_H

#include "common/arena.h"
#include "common/message.h"
#include "judge/cpu/expected.h"
#include "judge/rules.h"
#include "plan/shard.h"

// Numbers of a head over its queries: the largest logit; the gradient of its sink, the squares of
// what the twin's terms differ by, those of the terms; the squares of what cancels in dbias.
enum {
    TOTALS_MAX_LOGIT,
    TOTALS_DSINK,
    TOTALS_SINK_TWIN,
    TOTALS_SINK_TERMS,
    TOTALS_BIAS_TERMS,
    TOTALS_NUMBERS
};

// Messages of totals_messages() to each peer, and tensors that are judged, at most.
#define TOTALS_MESSAGES_MAX 3
#define TOTALS_TENSORS_MAX  3

struct totals {
    const struct cp_case *c;
    int rank;
    double *heads[WORLD_SIZE_MAX];   // of each rank [TOTALS_NUMBERS][heads]
    double *bias, *bias_twin;        // of the own queries, in the layout of the output, whole
    double *bias_parts, *bias_twins; // of the elements delivered here, by rank
    float *got, *twin_row;           // one row
    float *errors, *twins;           // for a tally
};

// True if a case has numbers per head; true if it has a gradient of the bias.
bool totals_has_heads(const struct cp_case *c);
bool totals_has_bias(const struct cp_case *c);
bool totals_has_sink(const struct cp_case *c);

// Adds the bytes that totals_take() needs from the arena; 0 if the case has no such tensor.
enum status totals_reserve(const struct cp_case *c, int rank, size_t *total,
                           struct error *error) MUST_CHECK;
void totals_take(struct totals *t, const struct cp_case *c, int rank, struct arena *arena);

// Where queries of a head, tokens `first` and on of a span, add to.
struct expected_sums totals_of(const struct totals *t, const struct span *span, int64_t first,
                               int head);

// The messages with one peer that exchange the sums, after the last query. Returns how many.
int totals_messages(const struct totals *t, int peer, struct message messages[TOTALS_MESSAGES_MAX]);

// What is judged: the buffers of plan/plan.h, each NULL where the case has none.
struct totals_results {
    const float *max_logit, *dsink;
    const void *dbias;
};

// Fills one figures for each tensor that there is, after the exchange. `sampled`: not all queries
// were looked at, so that largest logits may be larger than those that were found. Returns how
// many.
int totals_judge(struct totals *t, const struct totals_results *results, bool sampled,
                 struct figures figures[TOTALS_TENSORS_MAX]);

// ---- parts of it, for sums that are elsewhere ---------------------------------------------------

// Judges the numbers of the heads alone: `heads` of each rank, as in struct totals.
struct figures totals_judge_max_logit(const struct cp_case *c, double *const heads[WORLD_SIZE_MAX],
                                      const float *got, bool sampled);
struct figures totals_judge_dsink(const struct cp_case *c, double *const heads[WORLD_SIZE_MAX],
                                  const float *got);

// RMS of what cancels in an element of dbias, from the numbers of all heads: where it is summed up
// over all ranks of all of them, else of the rank alone.
double totals_bias_terms(const struct cp_case *c, int rank, double *const heads[WORLD_SIZE_MAX]);

// The gradient of the bias as a rank holds it before the ranks are added up:
// [heads][rows][columns], see plan/bias.h. A line is one row of one head.
struct totals_layout {
    int64_t heads, rows, columns;
};
struct totals_layout totals_layout(const struct cp_case *c, int rank);

// The sequence, head and position of a line; what several sequences or queries share is said to be
// of the first.
struct element totals_line_element(const struct cp_case *c, int rank, int64_t line);

#endif
