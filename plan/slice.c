// SPDX-License-Identifier: Apache-2.0
#include "plan/slice.h"

#include "plan/bias.h"

// Sum of max(0, i) over the n consecutive integers from `first`.
static int64_t ramp_sum(int64_t first, int64_t n)
{
    int64_t last = first + n; // one behind
    int64_t to_last = last > 0 ? last * (last - 1) / 2 : 0;
    int64_t to_first = first > 0 ? first * (first - 1) / 2 : 0;
    return to_last - to_first;
}

// Sum of min(max(i, 0), limit) over the n consecutive integers from `first`.
static int64_t clamp_sum(int64_t first, int64_t n, int64_t limit)
{
    return ramp_sum(first, n) - ramp_sum(first - limit, n);
}

int64_t slice_pairs(const struct slice *s)
{
    bool left_bound = s->left < SLICE_UNBOUNDED, right_bound = s->right < SLICE_UNBOUNDED;
    if (left_bound && right_bound && s->left + s->right < 0)
        return 0;
    // The keys before a bound grow by one from query to query: two clamped ramps.
    int64_t before_right = right_bound ? clamp_sum(s->right + 1 - s->offset, s->q_len, s->kv_len)
                                       : s->q_len * s->kv_len;
    int64_t before_left = left_bound ? clamp_sum(-s->left - s->offset, s->q_len, s->kv_len) : 0;
    return before_right - before_left;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// The span at *i together with those behind it that go on where it ends, in the sequence and in
// memory; *i moves behind the last of them.
static struct span span_run(const struct span *spans, int count, int64_t row_step,
                            int64_t bias_step, int *i)
{
    struct span run = spans[(*i)++];
    for (; *i < count; (*i)++) {
        const struct span *next = &spans[*i];
        if (next->sequence != run.sequence || next->position != run.position + run.len ||
            next->row != run.row + run.len * row_step ||
            next->bias_row != run.bias_row + run.len * bias_step)
            break;
        run.len += next->len;
    }
    return run;
}

// Takes queries off both ends that see no key, then keys that no query sees. A bound that hides
// nothing any more is lifted.
static void trim(struct slice *s, int64_t row_step, int64_t bias_step)
{
    int64_t q_begin = max64(0, s->offset - s->right);
    int64_t q_end = min64(s->q_len, s->kv_len + s->offset + s->left);
    s->q_row += q_begin * row_step;
    s->bias_row += q_begin * bias_step;
    s->q_len = max64(0, q_end - q_begin);
    s->offset -= q_begin;

    int64_t kv_begin = max64(0, -s->offset - s->left);
    int64_t kv_end = min64(s->kv_len, s->q_len - s->offset + s->right);
    s->kv_row += kv_begin * row_step;
    s->bias_column += kv_begin;
    s->kv_len = max64(0, kv_end - kv_begin);
    s->offset += kv_begin;

    if (s->q_len - 1 - s->offset <= s->left)
        s->left = SLICE_UNBOUNDED;
    if (s->kv_len - 1 + s->offset <= s->right)
        s->right = SLICE_UNBOUNDED;
}

static bool unmasked(const struct slice *s)
{
    return s->left >= SLICE_UNBOUNDED && s->right >= SLICE_UNBOUNDED;
}

// Rules most out at the price of two comparisons: with many chunks there are many slices to ask.
static bool may_merge(const struct slice *a, const struct slice *b)
{
    return a->q_row == b->q_row || a->kv_row == b->kv_row;
}

// Extends `a` by `b` where both together are one rectangle without a mask.
static bool merge(struct slice *a, const struct slice *b, int64_t row_step)
{
    if (!unmasked(a) || !unmasked(b))
        return false;
    bool same_q = a->q_row == b->q_row && a->q_len == b->q_len;
    bool same_kv = a->kv_row == b->kv_row && a->kv_len == b->kv_len;
    if (same_q && b->kv_row == a->kv_row + a->kv_len * row_step)
        a->kv_len += b->kv_len;
    else if (same_kv && b->q_row == a->q_row + a->q_len * row_step)
        a->q_len += b->q_len;
    else
        return false;
    return true;
}

// Adds a slice of the sequence that began at slices[first]. Returns the new count. A merged slice
// may fit to another one, so it is taken out and added again.
static int add(struct slice *slices, int first, int count, struct slice s, int64_t row_step)
{
    for (int i = first; i < count && unmasked(&s); i++) {
        if (!may_merge(&slices[i], &s))
            continue;
        struct slice merged = slices[i];
        if (!merge(&merged, &s, row_step))
            continue;
        for (int k = i; k + 1 < count; k++)
            slices[k] = slices[k + 1];
        count--;
        s = merged;
        i = first - 1;
    }
    slices[count] = s;
    return count + 1;
}

static struct slice rectangle(const struct cp_case *c, const struct span *q, const struct span *kv,
                              int64_t kv_row_base)
{
    struct case_band band = case_band(c, q->sequence);
    return (struct slice){.q_row = q->row,
                          .q_len = q->len,
                          .kv_row = kv_row_base + kv->row,
                          .kv_len = kv->len,
                          .offset = kv->position - q->position + band.shift,
                          .left = band.left,
                          .right = band.right,
                          .bias_row = q->bias_row,
                          .bias_column = kv->position};
}

int slice_build(const struct cp_case *c, const struct span *q, int q_count, const struct span *kv,
                int kv_count, int64_t kv_row_base, struct slice *slices)
{
    int64_t row_step = shard_row_step(c), bias_step = bias_row_step(c);
    bool biased = c->bias != BIAS_NONE;
    int count = 0, first = 0, kv_first = 0; // first: of the current sequence
    int32_t sequence = -1;
    for (int i = 0; i < q_count;) {
        struct span queries = span_run(q, q_count, row_step, bias_step, &i);
        if (queries.sequence != sequence)
            first = count;
        sequence = queries.sequence;
        while (kv_first < kv_count && kv[kv_first].sequence < sequence)
            kv_first++;
        for (int k = kv_first; k < kv_count && kv[k].sequence == sequence;) {
            struct span keys = span_run(kv, kv_count, row_step, 0, &k);
            struct slice s = rectangle(c, &queries, &keys, kv_row_base);
            trim(&s, row_step, bias_step);
            if (s.q_len == 0 || s.kv_len == 0)
                continue;
            if (biased) // what is merged need not be consecutive in the bias
                slices[count++] = s;
            else
                count = add(slices, first, count, s, row_step);
        }
    }
    return count;
}
