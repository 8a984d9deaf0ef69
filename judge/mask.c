// SPDX-License-Identifier: Apache-2.0
#include "judge/mask.h"

// Larger than every position, but sums with positions do not overflow.
#define FAR (INT64_C(1) << 60)

struct mask mask_of(const struct cp_case *c, int32_t sequence)
{
    struct mask m = {.queries = case_length(c, SIDE_Q, sequence),
                     .keys = case_length(c, SIDE_KV, sequence),
                     .low = -FAR,
                     .high = FAR};
    bool causal = c->mask == MASK_CAUSAL || c->mask == MASK_CAUSAL_BOTTOM_RIGHT;
    bool from_end = c->mask == MASK_CAUSAL_BOTTOM_RIGHT || c->mask == MASK_NONE_BOTTOM_RIGHT;
    int64_t diagonal = from_end ? m.keys - m.queries : 0;
    if (c->window_left != WINDOW_UNBOUNDED)
        m.low = diagonal - c->window_left;
    if (c->window_right != WINDOW_UNBOUNDED)
        m.high = diagonal + c->window_right;
    if (causal && m.high > diagonal)
        m.high = diagonal;
    return m;
}

// Positions first to last, limited to the length of the sequence.
static struct range within(int64_t first, int64_t last, int64_t length)
{
    struct range r = {first < 0 ? 0 : first, last >= length ? length : last + 1};
    if (r.begin >= r.end)
        r.begin = r.end = 0;
    return r;
}

struct range mask_keys(const struct mask *m, int64_t query)
{
    return within(query + m->low, query + m->high, m->keys);
}

struct range mask_queries(const struct mask *m, int64_t key)
{
    return within(key - m->high, key - m->low, m->queries);
}

struct range mask_keys_of(const struct mask *m, struct range queries)
{
    if (queries.begin >= queries.end)
        return (struct range){0, 0};
    return within(queries.begin + m->low, queries.end - 1 + m->high, m->keys);
}

struct range mask_queries_of(const struct mask *m, struct range keys)
{
    if (keys.begin >= keys.end)
        return (struct range){0, 0};
    return within(keys.begin - m->high, keys.end - 1 - m->low, m->queries);
}

double mask_pairs(const struct mask *m)
{
    double pairs = 0;
    for (int64_t query = 0; query < m->queries; query++) {
        struct range keys = mask_keys(m, query);
        pairs += (double)(keys.end - keys.begin);
    }
    return pairs;
}
