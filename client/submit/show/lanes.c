// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/lanes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/submit/outcome/text.h"

#define RANKS_SHOWN_MAX 3

static bool spans_equal(const struct timeline_span *a, const struct timeline_span *b,
                        double tolerance)
{
    return fabs(a->start - b->start) <= tolerance && fabs(a->moves - b->moves) <= tolerance &&
           fabs(a->end - b->end) <= tolerance;
}

static bool ranks_alike(struct plan *const *plans, const struct timeline *timeline, int a, int b)
{
    if (plans[a]->op_count != plans[b]->op_count)
        return false;
    for (int32_t i = 0; i < plans[a]->op_count; i++)
        if (plans[a]->ops[i].kind != plans[b]->ops[i].kind ||
            !spans_equal(&timeline->ranks[a].spans[i], &timeline->ranks[b].spans[i],
                         1e-6 * timeline->end))
            return false;
    return true;
}

// ---- the critical path ------------------------------------------------------------------------

static int rank_that_ends_last(const struct timeline *timeline)
{
    int last = 0;
    for (int r = 1; r < timeline->world_size; r++)
        if (timeline->ranks[r].end > timeline->ranks[last].end)
            last = r;
    return last;
}

static int32_t op_that_ends_last(const struct plan *plan, const struct timeline_rank *rank)
{
    int32_t last = -1;
    for (int32_t i = 0; i < plan->op_count; i++)
        if (last < 0 || rank->spans[i].end >= rank->spans[last].end)
            last = i;
    return last;
}

// How many exchanges a plan has before one of its operations.
static int32_t exchanges_before(const struct plan *plan, int32_t op)
{
    int32_t count = 0;
    for (int32_t i = 0; i < op; i++)
        count += plan->ops[i].kind == OP_EXCHANGE;
    return count;
}

// Goes from an exchange to the one of the peer that posted last, if that was later.
static void cross_exchange(struct plan *const *plans, const struct timeline *timeline, int *rank,
                           int32_t *op)
{
    const struct timeline_span *span = &timeline->ranks[*rank].spans[*op];
    if (plans[*rank]->ops[*op].kind != OP_EXCHANGE || span->moves <= span->start ||
        span->last == *rank)
        return;
    int32_t there = timeline_exchange(plans[span->last], exchanges_before(plans[*rank], *op));
    if (there < 0)
        return;
    *rank = span->last;
    *op = there;
}

static void mark_critical(struct lanes *lanes, struct plan *const *plans,
                          const struct timeline *timeline)
{
    int rank = rank_that_ends_last(timeline);
    int32_t op = op_that_ends_last(plans[rank], &timeline->ranks[rank]);
    memset(lanes->critical, 0, sizeof(lanes->critical));
    while (op >= 0) {
        cross_exchange(plans, timeline, &rank, &op);
        if (op < LANES_OPS_MAX)
            lanes->critical[lanes->row[rank]][op / 64] |= UINT64_C(1) << op % 64;
        op = timeline->ranks[rank].spans[op].after;
    }
}

bool lanes_is_critical(const struct lanes *lanes, int row, int32_t op)
{
    return op < LANES_OPS_MAX && (lanes->critical[row][op / 64] >> op % 64 & 1);
}

// ---- rows -------------------------------------------------------------------------------------

void lanes_init(struct lanes *lanes, struct plan *const *plans, const struct timeline *timeline,
                bool joined)
{
    lanes->rows = 0;
    for (int r = 0; r < timeline->world_size; r++) {
        int row = 0;
        while (row < lanes->rows && !(joined && ranks_alike(plans, timeline, lanes->first[row], r)))
            row++;
        if (row == lanes->rows) {
            lanes->first[row] = r;
            lanes->count[row] = 0;
            lanes->rows++;
        }
        lanes->row[r] = row;
        lanes->count[row]++;
    }
    mark_critical(lanes, plans, timeline);
}

void lanes_ranks(const struct lanes *lanes, int row, char *text, size_t size)
{
    int first = lanes->first[row], count = lanes->count[row], last = first, shown = 0;
    while (last + 1 < first + count && lanes->row[last + 1] == row)
        last++;
    text[0] = '\0';
    if (last == first + count - 1 && count > 1) {
        text_append(text, size, "%d-%d", first, last);
        return;
    }
    for (int r = first; shown < count && shown < RANKS_SHOWN_MAX; r++)
        if (lanes->row[r] == row)
            text_append(text, size, "%s%d", shown++ ? ", " : "", r);
    if (shown < count)
        text_append(text, size, " ...");
}

struct lanes_lost lanes_find_lost(struct plan *const *plans, const struct timeline *timeline)
{
    struct lanes_lost lost = {.rank = rank_that_ends_last(timeline), .exchange = -1};
    const struct plan *plan = plans[lost.rank];
    const struct timeline_span *spans = timeline->ranks[lost.rank].spans;
    double end = 0;
    for (int32_t i = 0; i < plan->op_count; i++) {
        int32_t after = spans[i].after;
        if (plan->ops[i].stream != STREAM_COMPUTE)
            continue;
        double gap = spans[i].start - end;
        end = spans[i].end;
        if (after < 0 || plan->ops[after].kind != OP_EXCHANGE || gap <= 0)
            continue;
        lost.total += gap;
        if (gap > lost.longest) {
            lost.longest = gap;
            lost.exchange = after;
        }
    }
    return lost;
}
