// SPDX-License-Identifier: Apache-2.0
#include "plan/tiling.h"

#include <string.h>

#include "plan/bias.h"

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Joins the span at *i with the following spans that continue it in the sequence, in memory and in
// the bias. Moves *i behind the last of them.
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

// Removes queries at both ends that see no key, then keys that no query sees. Then removes each
// bound of the mask that hides nothing.
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

// The slices of one sequence under construction. Spans come in the order of memory, keys fastest,
// so merging needs no search: the left neighbour is the last slice, and the upper neighbour is the
// slice of the previous queries that begins at the same span of keys.
struct tiling {
    struct slice *slices;
    int count, last_begin; // last_begin: the span of keys at which the last slice begins
    int64_t row_step;
    size_t keys; // used bytes of `above` and `here`
    // For each span of keys, the index of the slice that begins there, of the previous queries and
    // of the current ones; -1: none.
    int above[2 * WORLD_SIZE_MAX], here[2 * WORLD_SIZE_MAX];
};

// Each joins *s with its neighbour if both together are a rectangle without a mask.
static bool merge_above(struct tiling *t, int begin, struct slice *s)
{
    struct slice *a = t->above[begin] >= 0 ? &t->slices[t->above[begin]] : NULL;
    if (!a || !unmasked(a) || a->kv_row != s->kv_row || a->kv_len != s->kv_len ||
        s->q_row != a->q_row + a->q_len * t->row_step)
        return false;
    struct slice merged = *a;
    merged.q_len += s->q_len;
    *s = merged;
    a->q_len = 0; // tiling_end() removes it
    t->above[begin] = -1;
    return true;
}

static bool merge_left(struct tiling *t, int *begin, struct slice *s)
{
    const struct slice *a = t->count > 0 ? &t->slices[t->count - 1] : NULL;
    if (!a || !unmasked(a) || a->q_row != s->q_row || a->q_len != s->q_len ||
        s->kv_row != a->kv_row + a->kv_len * t->row_step)
        return false;
    struct slice merged = *a;
    merged.kv_len += s->kv_len;
    *s = merged;
    *begin = t->last_begin;
    t->count--;
    return true;
}

static void tiling_begin(struct tiling *t, struct slice *slices, int64_t row_step, int keys)
{
    t->slices = slices;
    t->count = 0;
    t->row_step = row_step;
    t->keys = (size_t)keys * sizeof t->here[0];
    memset(t->here, -1, t->keys);
}

static void tiling_next_queries(struct tiling *t)
{
    memcpy(t->above, t->here, t->keys);
    memset(t->here, -1, t->keys);
}

// Adds a slice, merged with its neighbours if `merges` and possible. `begin`: the span at which its
// keys begin.
static void tiling_add(struct tiling *t, int begin, struct slice s, bool merges)
{
    while (merges && unmasked(&s) && (merge_above(t, begin, &s) || merge_left(t, &begin, &s)))
        ;
    t->here[begin] = t->count;
    t->last_begin = begin;
    t->slices[t->count++] = s;
}

// Returns the number of slices.
static int tiling_end(struct tiling *t)
{
    int kept = 0;
    for (int i = 0; i < t->count; i++)
        if (t->slices[i].q_len > 0)
            t->slices[kept++] = t->slices[i];
    return kept;
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

// The spans [begin, end) of one sequence.
struct spans {
    const struct span *list;
    int begin, end;
};

static struct spans spans_of(const struct span *list, int count, int begin)
{
    int end = begin;
    while (end < count && list[end].sequence == list[begin].sequence)
        end++;
    return (struct spans){list, begin, end};
}

static int sequence_slices(const struct cp_case *c, struct spans q, struct spans kv,
                           int64_t kv_row_base, struct slice *slices)
{
    int64_t row_step = shard_row_step(c), bias_step = bias_row_step(c);
    struct tiling t;
    tiling_begin(&t, slices, row_step, kv.end - kv.begin);
    for (int i = q.begin; i < q.end;) {
        struct span queries = span_run(q.list, q.end, row_step, bias_step, &i);
        tiling_next_queries(&t);
        for (int k = kv.begin; k < kv.end;) {
            int begin = k - kv.begin;
            struct span keys = span_run(kv.list, kv.end, row_step, 0, &k);
            struct slice s = rectangle(c, &queries, &keys, kv_row_base);
            trim(&s, row_step, bias_step);
            if (s.q_len > 0 && s.kv_len > 0) // adjacent slices need not be adjacent in a bias
                tiling_add(&t, begin, s, c->bias == BIAS_NONE);
        }
    }
    return tiling_end(&t);
}

int tiling_build(const struct cp_case *c, const struct span *q, int q_count, const struct span *kv,
                 int kv_count, int64_t kv_row_base, struct slice *slices)
{
    int count = 0, first = 0; // first: span of the sequence's keys
    for (int i = 0; i < q_count;) {
        struct spans queries = spans_of(q, q_count, i);
        while (first < kv_count && kv[first].sequence < q[i].sequence)
            first++;
        i = queries.end;
        if (first < kv_count && kv[first].sequence == q[queries.begin].sequence)
            count += sequence_slices(c, queries, spans_of(kv, kv_count, first), kv_row_base,
                                     slices + count);
    }
    return count;
}
