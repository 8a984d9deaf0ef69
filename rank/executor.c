// SPDX-License-Identifier: Apache-2.0
#include "rank/executor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/fault.h"
#include "rank/operations.h"

enum move_kind { MOVE_RUN, MOVE_START, MOVE_PROGRESS };

// A possible next step: run a compute operation, start an exchange, or progress the running one.
struct move {
    enum move_kind kind;
    int32_t op;
};

struct executor {
    const struct execution *e;
    const struct plan *plan;
    struct operations operations;
    struct timings *timings;
    int32_t head[PLAN_STREAMS]; // next operation of each stream; op_count: none is left
    bool *done;                 // [op_count]
    struct message *messages;   // of the running exchange
    char *staging;              // packed copies of its regions in several pieces
    int32_t exchanging;         // running exchange, or -1
    uint64_t exchange_start_ns;
    int32_t forward_left; // number of unfinished forward operations
    uint64_t random;      // state of the random numbers of an exploration; 0: plan order
    int compute_eighths;  // exploration: eighths of the choices that prefer compute
};

static void *at(const struct executor *x, struct region region)
{
    return region_memory(x->e->buffers, &region);
}

// ---- progress ----

static int report_phase(const struct op *op)
{
    return op->phase == PHASE_FORWARD ? REPORT_FORWARD : REPORT_BACKWARD;
}

static void progress_note(const struct executor *x, const struct op *op, int waiting_for)
{
    progress_store(x->e->progress, (struct progress_view){.job = (uint32_t)x->e->job,
                                                          .phase = report_phase(op),
                                                          .step = op->step,
                                                          .waiting_for = waiting_for});
}

// ---- times ----

static struct op_time *op_time(const struct executor *x, int32_t index)
{
    struct op_times *times = x->e->op_times;
    return times && index < times->count ? &times->list[index] : NULL;
}

static void op_times_begin(const struct executor *x, uint64_t now_ns)
{
    struct op_times *times = x->e->op_times;
    if (!times)
        return;
    times->begin_ns = now_ns;
    times->count = x->plan->op_count < OP_TIMES_MAX ? x->plan->op_count : OP_TIMES_MAX;
}

static void op_started(const struct executor *x, int32_t index)
{
    struct op_time *time = op_time(x, index);
    if (time)
        time->start_ns = clock_now_ns() - x->e->op_times->begin_ns;
}

static void op_finished(struct executor *x, int32_t index)
{
    const struct op *op = &x->plan->ops[index];
    struct op_time *time = op_time(x, index);
    if (time)
        time->end_ns = clock_now_ns() - x->e->op_times->begin_ns;
    x->done[index] = true;
    int32_t next = index + 1;
    while (next < x->plan->op_count && x->plan->ops[next].stream != op->stream)
        next++;
    x->head[op->stream] = next;
    if (op->phase == PHASE_FORWARD && --x->forward_left == 0)
        x->timings->forward_ns = clock_now_ns();
}

// ---- exchanges ----

// The tag of an exchange: the same on all ranks. Exchanges of one step share a tag; only their
// order and sizes differ. Otherwise a tag is unique in the life of a pool.
static uint64_t exchange_tag(const struct executor *x, const struct op *op)
{
    return x->e->job << 24 | (uint64_t)report_phase(op) << 16 | (uint64_t)(op->step & 0xffff);
}

// Copies the pieces of a region to contiguous memory; unpack() does the reverse.
static void pack(const struct executor *x, struct region r, char *packed)
{
    char *memory = at(x, r);
    for (int64_t i = 0; i < region_pieces(&r); i++)
        memcpy(packed + i * r.bytes, memory + (region_piece(&r, i) - r.offset), (size_t)r.bytes);
}

static void unpack(const struct executor *x, struct region r, const char *packed)
{
    char *memory = at(x, r);
    for (int64_t i = 0; i < region_pieces(&r); i++)
        memcpy(memory + (region_piece(&r, i) - r.offset), packed + i * r.bytes, (size_t)r.bytes);
}

// Address of a region during an exchange: in place if it is in one piece, else the next free part
// of the staging memory. *staged: bytes used of the staging memory.
static void *travelling(const struct executor *x, const struct region *r, int64_t *staged)
{
    if (r->rows <= 1)
        return at(x, *r);
    char *place = x->staging + *staged;
    *staged += region_total(r);
    return place;
}

