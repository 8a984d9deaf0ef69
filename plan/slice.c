// SPDX-License-Identifier: Apache-2.0
#include "plan/slice.h"

// Sum of max(0, i) over the n consecutive integers from `first`.
static int64_t ramp_sum(int64_t first, int64_t n)
{
    int64_t last = first + n; // one past the end
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
    // From query to query the number of keys before a bound grows by one: two clamped ramps.
    int64_t before_right = right_bound ? clamp_sum(s->right + 1 - s->offset, s->q_len, s->kv_len)
                                       : s->q_len * s->kv_len;
    int64_t before_left = left_bound ? clamp_sum(-s->left - s->offset, s->q_len, s->kv_len) : 0;
    return before_right - before_left;
}

void slice_seeing(const struct slice *s, int64_t *begin, int64_t *end)
{
    bool left_bound = s->left < SLICE_UNBOUNDED, right_bound = s->right < SLICE_UNBOUNDED;
    int64_t first = right_bound ? s->offset - s->right : 0;
    int64_t last = left_bound ? s->kv_len + s->offset + s->left : s->q_len;
    *begin = first < 0 ? 0 : first;
    *end = last > s->q_len ? s->q_len : last;
    if (s->kv_len == 0 || (left_bound && right_bound && s->left + s->right < 0))
        *end = *begin;
}

void slice_seen(const struct slice *s, int64_t *begin, int64_t *end)
{
    const struct slice transposed = {.q_len = s->kv_len,
                                     .kv_len = s->q_len,
                                     .offset = -s->offset,
                                     .left = s->right,
                                     .right = s->left};
    slice_seeing(&transposed, begin, end);
}
