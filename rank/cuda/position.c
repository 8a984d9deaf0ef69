// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/position.h"

static int report_phase(const struct op *op)
{
    return op->phase == PHASE_FORWARD ? REPORT_FORWARD : REPORT_BACKWARD;
}

void position_note(const struct position *p, const struct op *op, int waiting_for)
{
    progress_store(&p->words[p->plan->rank], (struct progress_view){.job = (uint32_t)p->job,
                                                                    .phase = report_phase(op),
                                                                    .step = op->step,
                                                                    .waiting_for = waiting_for});
}

bool position_is_marked(const struct op *op)
{
    return op->kind == OP_EXCHANGE || op->kind == OP_ATTEND_FORWARD ||
           op->kind == OP_ATTEND_BACKWARD;
}

// Index of the first marked operation of a stream that may be unfinished, by its mark; or op_count.
static int32_t operation_at(const struct position *p, enum plan_stream stream)
{
    int32_t i = (int32_t)marks_get(p->marks, stream);
    while (i < p->plan->op_count &&
           (p->plan->ops[i].stream != stream || !position_is_marked(&p->plan->ops[i])))
        i++;
    return i;
}

// True if the compute stream waits for this exchange or a later one: an operation from its mark up
// to its current operation waits for one, or it has no marked operation left.
static bool compute_waits(const struct position *p, int32_t compute, int32_t exchange)
{
    const struct plan *plan = p->plan;
    if (exchange >= plan->op_count)
        return false;
    for (int32_t i = (int32_t)marks_get(p->marks, STREAM_COMPUTE);
         i <= compute && i < plan->op_count; i++)
        for (int32_t k = 0; plan->ops[i].stream == STREAM_COMPUTE && k < plan->ops[i].wait_count;
             k++)
            if (plan->waits[plan->ops[i].wait_first + k] >= exchange)
                return true;
    return compute >= plan->op_count;
}

// True if a rank's progress word is before the operation.
static bool is_behind(struct progress_view a, const struct position *p, const struct op *op)
{
    if (a.job != (p->job & 0xffffff))
        return true;
    return a.phase != report_phase(op) ? a.phase < report_phase(op) : a.step < op->step;
}

// The rank that delays an exchange: its only sender, or among several senders one that is behind;
// -1: none.
static int peer_awaited(const struct position *p, const struct op *op)
{
    int only = -1, behind = -1, count = 0;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &p->plan->transfers[op->transfer_first + i];
        if (t->peer == p->plan->rank || t->receive.bytes == 0 || t->peer == only)
            continue;
        only = t->peer;
        count++;
        if (is_behind(progress_load(&p->words[t->peer]), p, op))
            behind = t->peer;
    }
    return count == 1 ? only : behind;
}

const struct op *position_look(const struct position *p)
{
    int32_t compute = operation_at(p, STREAM_COMPUTE), exchange = operation_at(p, STREAM_COMM);
    const struct op *op = NULL;
    if (!p->marks->host)
        return NULL;
    if (compute_waits(p, compute, exchange)) {
        op = &p->plan->ops[exchange];
        position_note(p, op, peer_awaited(p, op));
    } else if (compute < p->plan->op_count) {
        op = &p->plan->ops[compute];
        position_note(p, op, -1);
    } else {
        progress_store(&p->words[p->plan->rank], (struct progress_view){.job = (uint32_t)p->job,
                                                                        .phase = REPORT_REFERENCE,
                                                                        .waiting_for = -1});
    }
    return op;
}