static void messages_make(struct executor *x, const struct op *op)
{
    const struct transfer *transfers = x->plan->transfers + op->transfer_first;
    int64_t staged = 0;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &transfers[i];
        void *send = travelling(x, &t->send, &staged);
        void *receive = travelling(x, &t->receive, &staged);
        x->messages[i] = (struct message){.peer = t->peer,
                                          .send = send,
                                          .send_bytes = (size_t)region_total(&t->send),
                                          .receive = receive,
                                          .receive_bytes = (size_t)region_total(&t->receive)};
        if (t->send.rows > 1)
            pack(x, t->send, send);
        // In an exploration the receive region holds NaN until the bytes arrive, so that reading
        // before arrival is noticed.
        if (!x->random || t->receive.bytes == 0)
            continue;
        memset(receive, 0xff, x->messages[i].receive_bytes);
        if (t->receive.rows > 1)
            unpack(x, t->receive, receive);
    }
}

static void messages_deliver(const struct executor *x, const struct op *op)
{
    const struct transfer *transfers = x->plan->transfers + op->transfer_first;
    for (int32_t i = 0; i < op->transfer_count; i++)
        if (transfers[i].receive.rows > 1)
            unpack(x, transfers[i].receive, x->messages[i].receive);
}

// Bytes of staging memory that the largest exchange needs.
static int64_t staging_bytes(const struct plan *plan)
{
    int64_t most = 0;
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        int64_t bytes = 0;
        for (int32_t k = 0; op->kind == OP_EXCHANGE && k < op->transfer_count; k++) {
            const struct transfer *t = &plan->transfers[op->transfer_first + k];
            bytes += t->send.rows > 1 ? region_total(&t->send) : 0;
            bytes += t->receive.rows > 1 ? region_total(&t->receive) : 0;
        }
        if (bytes > most)
            most = bytes;
    }
    return most;
}

static enum status exchange_start(struct executor *x, int32_t index, struct error *error)
{
    const struct op *op = &x->plan->ops[index];
    op_started(x, index);
    messages_make(x, op);
    progress_note(x, op, -1);
    x->exchange_start_ns = clock_now_ns();
    enum status status = x->e->transport->ops->start(x->e->transport, exchange_tag(x, op),
                                                     x->messages, op->transfer_count, error);
    if (status == STATUS_OK)
        x->exchanging = index;
    FAULT(EXCHANGE);
    return status;
}

// Moves bytes of the running exchange, and finishes it if it is complete. With `wait` no other step
// is possible: waits for the peers, and counts the time as exposed.
static enum status exchange_progress(struct executor *x, bool wait, struct error *error)
{
    struct transport *t = x->e->transport;
    const struct op *op = &x->plan->ops[x->exchanging];
    int done = 0;
    uint64_t start_ns = wait ? clock_now_ns() : 0;
    enum status status = t->ops->progress(t, 0, &done, error);
    if (status == STATUS_OK && wait && !done) {
        progress_note(x, op, t->ops->waiting_for(t));
        status = t->ops->progress(t, -1, &done, error);
    }
    if (wait)
        x->timings->exposed_ns += clock_now_ns() - start_ns;
    if (status != STATUS_OK || !done)
        return status;
    messages_deliver(x, op);
    x->timings->exchange_ns += clock_now_ns() - x->exchange_start_ns;
    int32_t index = x->exchanging;
    x->exchanging = -1;
    op_finished(x, index);
    return STATUS_OK;
}

// ---- the choice ----

static bool waits_done(const struct executor *x, const struct op *op)
{
    for (int32_t i = 0; i < op->wait_count; i++)
        if (!x->done[x->plan->waits[op->wait_first + i]])
            return false;
    return true;
}

// Lists the possible steps, at most one for each stream. Returns their number.
static int moves_find(const struct executor *x, struct move moves[PLAN_STREAMS])
{
    int count = 0;
    for (int stream = 0; stream < PLAN_STREAMS; stream++) {
        int32_t index = x->head[stream];
        if (index == x->plan->op_count)
            continue;
        const struct op *op = &x->plan->ops[index];
        if (index == x->exchanging)
            moves[count++] = (struct move){MOVE_PROGRESS, index};
        else if (!waits_done(x, op))
            continue;
        else if (op->kind != OP_EXCHANGE)
            moves[count++] = (struct move){MOVE_RUN, index};
        else if (x->exchanging < 0)
            moves[count++] = (struct move){MOVE_START, index};
    }
    return count;
}

// xorshift64*: its state is one number.
static uint64_t random_next(struct executor *x)
{
    x->random ^= x->random >> 12;
    x->random ^= x->random << 25;
    x->random ^= x->random >> 27;
    return x->random * UINT64_C(0x2545f4914f6cdd1d) >> 32;
}

