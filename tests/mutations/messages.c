// SPDX-License-Identifier: Apache-2.0
// Errors in what travels where.
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

// What should go the last hop stays where it is.
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

// The memory that the part for another rank has, but for the one that is sent first.
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

static bool sends_queries(const struct plan *plan, const struct op *op)
{
    if (op->kind != OP_EXCHANGE || op->transfer_count == 0)
        return false;
    const struct region *send = &plan->transfers[op->transfer_first].send;
    return edit_is(plan, send, "q") || edit_is(plan, send, "dout");
}

// Within the transfers of one tensor, which are one for each member.
static void turn_sends(struct transfer *transfers, int count)
{
    struct region first = transfers[0].send;
    for (int i = 0; i + 1 < count; i++)
        transfers[i].send = transfers[i + 1].send;
    transfers[count - 1].send = first;
}

bool a2a_wrong_heads(struct plan *plan)
{
    int size = team_size(&plan->c);
    bool any = false;
    for (int32_t i = edit_find(plan, sends_queries, 0); i >= 0 && size > 1;
         i = edit_find(plan, sends_queries, i + 1)) {
        if (plan->ops[i].transfer_count < size)
            continue;
        turn_sends(transfers_of(plan, &plan->ops[i]), size);
        any = true;
    }
    return any;
}
