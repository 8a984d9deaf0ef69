// SPDX-License-Identifier: Apache-2.0
// A slice: a rectangle of the attention matrix in local rows, with its place in the global matrix.
#ifndef CPATTN_PLAN_SLICE_H
#define CPATTN_PLAN_SLICE_H

#include <stdbool.h>
#include <stdint.h>

#define SLICE_UNBOUNDED (INT64_C(1) << 40)

// Local query i (0 <= i < q_len) sees local key j (0 <= j < kv_len) iff -left <= j + offset - i <=
// right. Query i lies in row q_row + i * row_step of Q, O, LSE, dO, dQ; key j in row kv_row + j *
// row_step of K, V, dK, dV (row_step: shard_row_step() of the case). offset = global position of
// the first key - global position of the first query (plus the mask's shift).
struct slice {
    int64_t q_row, q_len;
    int64_t kv_row, kv_len;
    int64_t offset;
    int64_t left, right; // >= SLICE_UNBOUNDED: no bound on that side
    // Row of the first query and column of the first key in the bias (plan/bias.h).
    int64_t bias_row, bias_column;
};

// Keys [*begin, *end) of the slice that query i sees; none if begin >= end.
static inline void slice_visible(const struct slice *s, int64_t i, int64_t *begin, int64_t *end)
{
    int64_t lo = s->left >= SLICE_UNBOUNDED ? 0 : i - s->offset - s->left;
    int64_t hi = s->right >= SLICE_UNBOUNDED ? s->kv_len : i - s->offset + s->right + 1;
    *begin = lo < 0 ? 0 : lo;
    *end = hi > s->kv_len ? s->kv_len : hi;
}

// Queries [*begin, *end) of the slice that see at least one key; none if begin >= end.
void slice_seeing(const struct slice *s, int64_t *begin, int64_t *end);

// Keys [*begin, *end) of the slice that at least one query sees; none if begin >= end.
void slice_seen(const struct slice *s, int64_t *begin, int64_t *end);

// slice_seeing() for queries, slice_seen() for keys.
static inline void slice_met(const struct slice *s, bool queries, int64_t *begin, int64_t *end)
{
    if (queries)
        slice_seeing(s, begin, end);
    else
        slice_seen(s, begin, end);
}

// Number of (query, key) pairs that the mask admits. Closed form, no loop over rows.
int64_t slice_pairs(const struct slice *s);

#endif
