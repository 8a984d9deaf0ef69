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

// Numbers of a head over its queries.
enum {
    TOTALS_MAX_LOGIT,  // the largest logit
    TOTALS_DSINK,      // the gradient of the sink
    TOTALS_SINK_TWIN,  // sum of (twin's term - term)^2 of the sink's gradient
    TOTALS_SINK_TERMS, // sum of the squared terms of the sink's gradient
    TOTALS_BIAS_TERMS, // sum of the squared terms that cancel in dbias
    TOTALS_NUMBERS
};

// Maximum number of messages to each peer (totals_messages()), and of judged tensors.
#define TOTALS_MESSAGES_MAX 3
#define TOTALS_TENSORS_MAX  3

struct totals {
    const struct cp_case *c;
    int rank;
    double *heads[WORLD_SIZE_MAX];   // of each rank [TOTALS_NUMBERS][heads]
    double *bias, *bias_twin;        // of this rank's queries: the whole array, laid out as dbias
    double *bias_parts, *bias_twins; // [rank][elements that this rank delivers]: received
    float *got, *twin_row;           // one row
    float *errors, *twins;           // for a tally
};

// True if the case has numbers per head (enum above), a gradient of the bias, gradients of sinks.
bool totals_has_heads(const struct cp_case *c);
bool totals_has_bias(const struct cp_case *c);
bool totals_has_sink(const struct cp_case *c);

// Adds the bytes that totals_take() needs from the arena; 0 if the case has no such tensor.
enum status totals_reserve(const struct cp_case *c, int rank, size_t *total,
                           struct error *error) MUST_CHECK;
void totals_take(struct totals *t, const struct cp_case *c, int rank, struct arena *arena);

// The sums to which queries of a head contribute, from token `first` of a span on.
struct expected_sums totals_of(const struct totals *t, const struct span *span, int64_t first,
                               int head);

// Fills the messages that exchange the sums with one peer. Called after the last query. Returns
// their number.
int totals_messages(const struct totals *t, int peer, struct message messages[TOTALS_MESSAGES_MAX]);

// The judged tensors: buffers of plan/plan.h; NULL: the case has no such tensor.
struct totals_results {
    const float *max_logit, *dsink;
    const void *dbias;
};

// Fills one struct figures for each tensor, after the exchange. `sampled`: the reference has only
// some queries, so largest logits may be larger than the reference's. Returns their number.
int totals_judge(struct totals *t, const struct totals_results *results, bool sampled,
                 struct figures figures[TOTALS_TENSORS_MAX]);

// ---- for sums that are held elsewhere -----------------------------------------------------------

// Judges only the numbers of the heads: `heads` of each rank, as in struct totals.
struct figures totals_judge_max_logit(const struct cp_case *c, double *const heads[WORLD_SIZE_MAX],
                                      const float *got, bool sampled);
struct figures totals_judge_dsink(const struct cp_case *c, double *const heads[WORLD_SIZE_MAX],
                                  const float *got);

// RMS of the terms that cancel in an element of dbias, from the numbers of all heads: of all ranks
// if dbias is summed over ranks, else of this rank.
double totals_bias_terms(const struct cp_case *c, int rank, double *const heads[WORLD_SIZE_MAX]);

// The gradient of the bias of a rank before the sum over ranks:
// [heads][rows][columns], see plan/bias.h. A line is one row of one head.
struct totals_layout {
    int64_t heads, rows, columns;
};
struct totals_layout totals_layout(const struct cp_case *c, int rank);

// The sequence, head and position of a line; for a line that several sequences or queries share,
// those of the first.
struct element totals_line_element(const struct cp_case *c, int rank, int64_t line);

#endif
