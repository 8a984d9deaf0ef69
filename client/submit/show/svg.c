// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/outcome/text.h"
#include "client/submit/show/lanes.h"
#include "client/submit/show/op_label.h"
#include "client/submit/show/units.h"
#include "common/plural.h"

#define WIDTH       1600
#define PLOT_LEFT   120
#define PLOT_RIGHT  (WIDTH - 24)
#define PLOT_TOP    108
#define LANE_HEIGHT 30
#define LANE_GAP    8
#define RANK_GAP    26
#define RANK_HEIGHT (2 * LANE_HEIGHT + LANE_GAP + RANK_GAP)
#define ROW_HEIGHT  18
#define PANEL_GAP   30
#define TEXT_MAX    192
#define HEAD_MAX    120 // characters in large type

// Width of a character of a box's label, rounded up.
#define LABEL_CHARACTER 5.9

struct picture {
    FILE *out;
    struct plan *const *plans;
    const struct timeline *timeline;
    const struct timeline_rates *rates;
    struct lanes lanes;
    double end;     // of the axis, in seconds
    double second;  // its width
    double fastest; // end of the fastest of several; 0: there is one
};

// ---- texts ------------------------------------------------------------------------

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else
            fputc(*text, out);
    }
}

__attribute__((format(printf, 5, 6))) static void
put_text(const struct picture *p, const char *class, double x, double y, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(p->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    put_escaped(p->out, text);
    fputs("</text>\n", p->out);
}

// ---- places -----------------------------------------------------------------------------------

static double place_x(const struct picture *p, double seconds)
{
    return PLOT_LEFT + seconds * p->second;
}

static double row_y(int row, enum plan_stream stream)
{
    int lane = stream == STREAM_COMM ? LANE_HEIGHT + LANE_GAP : 0;
    return PLOT_TOP + row * RANK_HEIGHT + lane;
}

static double place_y(const struct picture *p, int rank, enum plan_stream stream)
{
    return row_y(p->lanes.row[rank], stream);
}

static double plot_bottom(const struct picture *p)
{
    return row_y(p->lanes.rows, STREAM_COMPUTE) - RANK_GAP;
}

// ---- labels of operations ---------------------------------------------------------------------

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

// Number of characters, not of bytes.
static int text_width(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void put_label(const struct picture *p, const struct plan *plan, const struct op *op,
                      double x, double width)
{
    char text[OP_LABEL_MAX];
    for (int room = OP_LABEL_ROOM_MAX; room >= 0; room--) {
        op_label(plan, op, room, text);
        if (text_width(text) * LABEL_CHARACTER + 4 > width)
            continue;
        put_text(p, "label", x + width / 2, place_y(p, plan->rank, op->stream) + 19, "%s", text);
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

static void put_rectangle(const struct picture *p, const char *class, double x, double y,
                          double width, double height)
{
    fprintf(p->out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"/>\n",
            class, x, y, width > 0.6 ? width : 0.6, height);
}

// The part of an exchange in which it waits for its peers.
static void put_posted(const struct picture *p, const struct timeline_span *span, double x,
                       double y, double width)
{
    char text[TEXT_MAX] = "", number[32];
    if (width < 0.5)
        return;
    put_rectangle(p, "posted", x, y, width, LANE_HEIGHT);
    text_append(text, TEXT_MAX, "waits for rank %d, %s", span->last,
                units_time(span->moves - span->start, number));
    if (text_width(text) * LABEL_CHARACTER + 4 < width)
        put_text(p, "outlined", x + width / 2, y + 19, "%s", text);
}

static void put_op(const struct picture *p, const struct plan *plan, int32_t index)
{
    const struct op *op = &plan->ops[index];
    const struct timeline_span *span = &p->timeline->ranks[plan->rank].spans[index];
    double x = place_x(p, span->moves), width = (span->end - span->moves) * p->second;
    double posted = place_x(p, span->start), y = place_y(p, plan->rank, op->stream);
    if (op->kind == OP_EXCHANGE && op->transfer_count == 0)
        return;
    fputs("<g>", p->out);
    put_title(p, plan, op, span);
    put_posted(p, span, posted, y, x - posted);
    put_rectangle(p, op_class(op), x, y, width, LANE_HEIGHT);
    put_label(p, plan, op, x, width);
    fputs("</g>\n", p->out);
}

// A stream waits before an operation: draws a bar, or the label on it.
static void put_idle(const struct picture *p, const struct plan *plan, const struct op *op,
                     double from, bool label)
{
    char text[TEXT_MAX] = "", number[32];
    const struct timeline_span *span = &p->timeline->ranks[plan->rank].spans[op - plan->ops];
    double x = place_x(p, from), width = (span->start - from) * p->second;
    double y = place_y(p, plan->rank, op->stream);
    if (width < 1)
        return;
    if (!label) {
        put_rectangle(p, "idle", x, y + LANE_HEIGHT / 4.0, width, LANE_HEIGHT / 2.0);
        return;
    }
    text_append(text, TEXT_MAX, "idle %s", units_time(span->start - from, number));
    if (text_width(text) * LABEL_CHARACTER + 4 < width)
        put_text(p, "faint", x + width / 2, y + 19, "%s", text);
}

// A frame around each operation of the row's ranks that is on the critical path.
static void put_critical(const struct picture *p, int row)
{
    const struct plan *plan = p->plans[p->lanes.first[row]];
    const struct timeline_span *spans = p->timeline->ranks[plan->rank].spans;
    for (int32_t i = 0; i < plan->op_count; i++) {
        double width = (spans[i].end - spans[i].moves) * p->second;
        if (lanes_is_critical(&p->lanes, row, i))
            fprintf(p->out, "<path class=\"critical\" d=\"M%.2f %.1fh%.2fv%dh-%.2fz\"/>\n",
                    place_x(p, spans[i].moves), row_y(row, plan->ops[i].stream), width, LANE_HEIGHT,
                    width);
    }
}

// An arrow between the lanes of a rank, if an operation starts when the one it waited for ends.
static void put_wait(const struct picture *p, const struct plan *plan, const struct op *op)
{
    const struct timeline_span *span = &p->timeline->ranks[plan->rank].spans[op - plan->ops];
    if (span->after < 0 || plan->ops[span->after].stream == op->stream)
        return;
    double x = place_x(p, span->start), lane = LANE_HEIGHT;
    bool down = op->stream == STREAM_COMM;
    double from = place_y(p, plan->rank, STREAM_COMPUTE) + lane, to = from + LANE_GAP;
    fprintf(p->out, "<path class=\"wait\" d=\"M%.2f %.1fV%.1f\" marker-end=\"url(#head)\"/>\n", x,
            down ? from - 4 : to + 4, down ? to + 1 : from - 1);
}

static void put_idles(const struct picture *p, const struct plan *plan, bool labels)
{
    double end[PLAN_STREAMS] = {0, 0};
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        put_idle(p, plan, op, end[op->stream], labels);
        end[op->stream] = p->timeline->ranks[plan->rank].spans[i].end;
    }
}

static void put_ops(const struct picture *p, const struct plan *plan)
{
    for (int32_t i = 0; i < plan->op_count; i++)
        put_op(p, plan, i);
    for (int32_t i = 0; i < plan->op_count; i++)
        put_wait(p, plan, &plan->ops[i]);
}

// ---- messages ---------------------------------------------------------------------------------

// From the exchange that sends, when the bytes begin to move, to the one that receives, when it has
// them.
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
    double y1 = place_y(p, plan->rank, STREAM_COMM) + (down ? LANE_HEIGHT : 0);
    double y2 = place_y(p, t->peer, STREAM_COMM) + (down ? 0 : LANE_HEIGHT);
    char bytes[32];
    bool far = case_node(&plan->c, plan->rank) != case_node(&plan->c, t->peer);
    fprintf(p->out,
            "<path class=\"message%s\" d=\"M%.2f %.1fL%.2f %.1f\" marker-end=\"url(#tip)\">"
            "<title>%s from rank %d to rank %d%s, exchange %d</title></path>\n",
            far ? " far" : "", place_x(p, sends->moves), y1, place_x(p, receives->end), y2,
            units_bytes(region_total(&t->send), bytes), plan->rank, t->peer,
            far ? " of another node" : "", index);
}

static void put_messages(const struct picture *p, const struct plan *plan)
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

// ---- axis, names and phases -------------------------------------------------------------------

static const char style[] =
    "<style>"
    "text{font-family:DejaVu Sans,Verdana,sans-serif;font-size:12px;fill:#222}"
    ".head{font-size:16px;font-weight:bold}.small,.label,.faint,.tick{font-size:10px}"
    ".label{fill:#fff;text-anchor:middle}.faint{fill:#666;text-anchor:middle;stroke:#eee;stroke-"
    "width:4;"
    "paint-order:stroke}"
    ".tick{fill:#555;text-anchor:middle}.right{text-anchor:end;font-size:12px}"
    ".rank{font-weight:bold}"
    ".outlined{font-size:10px;text-anchor:middle;fill:#0b5a40;stroke:#fff;stroke-width:4;"
    "paint-order:stroke}"
    ".forward{fill:#1f6fb4}.backward{fill:#c2410c}.exchange{fill:#157f5b}.other{fill:#6b7280}"
    ".posted{fill:url(#stripes);stroke:#157f5b;stroke-width:.5}"
    ".idle{fill:#eee}.lane{fill:#fafafa}.grid{stroke:#ddd;stroke-width:1}"
    ".phase{stroke:#222;stroke-width:1.2;stroke-dasharray:4 3}"
    ".critical{stroke:#111;stroke-width:2;fill:none}"
    ".wait{stroke:#111;stroke-width:1.4;fill:none}"
    ".far{stroke-dasharray:5 3}"
    ".message{stroke:#157f5b;stroke-width:1.1;stroke-opacity:.7;fill:none}.message:hover{stroke-"
    "width:3}"
    "rect.forward,rect.backward,rect.exchange,rect.other{stroke:#fff;stroke-width:.6}"
    "</style>\n"
    "<defs><pattern id=\"stripes\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#fff\"/>"
    "<rect width=\"2\" height=\"6\" fill=\"#157f5b\" fill-opacity=\".5\"/></pattern>"
    "<marker id=\"head\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"5\" "
    "markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" fill=\"#111\"/></marker>"
    "<marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"6\" "
    "markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" fill=\"#157f5b\"/></marker>"
    "</defs>\n";

static void put_axis(const struct picture *p)
{
    double end = p->end, bottom = plot_bottom(p), step = end > 0 ? units_step(end) : 1;
    for (int i = 0; i * step <= end * 1.0001; i++) {
        char text[32];
        double x = place_x(p, i * step);
        fprintf(p->out, "<path class=\"grid\" d=\"M%.2f %dV%.1f\"/>\n", x, PLOT_TOP - 8,
                bottom + 6);
        put_text(p, "tick", x, PLOT_TOP - 12, "%s", units_time(i * step, text));
    }
}

static void put_row_name(const struct picture *p, int row)
{
    char ranks[32];
    double y = row_y(row, STREAM_COMM) - LANE_GAP / 2.0 + 4;
    lanes_ranks(&p->lanes, row, ranks, sizeof(ranks));
    if (p->lanes.count[row] == 1) {
        int32_t node = case_node(&p->plans[0]->c, p->lanes.first[row]);
        bool placed = case_node(&p->plans[0]->c, p->timeline->world_size - 1) > 0;
        put_text(p, "rank", 12, placed ? y - 7 : y, "rank %s", ranks);
        if (placed)
            put_text(p, "small", 12, y + 8, "node %d", node);
        return;
    }
    put_text(p, "rank", 12, y - 7, "%d rank%s", p->lanes.count[row], plural(p->lanes.count[row]));
    put_text(p, "small", 12, y + 8, "%s", ranks);
}

static void put_lanes(const struct picture *p)
{
    static const char *const names[] = {[STREAM_COMPUTE] = "compute", [STREAM_COMM] = "comm"};
    for (int row = 0; row < p->lanes.rows; row++) {
        put_row_name(p, row);
        for (int stream = 0; stream < PLAN_STREAMS; stream++) {
            double y = row_y(row, (enum plan_stream)stream);
            put_rectangle(p, "lane", PLOT_LEFT, y, PLOT_RIGHT - PLOT_LEFT, LANE_HEIGHT);
            put_text(p, "small", 72, y + 19, "%s", names[stream]);
        }
    }
}

// A line in each row where the forward of its ranks ends.
static void put_phases(const struct picture *p)
{
    for (int row = 0; row < p->lanes.rows; row++) {
        double x = place_x(p, p->timeline->ranks[p->lanes.first[row]].forward_end);
        double y = row_y(row, STREAM_COMPUTE);
        if (p->plans[0]->c.training)
            fprintf(p->out, "<path class=\"phase\" d=\"M%.2f %.1fV%.1f\"/>\n", x, y - 5,
                    y + 2 * LANE_HEIGHT + LANE_GAP + 5);
    }
}

static double put_sample(const struct picture *p, const char *class, const char *text, double x)
{
    put_rectangle(p, class, x, 60, 22, 14);
    put_text(p, "small", x + 28, 71, "%s", text);
    return x + 28 + text_width(text) * LABEL_CHARACTER + 16;
}

// The names of the work that a plan counts in FLOPs, and of its other operations.
struct work_names {
    const char *flops, *backward; // NULL: there are none
    const char *other;
};

static struct work_names work_names(const struct plan *plan)
{
    if (plan->linear.world_size > 0)
        return (struct work_names){"products", "products, backward", "activation, sums"};
    if (plan->collective.world_size > 0)
        return (struct work_names){NULL, NULL, "reduce, divide"};
    return (struct work_names){"attention", "attention, backward",
                               "fill, row dot, add, convert ..."};
}

static void put_legend(const struct picture *p)
{
    double x = 12;
    struct work_names names = work_names(p->plans[0]);
    if (names.flops) {
        x = put_sample(p, "forward", names.flops, x);
        x = put_sample(p, "backward", names.backward, x);
    }
    x = put_sample(p, "other", names.other, x);
    x = put_sample(p, "exchange", "exchange: bytes move", x);
    x = put_sample(p, "posted", "exchange: waits for a peer", x);
    x = put_sample(p, "idle", "stream is idle", x);
    fprintf(p->out, "<path class=\"wait\" d=\"M%.1f 58V74\" marker-end=\"url(#head)\"/>\n", x + 4);
    put_text(p, "small", x + 12, 71, "starts as the other lane's operation ends");
    x += 262;
    if (p->timeline->world_size <= SVG_MESSAGES_RANKS_MAX) {
        fprintf(p->out,
                "<path class=\"message\" d=\"M%.1f 60L%.1f 74\" marker-end=\"url(#tip)\"/>\n", x,
                x + 14);
        put_text(p, "small", x + 20, 71, "message");
        x += 82;
    }
    fprintf(p->out, "<path class=\"phase\" d=\"M%.1f 58V76\"/>\n", x);
    put_text(p, "small", x + 6, 71, "forward ends");
    fprintf(p->out, "<path class=\"critical\" d=\"M%.1f 60h22v14h-22z\"/>\n", x + 92);
    put_text(p, "small", x + 120, 71, "critical path");
}

// A sentence about the time lost by waiting.
static void put_lost(const struct picture *p)
{
    char total[32], longest[32];
    struct lanes_lost lost = lanes_find_lost(p->plans, p->timeline);
    if (lost.exchange < 0)
        put_text(p, "right", PLOT_RIGHT, 24, "nothing is lost by waiting for exchanges");
    else
        put_text(p, "right", PLOT_RIGHT, 24,
                 "rank %d, which ends last, loses %s by waiting for exchanges, %s of it for "
                 "operation %d",
                 lost.rank, units_time(lost.total, total), units_time(lost.longest, longest),
                 (int)lost.exchange);
}

static void put_head(const struct picture *p)
{
    char what[256], end[32], overhead[32], ratio[48] = "";
    plan_describe(p->plans[0], what, sizeof(what));
    if (p->fastest > 0 && p->timeline->end > p->fastest * 1.0005)
        snprintf(ratio, sizeof(ratio), ", %.3g times the fastest", p->timeline->end / p->fastest);
    else if (p->fastest > 0)
        snprintf(ratio, sizeof(ratio), ", the fastest");
    put_text(p, strlen(what) > HEAD_MAX ? "rank" : "head", 12, 24, "%s: %s predicted%s", what,
             units_time(p->timeline->end, end), ratio);
    const struct cp_case *c = &p->plans[0]->c;
    char nodes[64] = "";
    if (case_node(c, c->world_size - 1) > 0)
        snprintf(nodes, sizeof(nodes), " and %g GB/s between nodes", p->rates->node_bytes / 1e9);
    const char *work = work_names(p->plans[0]).flops;
    char flops[64] = "";
    if (work)
        snprintf(flops, sizeof(flops), "%g TFLOP/s of %s, ", p->rates->flops / 1e12, work);
    put_text(p, "small", 12, 44,
             "with %s%g GB/s of memory, %g GB/s between ranks%s in each direction, %s before each "
             "operation",
             flops, p->rates->memory_bytes / 1e9, p->rates->link_bytes / 1e9, nodes,
             units_time(p->rates->overhead_s, overhead));
    put_lost(p);
}

// ---- the sums ---------------------------------------------------------------------------------

static const struct column {
    const char *name;
    double x; // of its right end
} columns[] = {
    {"forward", 220},      {"whole", 320}, {"compute busy", 440}, {"compute idle", 560},
    {"bytes moving", 680}, {"FLOPs", 800}, {"sent", 910},         {"of the FLOP rate", 1040}};

static void put_cell(const struct picture *p, int column, double y, const char *text)
{
    put_text(p, "right", columns[column].x, y, "%s", text);
}

static void put_sums_of(const struct picture *p, int row, double y)
{
    const struct timeline_rank *r = &p->timeline->ranks[p->lanes.first[row]];
    double busy = r->busy[STREAM_COMPUTE];
    char text[32];
    lanes_ranks(&p->lanes, row, text, sizeof(text));
    put_text(p, "rank", 12, y, "rank%s %s", plural(p->lanes.count[row]), text);
    put_cell(p, 0, y, units_time(r->forward_end, text));
    put_cell(p, 1, y, units_time(r->end, text));
    put_cell(p, 2, y, units_time(busy, text));
    put_cell(p, 3, y, units_time(r->end - busy, text));
    put_cell(p, 4, y, units_time(r->busy[STREAM_COMM], text));
    put_cell(p, 5, y, units_flops(r->flops, text));
    put_cell(p, 6, y, units_bytes(r->sent, text));
    snprintf(text, sizeof(text), "%.0f %%",
             r->end > 0 ? 100 * r->flops / (r->end * p->rates->flops) : 0);
    put_cell(p, 7, y, text);
}

static void put_sums(const struct picture *p)
{
    double y = plot_bottom(p) + 40;
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        put_cell(p, (int)i, y, columns[i].name);
    for (int row = 0; row < p->lanes.rows; row++)
        put_sums_of(p, row, y + (row + 1) * ROW_HEIGHT);
}

// ---- the picture ------------------------------------------------------------------------------

static double panel_height(const struct picture *p)
{
    return plot_bottom(p) + 40 + (p->lanes.rows + 1) * ROW_HEIGHT;
}

// Only the first panel has a legend.
static void panel_draw(const struct picture *p, bool first)
{
    bool few = p->timeline->world_size <= SVG_MESSAGES_RANKS_MAX;
    put_head(p);
    if (first)
        put_legend(p);
    put_lanes(p);
    put_axis(p);
    for (int row = 0; row < p->lanes.rows; row++)
        put_idles(p, p->plans[p->lanes.first[row]], false);
    for (int r = 0; r < p->timeline->world_size && few; r++)
        put_messages(p, p->plans[r]);
    for (int row = 0; row < p->lanes.rows; row++)
        put_ops(p, p->plans[p->lanes.first[row]]);
    for (int row = 0; row < p->lanes.rows; row++) {
        put_idles(p, p->plans[p->lanes.first[row]], true);
        put_critical(p, row);
    }
    put_phases(p);
    put_sums(p);
}

static struct picture panel_of(FILE *out, const struct svg_panel *panels, int count, int i,
                               const struct timeline_rates *rates)
{
    struct picture p = {
        .out = out, .plans = panels[i].plans, .timeline = panels[i].timeline, .rates = rates};
    double fastest = panels[0].timeline->end;
    for (int k = 0; k < count; k++) {
        p.end = fmax(p.end, panels[k].timeline->end);
        fastest = fmin(fastest, panels[k].timeline->end);
    }
    p.second = p.end > 0 ? (PLOT_RIGHT - PLOT_LEFT) / p.end : 0;
    p.fastest = count > 1 ? fastest : 0;
    lanes_init(&p.lanes, p.plans, p.timeline, p.timeline->world_size > SVG_MESSAGES_RANKS_MAX);
    return p;
}

void svg_draw(FILE *out, const struct svg_panel *panels, int count,
              const struct timeline_rates *rates)
{
    double height = 0, y = 0;
    for (int i = 0; i < count; i++) {
        const struct picture p = panel_of(out, panels, count, i, rates);
        height += panel_height(&p) + (i > 0 ? PANEL_GAP : 0);
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\">\n%s"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, height, WIDTH, height, style);
    for (int i = 0; i < count; i++) {
        const struct picture p = panel_of(out, panels, count, i, rates);
        if (count > 1)
            fprintf(out, "<g class=\"panel\" transform=\"translate(0 %.1f)\">\n", y);
        panel_draw(&p, i == 0);
        fputs(count > 1 ? "</g>\n" : "", out);
        y += panel_height(&p) + PANEL_GAP;
    }
    fputs("</svg>\n", out);
}
