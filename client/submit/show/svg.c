// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/svg.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "client/submit/show/picture.h"
#include "client/submit/show/picture_ops.h"
#include "client/submit/show/units.h"
#include "common/plural.h"

#define ROW_HEIGHT 18
#define PANEL_GAP  30
#define HEAD_MAX   120 // characters in large type

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
    double end = p->end, bottom = picture_bottom(p), step = end > 0 ? units_step(end) : 1;
    for (int i = 0; i * step <= end * 1.0001; i++) {
        char text[32];
        double x = picture_x(p, i * step);
        fprintf(p->out, "<path class=\"grid\" d=\"M%.2f %dV%.1f\"/>\n", x, PICTURE_TOP - 8,
                bottom + 6);
        picture_text(p, "tick", x, PICTURE_TOP - 12, "%s", units_time(i * step, text));
    }
}

static void put_row_name(const struct picture *p, int row)
{
    char ranks[32];
    double y = picture_row_y(row, STREAM_COMM) - PICTURE_LANE_GAP / 2.0 + 4;
    lanes_ranks(&p->lanes, row, ranks, sizeof(ranks));
    if (p->lanes.count[row] == 1) {
        int32_t node = case_node(&p->plans[0]->c, p->lanes.first[row]);
        bool placed = case_node(&p->plans[0]->c, p->timeline->world_size - 1) > 0;
        picture_text(p, "rank", 12, placed ? y - 7 : y, "rank %s", ranks);
        if (placed)
            picture_text(p, "small", 12, y + 8, "node %d", node);
        return;
    }
    picture_text(p, "rank", 12, y - 7, "%d rank%s", p->lanes.count[row],
                 plural(p->lanes.count[row]));
    picture_text(p, "small", 12, y + 8, "%s", ranks);
}

static void put_lanes(const struct picture *p)
{
    static const char *const names[] = {[STREAM_COMPUTE] = "compute", [STREAM_COMM] = "comm"};
    for (int row = 0; row < p->lanes.rows; row++) {
        put_row_name(p, row);
        for (int stream = 0; stream < PLAN_STREAMS; stream++) {
            double y = picture_row_y(row, (enum plan_stream)stream);
            picture_rectangle(p, "lane", PICTURE_LEFT, y, PICTURE_RIGHT - PICTURE_LEFT,
                              PICTURE_LANE_HEIGHT);
            picture_text(p, "small", 72, y + 19, "%s", names[stream]);
        }
    }
}

// A line in each row where the forward of its ranks ends.
static void put_phases(const struct picture *p)
{
    for (int row = 0; row < p->lanes.rows; row++) {
        double x = picture_x(p, p->timeline->ranks[p->lanes.first[row]].forward_end);
        double y = picture_row_y(row, STREAM_COMPUTE);
        if (p->plans[0]->c.training)
            fprintf(p->out, "<path class=\"phase\" d=\"M%.2f %.1fV%.1f\"/>\n", x, y - 5,
                    y + 2 * PICTURE_LANE_HEIGHT + PICTURE_LANE_GAP + 5);
    }
}

static double put_sample(const struct picture *p, const char *class, const char *text, double x)
{
    picture_rectangle(p, class, x, 60, 22, 14);
    picture_text(p, "small", x + 28, 71, "%s", text);
    return x + 28 + picture_text_width(text) * PICTURE_CHARACTER + 16;
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
    picture_text(p, "small", x + 12, 71, "starts as the other lane's operation ends");
    x += 262;
    if (p->timeline->world_size <= SVG_MESSAGES_RANKS_MAX) {
        fprintf(p->out,
                "<path class=\"message\" d=\"M%.1f 60L%.1f 74\" marker-end=\"url(#tip)\"/>\n", x,
                x + 14);
        picture_text(p, "small", x + 20, 71, "message");
        x += 82;
    }
    fprintf(p->out, "<path class=\"phase\" d=\"M%.1f 58V76\"/>\n", x);
    picture_text(p, "small", x + 6, 71, "forward ends");
    fprintf(p->out, "<path class=\"critical\" d=\"M%.1f 60h22v14h-22z\"/>\n", x + 92);
    picture_text(p, "small", x + 120, 71, "critical path");
}

// A sentence about the time lost by waiting.
static void put_lost(const struct picture *p)
{
    char total[32], longest[32];
    struct lanes_lost lost = lanes_find_lost(p->plans, p->timeline);
    if (lost.exchange < 0)
        picture_text(p, "right", PICTURE_RIGHT, 24, "nothing is lost by waiting for exchanges");
    else
        picture_text(p, "right", PICTURE_RIGHT, 24,
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
    picture_text(p, strlen(what) > HEAD_MAX ? "rank" : "head", 12, 24, "%s: %s predicted%s", what,
                 units_time(p->timeline->end, end), ratio);
    const struct cp_case *c = &p->plans[0]->c;
    char nodes[64] = "";
    if (case_node(c, c->world_size - 1) > 0)
        snprintf(nodes, sizeof(nodes), " and %g GB/s between nodes", p->rates->node_bytes / 1e9);
    const char *work = work_names(p->plans[0]).flops;
    char flops[64] = "";
    if (work)
        snprintf(flops, sizeof(flops), "%g TFLOP/s of %s, ", p->rates->flops / 1e12, work);
    picture_text(
        p, "small", 12, 44,
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
    picture_text(p, "right", columns[column].x, y, "%s", text);
}

static void put_sums_of(const struct picture *p, int row, double y)
{
    const struct timeline_rank *r = &p->timeline->ranks[p->lanes.first[row]];
    double busy = r->busy[STREAM_COMPUTE];
    char text[32];
    lanes_ranks(&p->lanes, row, text, sizeof(text));
    picture_text(p, "rank", 12, y, "rank%s %s", plural(p->lanes.count[row]), text);
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
    double y = picture_bottom(p) + 40;
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        put_cell(p, (int)i, y, columns[i].name);
    for (int row = 0; row < p->lanes.rows; row++)
        put_sums_of(p, row, y + (row + 1) * ROW_HEIGHT);
}

// ---- the picture ------------------------------------------------------------------------------

static double panel_height(const struct picture *p)
{
    return picture_bottom(p) + 40 + (p->lanes.rows + 1) * ROW_HEIGHT;
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
        picture_idles(p, p->plans[p->lanes.first[row]], false);
    for (int r = 0; r < p->timeline->world_size && few; r++)
        picture_messages(p, p->plans[r]);
    for (int row = 0; row < p->lanes.rows; row++)
        picture_ops(p, p->plans[p->lanes.first[row]]);
    for (int row = 0; row < p->lanes.rows; row++) {
        picture_idles(p, p->plans[p->lanes.first[row]], true);
        picture_critical(p, row);
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
    p.second = p.end > 0 ? (PICTURE_RIGHT - PICTURE_LEFT) / p.end : 0;
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
            PICTURE_WIDTH, height, PICTURE_WIDTH, height, style);
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
