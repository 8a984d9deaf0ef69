// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/op_label.h"

#include <stdio.h>

#include "client/submit/outcome/text.h"
#include "client/submit/show/units.h"
#include "plan/timeline.h"

#define PEERS_SHOWN_MAX 3

static uint64_t peers_of(const struct plan *plan, const struct op *op, bool sends)
{
    uint64_t peers = 0;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        if ((sends ? t->send.bytes : t->receive.bytes) > 0 && t->peer != plan->rank)
            peers |= UINT64_C(1) << t->peer;
    }
    return peers;
}

// An arrow and the peers, or their number if they are many.
static void append_peers(char text[OP_LABEL_MAX], const char *arrow, uint64_t peers)
{
    int count = __builtin_popcountll(peers);
    if (count == 0)
        return;
    text_append(text, OP_LABEL_MAX, " %s", arrow);
    if (count > PEERS_SHOWN_MAX) {
        text_append(text, OP_LABEL_MAX, "%d ranks", count);
        return;
    }
    for (const char *joint = ""; peers; peers &= peers - 1, joint = ",")
        text_append(text, OP_LABEL_MAX, "%s%d", joint, __builtin_ctzll(peers));
}

static void append_all_peers(const struct plan *plan, const struct op *op, char text[OP_LABEL_MAX])
{
    uint64_t to = peers_of(plan, op, true), from = peers_of(plan, op, false);
    if (to == from) {
        append_peers(text, "\xe2\x87\x84", to); // both ways
        return;
    }
    append_peers(text, "\xe2\x86\x92", to);
    append_peers(text, "\xe2\x86\x90", from);
}

static void exchange_label(const struct plan *plan, const struct op *op, int room,
                           char text[OP_LABEL_MAX])
{
    char number[32];
    int64_t sent, received;
    timeline_traffic(plan, op, &sent, &received);
    if (room > 1)
        append_all_peers(plan, op, text);
    if (room != 2)
        text_append(text, OP_LABEL_MAX, " %s",
                    units_bytes(sent > received ? sent : received, number));
}

void op_label(const struct plan *plan, const struct op *op, int room, char text[OP_LABEL_MAX])
{
    char number[32];
    bool attends = op->kind == OP_ATTEND_FORWARD || op->kind == OP_ATTEND_BACKWARD;
    snprintf(text, OP_LABEL_MAX, "%d", (int)(op - plan->ops));
    if (room == 0)
        return;
    if (op->kind == OP_EXCHANGE) {
        exchange_label(plan, op, room, text);
        return;
    }
    if (!attends || room > 1)
        text_append(text, OP_LABEL_MAX, " %s", attends ? "attend" : op_kind_name(op->kind));
    if (attends)
        text_append(text, OP_LABEL_MAX, " %s", plan->buffers[op->operand[ATTEND_K].buffer].name);
    if (room > 2 && attends)
        text_append(text, OP_LABEL_MAX, ", %s", units_flops(op_flops(plan, op), number));
}
