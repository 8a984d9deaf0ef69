// SPDX-License-Identifier: Apache-2.0
// Errors in messages between ranks.
#include <string.h>

#include "tests/mutations/changes.h"
#include "tests/mutations/edit.h"

static struct transfer *transfers_of(struct plan *plan, const struct op *op)
{
    return plan->transfers + op->transfer_first;
}

// ---- the ring ----

static bool is_last_hop(const struct plan *plan, const struct op *op)
{
    return edit_is_ring(plan) && op->kind == OP_EXCHANGE && op->phase == PHASE_BACKWARD &&
           op->step + 1 == edit_ring_size(plan) && op->step > 0;
}

static bool carries_gradients(const struct plan *plan, const struct transfer *t)
{
    return edit_begins(plan, &t->send, "dkv_part") || edit_begins(plan, &t->receive, "dkv_arrived");
}

// In the last hop of the ring, the gradients stay on the rank.
bool dk_wrong_owner(struct plan *plan)
{
    int32_t hop = edit_find(plan, is_last_hop, 0);
    bool any = false;
    for (int32_t i = 0; hop >= 0 && i < plan->ops[hop].transfer_count; i++) {
        struct transfer *t = &transfers_of(plan, &plan->ops[hop])[i];
        if (!carries_gradients(plan, t))
            continue;
        t->peer = plan->rank;
        any = true;
    }
    return any;
}

// ---- all-gather ----

// Sends each part of dK and dV, except the first, from the memory of the part before it.
bool gather_wrong_owner(struct plan *plan)
{
    int32_t sent = -1;
    bool any = false;
    for (int32_t i = 0; i < plan->op_count && plan->c.comm == COMM_ALL_GATHER; i++) {
        const struct op *op = &plan->ops[i];
        for (int32_t k = 0; op->kind == OP_EXCHANGE && k < op->transfer_count; k++) {
            struct region *send = &transfers_of(plan, op)[k].send;
            if (!edit_begins(plan, send, "dkv_part"))
                continue;
            int32_t right = send->buffer;
            if (sent >= 0)
                send->buffer = sent;
            any = any || sent >= 0;
            sent = right;
        }
    }
    return any;
}

// ---- all-to-all ----

// Collects the transfers of a tensor in an all-to-all: those to other members are in the exchange,
// that to the rank itself is in the copy operation after it. Returns the size of the team; 0: the
// operation is no all-to-all of this tensor.
static int dealt(struct plan *plan, int32_t exchange, const char *name,
                 struct transfer *transfers[WORLD_SIZE_MAX])
{
    int size = team_size(&plan->c), count = 0;
    for (int32_t i = exchange; i < exchange + 2 && i < plan->op_count && size > 1; i++) {
        const struct op *op = &plan->ops[i];
        int most = i == exchange ? size - 1 : size;
        if (op->kind != (i == exchange ? OP_EXCHANGE : OP_COPY))
            return 0;
        for (int32_t k = 0; k < op->transfer_count && count < most; k++)
            if (edit_is(plan, &transfers_of(plan, op)[k].send, name))
                transfers[count++] = &transfers_of(plan, op)[k];
    }
    return count == size ? count : 0;
}

static void swap(struct region *a, struct region *b)
{
    struct region c = *a;
    *a = *b;
    *b = c;
}

static bool sends_turned(struct plan *plan, const char *name)
{
    struct transfer *transfers[WORLD_SIZE_MAX] = {NULL};
    bool any = false;
    for (int32_t i = 0; i < plan->op_count; i++) {
        int count = dealt(plan, i, name, transfers);
        for (int m = 1; m < count && transfers[m - 1] && transfers[m]; m++)
            swap(&transfers[m - 1]->send, &transfers[m]->send);
        any = any || count > 0;
    }
    return any;
}

bool a2a_wrong_heads(struct plan *plan)
{
    bool queries = sends_turned(plan, "q");
    return sends_turned(plan, "dout") || queries;
}

// Stores the results of each member in the place of the next member's.
static bool home_turned(struct plan *plan, const char *name)
{
    struct transfer *transfers[WORLD_SIZE_MAX] = {NULL};
    bool any = false;
    for (int32_t i = 0; i < plan->op_count; i++) {
        int count = dealt(plan, i, name, transfers);
        for (int m = 1; m < count && transfers[m - 1] && transfers[m]; m++)
            swap(&transfers[m - 1]->receive, &transfers[m]->receive);
        any = any || count > 0;
    }
    return any;
}

bool out_home_turned(struct plan *plan)
{
    return home_turned(plan, "out_team");
}

bool lse_home_turned(struct plan *plan)
{
    return home_turned(plan, "lse_team");
}

bool dq_home_turned(struct plan *plan)
{
    return home_turned(plan, "dq_team");
}

// ---- more errors in the ring ----

// Moves the transfers of an operation to `taken`. Returns their number.
static int take_transfers(struct plan *plan, struct op *op, struct transfer *taken)
{
    int count = op->transfer_count;
    for (int i = 0; i < count; i++)
        taken[i] = transfers_of(plan, op)[i];
    op->transfer_count = 0;
    return count;
}

#define TRANSFERS_MAX 8

// K or V of a region with both.
static struct region half_of(const struct plan *plan, struct region both, bool values)
{
    const struct cp_case *c = &plan->c;
    int64_t k = both.bytes / (c->head_dim_qk + c->head_dim_v) * c->head_dim_qk;
    return values ? region_part(both, k, both.bytes - k) : region_part(both, 0, k);
}

