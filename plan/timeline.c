// SPDX-License-Identifier: Apache-2.0
#include "plan/timeline.h"

#include <stdlib.h>

// The state of one rank in the simulated run.
struct player {
    const struct plan *plan;
    struct timeline_span *spans;
    int32_t next[PLAN_STREAMS];   // next operation of the stream
    int32_t before[PLAN_STREAMS]; // the one before it; -1: none
    bool posted;                  // its next exchange is posted
    int32_t *exchanges;           // operation of each exchange, by number
    int32_t exchange_count;
    int32_t exchange; // number of its next exchange
};

struct play {
    int world_size;
    struct player *players;
    const struct timeline_rates *rates;
    struct timeline *timeline;
};

void timeline_rates_init(struct timeline_rates *rates)
{
    *rates = (struct timeline_rates){.flops = 400e12,
                                     .memory_bytes = 3e12,
                                     .link_bytes = 300e9,
                                     .node_bytes = 50e9,
                                     .overhead_s = 3e-6};
}

// ---- work -------------------------------------------------------------------------------------

int32_t timeline_exchange(const struct plan *plan, int32_t number)
{
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_EXCHANGE && number-- == 0)
            return i;
    return -1;
}

int64_t timeline_bytes(const struct op *op)
{
    int64_t bytes = 0;
    for (int i = 0; i < OPERANDS_MAX; i++) {
        enum access access = op_access(op->kind, i);
        int64_t once = access == ACCESS_NONE ? 0 : region_total(&op->operand[i]);
        bytes += access == ACCESS_READ_WRITE ? 2 * once : once;
    }
    return bytes;
}

void timeline_traffic(const struct plan *plan, const struct op *op, int64_t *sent,
                      int64_t *received)
{
    *sent = *received = 0;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        if (t->peer == plan->rank)
            continue;
        *sent += region_total(&t->send);
        *received += region_total(&t->receive);
    }
}

void timeline_traffic_far(const struct plan *plan, const struct op *op, int64_t *sent,
                          int64_t *received)
{
    *sent = *received = 0;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        if (case_node(&plan->c, t->peer) == case_node(&plan->c, plan->rank))
            continue;
        *sent += region_total(&t->send);
        *received += region_total(&t->receive);
    }
}

// Seconds for the transfers of an exchange. The links inside a host and between hosts work at the
// same time, each in both directions at once.
static double moving(const struct plan *plan, const struct op *op,
                     const struct timeline_rates *rates)
{
    int64_t sent, received, far_sent, far_received;
    timeline_traffic(plan, op, &sent, &received);
    timeline_traffic_far(plan, op, &far_sent, &far_received);
    sent -= far_sent;
    received -= far_received;
    double near_s = (double)(sent > received ? sent : received) / rates->link_bytes;
    int64_t far = far_sent > far_received ? far_sent : far_received;
    double far_s = far > 0 ? (double)far / rates->node_bytes : 0;
    return near_s > far_s ? near_s : far_s;
}

static int64_t copied(const struct plan *plan, const struct op *op)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        if (t->peer == plan->rank)
            bytes += region_total(&t->send) + region_total(&t->receive);
    }
    return bytes;
}

// Seconds of an operation. The two parts overlap: transfers and local copies of an exchange,
// computation and memory traffic of any other operation.
static double duration(const struct plan *plan, const struct op *op,
                       const struct timeline_rates *rates)
{
    double first, second;
    if (op->kind == OP_EXCHANGE) {
        if (op->transfer_count == 0)
            return 0;
        first = moving(plan, op, rates);
        second = (double)copied(plan, op) / rates->memory_bytes;
    } else {
        first = op_flops(plan, op) / rates->flops;
        second = (double)(timeline_bytes(op) + copied(plan, op)) / rates->memory_bytes;
    }
    return rates->overhead_s + (first > second ? first : second);
}

// ---- one operation ----------------------------------------------------------------------------

static void keep_from(const struct player *p, struct timeline_span *span, int32_t other)
{
    if (other < 0 || p->spans[other].end <= span->start)
        return;
    span->start = p->spans[other].end;
    span->after = other;
}

// Finds when the operation can start. False: an operation that it waits for has not been played.
static bool find_start(const struct player *p, const struct op *op, struct timeline_span *span)
{
    *span = (struct timeline_span){.after = -1, .last = p->plan->rank};
    for (int32_t i = 0; i < op->wait_count; i++)
        if (p->spans[p->plan->waits[op->wait_first + i]].end < 0)
            return false;
    keep_from(p, span, p->before[op->stream]);
    for (int32_t i = 0; i < op->wait_count; i++)
        keep_from(p, span, p->plan->waits[op->wait_first + i]);
    return true;
}

// The peer's exchange that matches the one that `p` has posted. NULL: not posted yet.
static const struct timeline_span *meet(const struct play *play, const struct player *p, int peer)
{
    const struct player *other = &play->players[peer];
    bool posted =
        p->exchange < other->exchange || (p->exchange == other->exchange && other->posted);
    if (!posted || p->exchange >= other->exchange_count)
        return NULL;
    return &other->spans[other->exchanges[p->exchange]];
}