// Chooses the next step: its index.
static int move_choose(struct executor *x, const struct move *moves, int count)
{
    if (x->random) {
        // The seed decides whether compute is preferred, exchanges are, or neither. An even choice
        // alone would hardly ever let one stream run far ahead.
        int compute_first = (int)(random_next(x) % 8) < x->compute_eighths;
        for (int i = 0; i < count; i++)
            if ((moves[i].kind == MOVE_RUN) == compute_first)
                return i;
        return 0;
    }
    for (int i = 0; i < count; i++)
        if (moves[i].kind == MOVE_START)
            return i;
    for (int i = 0; i < count; i++)
        if (moves[i].kind == MOVE_RUN)
            return i;
    return 0;
}

// Takes a step. `only`: no other step is possible.
static enum status move_make(struct executor *x, struct move move, bool only, struct error *error)
{
    switch (move.kind) {
    case MOVE_START:
        return exchange_start(x, move.op, error);
    case MOVE_PROGRESS:
        return exchange_progress(x, only, error);
    case MOVE_RUN:
        break;
    }
    const struct op *op = &x->plan->ops[move.op];
    progress_note(x, op, -1);
    op_started(x, move.op);
    // NOLINTNEXTLINE(bugprone-branch-clone): FAULT() is nothing in most builds.
    if (op->phase == PHASE_FORWARD)
        FAULT(FORWARD);
    else
        FAULT(BACKWARD);
    enum status status = operations_run(&x->operations, op, error);
    if (status == STATUS_OK)
        op_finished(x, move.op);
    return status;
}

static bool finished(const struct executor *x)
{
    for (int stream = 0; stream < PLAN_STREAMS; stream++)
        if (x->head[stream] < x->plan->op_count)
            return false;
    return true;
}

static enum status step(struct executor *x, struct error *error)
{
    struct move moves[PLAN_STREAMS];
    int count = moves_find(x, moves);
    if (count == 0)
        return error_set(error, STATUS_INTERNAL,
                         "the plan of rank %d is stuck: neither operation %d nor %d can start",
                         x->plan->rank, x->head[STREAM_COMPUTE], x->head[STREAM_COMM]);
    int chosen = move_choose(x, moves, count);
    // In plan order, bytes are moved before each compute operation: if the exchange completes, a
    // better step may have become possible.
    if (!x->random && x->exchanging >= 0 && moves[chosen].kind == MOVE_RUN) {
        enum status status = exchange_progress(x, false, error);
        if (status != STATUS_OK || x->exchanging < 0)
            return status;
    }
    return move_make(x, moves[chosen], count == 1, error);
}

// ---- a whole plan ----

static void executor_init(struct executor *x)
{
    const struct plan *plan = x->plan;
    const struct cp_case *c = &plan->c;
    x->exchanging = -1;
    for (int stream = 0; stream < PLAN_STREAMS; stream++)
        x->head[stream] = plan->op_count;
    for (int32_t i = plan->op_count - 1; i >= 0; i--) {
        x->head[plan->ops[i].stream] = i;
        x->forward_left += plan->ops[i].phase == PHASE_FORWARD;
    }
    if (c->explore_seed) {
        // Each rank explores its own order.
        x->random = c->explore_seed ^ (uint64_t)(plan->rank + 1) * UINT64_C(0x9e3779b97f4a7c15);
        x->random += x->random == 0;
        random_next(x);
        x->compute_eighths = (int)(1 + 3 * (random_next(x) % 3));
    }
}

static enum status executor_loop(struct executor *x, struct error *error)
{
    uint64_t start_ns = clock_now_ns();
    x->timings->forward_ns = start_ns;
    op_times_begin(x, start_ns);
    bool has_backward = x->forward_left < x->plan->op_count;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !finished(x))
        status = step(x, error);
    if (!has_backward)
        x->timings->forward_ns = clock_now_ns();
    x->timings->backward_ns = has_backward ? clock_now_ns() - x->timings->forward_ns : 0;
    x->timings->forward_ns -= start_ns;
    return status;
}

enum status executor_run(const struct execution *e, struct timings *timings, struct error *error)
{
    struct executor x = {
        .e = e,
        .plan = e->plan,
        .operations = {e->plan, e->buffers, e->ops, e->backend, e->attends, e->scratch},
        .timings = timings};
    size_t op_count = (size_t)e->plan->op_count, transfer_count = (size_t)e->plan->transfer_count;
    x.done = calloc(op_count + 1, sizeof(*x.done));
    x.messages = calloc(transfer_count + 1, sizeof(*x.messages));
    x.staging = malloc((size_t)staging_bytes(e->plan) + 1);
    enum status status;
    if (x.done && x.messages && x.staging) {
        executor_init(&x);
        if (e->attends)
            attends_begin(e->attends);
        status = executor_loop(&x, error);
    } else {
        status =
            error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu operations", op_count);
    }
    free(x.done);
    free(x.messages);
    free(x.staging);
    return status;
}
