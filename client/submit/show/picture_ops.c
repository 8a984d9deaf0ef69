// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/picture_ops.h"

#include <stdbool.h>

#include "client/submit/outcome/text.h"
#include "client/submit/show/op_label.h"
#include "client/submit/show/units.h"

#define TEXT_MAX 192

// ---- labels --------------------------------------------------------------------------------

static const char *op_class(const struct op *op)
{
    switch (op->kind) {
    case OP_ATTEND_FORWARD:
        return "forward";
    case OP_ATTEND_BACKWARD:
        return "backward";
    case OP_PRODUCT:
        return op->phase == PHASE_FORWARD ? "forward" : "backward";
    case OP_EXCHANGE:
        return "exchange";
    default:
        return "other";
    }
}

static void put_label(const struct picture *p, const struct plan *plan, const struct op *op,
                      double x, double width)
{
    char text[OP_LABEL_MAX];
    for (int room = OP_LABEL_ROOM_MAX; room >= 0; room--) {
        op_label(plan, op, room, text);
        if (picture_text_width(text) * PICTURE_CHARACTER + 4 > width)
            continue;
        picture_text(p, "label", x + width / 2, picture_rank_y(p, plan->rank, op->stream) + 19,
                     "%s", text);
        return;
    }
}

// The tooltip of a box.
static void put_title(const struct picture *p, const struct plan *plan, const struct op *op,
                      const struct timeline_span *span)
{
    char start[32], length[32], number[32];
    int64_t sent, received;
    fprintf(p->out, "<title>rank %d, %d %s, %s step %d&#10;", plan->rank, (int)(op - plan->ops),
            op_kind_name(op->kind), op->phase == PHASE_FORWARD ? "forward" : "backward", op->step);
    if (op->kind == OP_EXCHANGE) {
        timeline_traffic(plan, op, &sent, &received);
        fprintf(p->out, "sends %s, ", units_bytes(sent, number));
        fprintf(p->out, "receives %s&#10;", units_bytes(received, number));
    } else if (op_flops(plan, op) > 0) {
        fprintf(p->out, "%s&#10;", units_flops(op_flops(plan, op), number));
    } else {
        fprintf(p->out, "touches %s&#10;", units_bytes(timeline_bytes(op), number));
    }
    fprintf(p->out, "from %s, for %s", units_time(span->start, start),
            units_time(span->end - span->start, length));
    if (span->moves > span->start)
        fprintf(p->out, ", of which %s waiting for rank %d",
                units_time(span->moves - span->start, number), span->last);
    for (int32_t i = 0; i < op->wait_count; i++)
        fprintf(p->out, "%s %d", i == 0 ? "&#10;waits for" : ",", plan->waits[op->wait_first + i]);
    fputs("</title>", p->out);
}

// ---- boxes ------------------------------------------------------------------------------------

// The part of an exchange in which it waits for its peers.
static void put_posted(const struct picture *p, const struct timeline_span *span, double x,
                       double y, double width)
{
    char text[TEXT_MAX] = "", number[32];
    if (width < 0.5)
        return;
    picture_rectangle(p, "posted", x, y, width, PICTURE_LANE_HEIGHT);
    text_append(text, TEXT_MAX, "waits for rank %d, %s", span->last,
                units_time(span->moves - span->start, number));
    if (picture_text_width(text) * PICTURE_CHARACTER + 4 < width)
        picture_text(p, "outlined", x + width / 2, y + 19, "%s", text);
}

static void put_op(const struct picture *p, const struct plan *plan, int32_t index)
{
    const struct op *op = &plan->ops[index];
    const struct timeline_span *span = &p->timeline->ranks[plan->rank].spans[index];
    double x = picture_x(p, span->moves), width = (span->end - span->moves) * p->second;
    double posted = picture_x(p, span->start), y = picture_rank_y(p, plan->rank, op->stream);
    if (op->kind == OP_EXCHANGE && op->transfer_count == 0)
        return;
    fputs("<g>", p->out);
    put_title(p, plan, op, span);
    put_posted(p, span, posted, y, x - posted);
    picture_rectangle(p, op_class(op), x, y, width, PICTURE_LANE_HEIGHT);
    put_label(p, plan, op, x, width);
    fputs("</g>\n", p->out);
}