// Finds when the bytes begin to move. False: a peer has not posted its part.
static bool find_moves(const struct play *play, const struct player *p, const struct op *op,
                       struct timeline_span *span)
{
    double moves = span->start;
    int32_t last = p->plan->rank;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        int peer = p->plan->transfers[op->transfer_first + i].peer;
        const struct timeline_span *other = meet(play, p, peer);
        if (!other)
            return false;
        if (other->start > moves) {
            moves = other->start;
            last = peer;
        }
    }
    span->moves = moves;
    span->last = last;
    return true;
}

static void add_up(struct timeline_rank *rank, const struct plan *plan, const struct op *op,
                   const struct timeline_span *span)
{
    int64_t sent, received;
    timeline_traffic(plan, op, &sent, &received);
    rank->sent += sent;
    rank->flops += op_flops(plan, op);
    rank->busy[op->stream] += span->end - span->moves;
    if (span->end > rank->end)
        rank->end = span->end;
    if (op->phase == PHASE_FORWARD && span->end > rank->forward_end)
        rank->forward_end = span->end;
}

static int32_t next_of_stream(const struct plan *plan, int32_t from, enum plan_stream stream)
{
    while (from < plan->op_count && plan->ops[from].stream != stream)
        from++;
    return from;
}

static void finish(struct play *play, struct player *p, const struct op *op,
                   struct timeline_span *span)
{
    int32_t index = p->next[op->stream];
    span->end = span->moves + duration(p->plan, op, play->rates);
    add_up(&play->timeline->ranks[p->plan->rank], p->plan, op, span);
    p->before[op->stream] = index;
    p->next[op->stream] = next_of_stream(p->plan, index + 1, op->stream);
    if (op->kind == OP_EXCHANGE) {
        p->exchange++;
        p->posted = false;
    }
}

// Plays the next operation of a stream. False: there is none, or it cannot be played yet.
static bool play_next(struct play *play, struct player *p, enum plan_stream stream)
{
    int32_t index = p->next[stream];
    if (index == p->plan->op_count)
        return false;
    const struct op *op = &p->plan->ops[index];
    struct timeline_span span = p->spans[index];
    bool exchange = op->kind == OP_EXCHANGE;
    if (!exchange || !p->posted) {
        if (!find_start(p, op, &span))
            return false;
        span.moves = span.start;
        span.end = -1;
        p->posted = p->posted || exchange;
        p->spans[index] = span;
    }
    if (exchange && !find_moves(play, p, op, &span))
        return false;
    finish(play, p, op, &span);
    p->spans[index] = span;
    return true;
}

// ---- all operations ---------------------------------------------------------------------------

static enum status no_memory(struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for the timeline");
}

static enum status player_init(struct player *p, const struct plan *plan,
                               struct timeline_rank *rank, struct error *error)
{
    size_t count = (size_t)plan->op_count + 1;
    p->plan = plan;
    p->spans = rank->spans = calloc(count, sizeof(*rank->spans));
    p->exchanges = calloc(count, sizeof(*p->exchanges));
    if (!p->spans || !p->exchanges)
        return no_memory(error);
    for (int32_t i = 0; i < plan->op_count; i++) {
        p->spans[i].end = -1;
        if (plan->ops[i].kind == OP_EXCHANGE)
            p->exchanges[p->exchange_count++] = i;
    }
    for (int stream = 0; stream < PLAN_STREAMS; stream++) {
        p->before[stream] = -1;
        p->next[stream] = next_of_stream(plan, 0, (enum plan_stream)stream);
    }
    return STATUS_OK;
}

static enum status play_all(struct play *play, struct error *error)
{
    struct timeline *timeline = play->timeline;
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < play->world_size; r++)
            for (int stream = 0; stream < PLAN_STREAMS; stream++)
                while (play_next(play, &play->players[r], (enum plan_stream)stream))
                    more = true;
    }
    for (int r = 0; r < play->world_size; r++) {
        const struct player *p = &play->players[r];
        for (int stream = 0; stream < PLAN_STREAMS; stream++)
            if (p->next[stream] < p->plan->op_count)
                return error_set(error, STATUS_INTERNAL,
                                 "operation %d of rank %d waits for an operation that never ends",
                                 p->next[stream], r);
        if (timeline->ranks[r].end > timeline->end)
            timeline->end = timeline->ranks[r].end;
    }
    return STATUS_OK;
}

enum status timeline_create(struct plan *const *plans, int world_size,
                            const struct timeline_rates *rates, struct timeline **timeline,
                            struct error *error)
{
    size_t count = (size_t)world_size;
    struct play play = {.world_size = world_size, .rates = rates};
    play.timeline = calloc(1, sizeof(*play.timeline) + count * sizeof(struct timeline_rank));
    play.players = calloc(count, sizeof(*play.players));
    if (!play.timeline || !play.players) {
        free(play.timeline);
        free(play.players);
        return no_memory(error);
    }
    play.timeline->world_size = world_size;
    enum status status = STATUS_OK;
    for (int r = 0; r < play.world_size && !status; r++)
        status = player_init(&play.players[r], plans[r], &play.timeline->ranks[r], error);
    if (!status)
        status = play_all(&play, error);
    for (int r = 0; r < world_size; r++)
        free(play.players[r].exchanges);
    free(play.players);
    if (status)
        timeline_destroy(play.timeline);
    else
        *timeline = play.timeline;
    return status;
}

void timeline_destroy(struct timeline *timeline)
{
    if (!timeline)
        return;
    for (int r = 0; r < timeline->world_size; r++)
        free(timeline->ranks[r].spans);
    free(timeline);
}