bool dk_one_hop_short(struct plan *plan)
{
    struct transfer taken[TRANSFERS_MAX];
    int32_t hop = edit_find(plan, is_last_hop, 0);
    if (hop < 0 || plan->ops[hop].transfer_count > TRANSFERS_MAX)
        return false;
    int count = take_transfers(plan, &plan->ops[hop], taken);
    for (int i = 0; i < count; i++) {
        if (!carries_gradients(plan, &taken[i])) {
            edit_transfer(plan, hop, taken[i]);
            continue;
        }
        for (int values = 0; values < 2; values++) {
            struct transfer part = {.peer = values ? taken[i].peer : plan->rank};
            if (taken[i].send.bytes > 0)
                part.send = half_of(plan, taken[i].send, values);
            if (taken[i].receive.bytes > 0)
                part.receive = half_of(plan, taken[i].receive, values);
            edit_transfer(plan, hop, part);
        }
    }
    return true;
}

static bool is_first_exchange(const struct plan *plan, const struct op *op)
{
    return plan->c.comm == COMM_P2P && op->kind == OP_EXCHANGE && op->phase == PHASE_FORWARD &&
           op->step == 0 && op->transfer_count == 2;
}

// The rows of one half of a tensor. The second half includes the odd row.
static struct region some_rows(struct region tensor, int64_t rows, bool second)
{
    int64_t row = rows > 0 ? tensor.bytes / rows : 0, first = rows / 2;
    return second ? region_part(tensor, first * row, (rows - first) * row)
                  : region_part(tensor, 0, first * row);
}

// A region of the size of some_rows(), at the place of the other half.
static struct region other_rows(struct region tensor, int64_t rows, bool second)
{
    struct region part = some_rows(tensor, rows, second);
    part.offset = second ? tensor.offset : tensor.offset + tensor.bytes - part.bytes;
    return part;
}

bool sent_chunks_swapped(struct plan *plan)
{
    struct transfer taken[TRANSFERS_MAX];
    int32_t at = edit_find(plan, is_first_exchange, 0);
    if (at < 0)
        return false;
    int count = take_transfers(plan, &plan->ops[at], taken);
    for (int i = 0; i < count; i++) {
        bool sends = taken[i].send.bytes > 0;
        int64_t rows = shard_rows(&plan->c, SIDE_KV, sends ? plan->rank : taken[i].peer);
        for (int part = 0; part < 4; part++) {
            struct transfer t = {.peer = taken[i].peer};
            if (sends)
                t.send = some_rows(half_of(plan, taken[i].send, part / 2), rows, part % 2);
            else
                t.receive = other_rows(half_of(plan, taken[i].receive, part / 2), rows, part % 2);
            edit_transfer(plan, at, t);
        }
    }
    return true;
}

static bool is_forward_exchange(const struct plan *plan, const struct op *op)
{
    return plan->c.comm == COMM_P2P && plan->c.world_size > 2 && op->kind == OP_EXCHANGE &&
           op->phase == PHASE_FORWARD && op->transfer_count == 2;
}

bool ring_reversed(struct plan *plan)
{
    bool any = false;
    for (int32_t i = edit_find(plan, is_forward_exchange, 0); i >= 0;
         i = edit_find(plan, is_forward_exchange, i + 1)) {
        struct transfer *t = transfers_of(plan, &plan->ops[i]);
        int32_t peer = t[0].peer;
        t[0].peer = t[1].peer;
        t[1].peer = peer;
        any = true;
    }
    return any;
}

// ---- changes that plan_check() refuses ----

// Uses slot 0 also in place of slot 1: sent and received data share one slot.
bool slots_shared(struct plan *plan)
{
    int32_t slots[2] = {-1, -1};
    for (int32_t i = 0; i < plan->buffer_count; i++)
        for (int k = 0; k < 2; k++)
            if (strcmp(plan->buffers[i].name, k ? "slot1" : "slot0") == 0)
                slots[k] = i;
    for (int32_t i = 0; i < plan->transfer_count && slots[1] >= 0; i++) {
        struct transfer *t = &plan->transfers[i];
        t->send.buffer = t->send.buffer == slots[1] ? slots[0] : t->send.buffer;
        t->receive.buffer = t->receive.buffer == slots[1] ? slots[0] : t->receive.buffer;
    }
    for (int32_t i = 0; i < plan->op_count && slots[1] >= 0; i++)
        for (int k = ATTEND_K; k <= ATTEND_V && edit_is_attend(&plan->ops[i]); k++) {
            struct region *r = &plan->ops[i].operand[k];
            r->buffer = r->buffer == slots[1] ? slots[0] : r->buffer;
        }
    return slots[1] >= 0;
}

bool message_short(struct plan *plan)
{
    for (int32_t i = 0; i < plan->transfer_count && plan->rank == 1; i++) {
        struct region *send = &plan->transfers[i].send;
        if (send->rows > 1 || send->bytes <= 4 || plan->transfers[i].peer == plan->rank)
            continue;
        send->bytes -= 4;
        return true;
    }
    return false;
}

static bool is_exchange(const struct plan *plan, const struct op *op)
{
    (void)plan;
    return op->kind == OP_EXCHANGE;
}

bool exchange_missing(struct plan *plan)
{
    int32_t last = edit_find_last(plan, is_exchange);
    if (last < 0 || plan->rank != 1)
        return false;
    edit_drop(&plan->ops[last]);
    return true;
}

bool exchange_extra(struct plan *plan)
{
    int32_t last = edit_find_last(plan, is_exchange);
    if (last < 0 || plan->rank != 1)
        return false;
    edit_insert(plan, last + 1, edit_exchange(&plan->ops[last]));
    return true;
}