// Draws the time in which a stream waits before an operation: a bar, or the label on it.
static void put_idle(const struct picture *p, const struct plan *plan, const struct op *op,
                     double from, bool label)
{
    char text[TEXT_MAX] = "", number[32];
    const struct timeline_span *span = &p->timeline->ranks[plan->rank].spans[op - plan->ops];
    double x = picture_x(p, from), width = (span->start - from) * p->second;
    double y = picture_rank_y(p, plan->rank, op->stream);
    if (width < 1)
        return;
    if (!label) {
        picture_rectangle(p, "idle", x, y + PICTURE_LANE_HEIGHT / 4.0, width,
                          PICTURE_LANE_HEIGHT / 2.0);
        return;
    }
    text_append(text, TEXT_MAX, "idle %s", units_time(span->start - from, number));
    if (picture_text_width(text) * PICTURE_CHARACTER + 4 < width)
        picture_text(p, "faint", x + width / 2, y + 19, "%s", text);
}

void picture_critical(const struct picture *p, int row)
{
    const struct plan *plan = p->plans[p->lanes.first[row]];
    const struct timeline_span *spans = p->timeline->ranks[plan->rank].spans;
    for (int32_t i = 0; i < plan->op_count; i++) {
        double width = (spans[i].end - spans[i].moves) * p->second;
        if (lanes_is_critical(&p->lanes, row, i))
            fprintf(p->out, "<path class=\"critical\" d=\"M%.2f %.1fh%.2fv%dh-%.2fz\"/>\n",
                    picture_x(p, spans[i].moves), picture_row_y(row, plan->ops[i].stream), width,
                    PICTURE_LANE_HEIGHT, width);
    }
}

// An arrow between the lanes of a rank, if an operation starts when the one it waited for ends.
static void put_wait(const struct picture *p, const struct plan *plan, const struct op *op)
{
    const struct timeline_span *span = &p->timeline->ranks[plan->rank].spans[op - plan->ops];
    if (span->after < 0 || plan->ops[span->after].stream == op->stream)
        return;
    double x = picture_x(p, span->start), lane = PICTURE_LANE_HEIGHT;
    bool down = op->stream == STREAM_COMM;
    double from = picture_rank_y(p, plan->rank, STREAM_COMPUTE) + lane,
           to = from + PICTURE_LANE_GAP;
    fprintf(p->out, "<path class=\"wait\" d=\"M%.2f %.1fV%.1f\" marker-end=\"url(#head)\"/>\n", x,
            down ? from - 4 : to + 4, down ? to + 1 : from - 1);
}

void picture_idles(const struct picture *p, const struct plan *plan, bool labels)
{
    double end[PLAN_STREAMS] = {0, 0};
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        put_idle(p, plan, op, end[op->stream], labels);
        end[op->stream] = p->timeline->ranks[plan->rank].spans[i].end;
    }
}

void picture_ops(const struct picture *p, const struct plan *plan)
{
    for (int32_t i = 0; i < plan->op_count; i++)
        put_op(p, plan, i);
    for (int32_t i = 0; i < plan->op_count; i++)
        put_wait(p, plan, &plan->ops[i]);
}

// ---- messages ---------------------------------------------------------------------------------

// Draws an arrow from the sender's exchange, at the time when its bytes begin to move, to the end
// of the receiver's exchange.
static void put_message(const struct picture *p, const struct plan *plan, int32_t index,
                        const struct transfer *t, int32_t number)
{
    const struct plan *peer = p->plans[t->peer];
    int32_t other = timeline_exchange(peer, number);
    if (t->send.bytes == 0 || t->peer == plan->rank || other < 0)
        return;
    const struct timeline_span *sends = &p->timeline->ranks[plan->rank].spans[index];
    const struct timeline_span *receives = &p->timeline->ranks[t->peer].spans[other];
    bool down = t->peer > plan->rank;
    double y1 = picture_rank_y(p, plan->rank, STREAM_COMM) + (down ? PICTURE_LANE_HEIGHT : 0);
    double y2 = picture_rank_y(p, t->peer, STREAM_COMM) + (down ? 0 : PICTURE_LANE_HEIGHT);
    char bytes[32];
    bool far = case_node(&plan->c, plan->rank) != case_node(&plan->c, t->peer);
    fprintf(p->out,
            "<path class=\"message%s\" d=\"M%.2f %.1fL%.2f %.1f\" marker-end=\"url(#tip)\">"
            "<title>%s from rank %d to rank %d%s, exchange %d</title></path>\n",
            far ? " far" : "", picture_x(p, sends->moves), y1, picture_x(p, receives->end), y2,
            units_bytes(region_total(&t->send), bytes), plan->rank, t->peer,
            far ? " of another node" : "", index);
}

void picture_messages(const struct picture *p, const struct plan *plan)
{
    int32_t number = 0;
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_EXCHANGE)
            continue;
        for (int32_t k = 0; k < op->transfer_count; k++)
            put_message(p, plan, i, &plan->transfers[op->transfer_first + k], number);
        number++;
    }
}
