// SPDX-License-Identifier: Apache-2.0
// cpattn-submit explain: the plan of a case, computed and checked without a daemon.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/explain_compare.h"
#include "client/submit/commands/files.h"
#include "client/submit/commands/options.h"
#include "client/submit/commands/trace_file.h"
#include "client/submit/show/svg.h"
#include "client/submit/show/units.h"
#include "common/duration.h"
#include "common/plural.h"

struct explain_options {
    struct options_case about;
    int rank; // -1: not given
    const char *svg, *trace, *compare;
    const char *rate; // the first option for a rate that is given; or NULL
    struct timeline_rates rates;
};

enum {
    KEY_RANK = 1,
    KEY_SVG,
    KEY_TRACE,
    KEY_COMPARE,
    KEY_TFLOPS,
    KEY_MEMORY,
    KEY_LINK,
    KEY_NODE,
    KEY_OVERHEAD
};

static const struct argp_option option_table[] = {
    {.doc = "What to show:", .group = 100},
    {"rank", KEY_RANK, "R", 0, "the rank whose plan is shown, from 0 [0]", 100},
    {"svg", KEY_SVG, "FILE", 0,
     "draw a timeline of all ranks to this file instead; - is standard output", 100},
    {"compare", KEY_COMPARE, "LIST", 0,
     "compare values of comm, such as p2p,a2a,all_gather: a table, and with --svg all on one axis",
     100},
    {"trace", KEY_TRACE, "FILE", 0, "write the timeline of all ranks as a trace for Perfetto", 100},
    {.doc = "Rates that the timeline is based on:", .group = 110},
    {"rate-tflops", KEY_TFLOPS, "N", 0, "attention, in TFLOP/s [400]", 110},
    {"rate-memory", KEY_MEMORY, "N", 0, "memory of a device, in GB/s [3000]", 110},
    {"rate-link", KEY_LINK, "N", 0, "exchange of a rank, in GB/s [300]", 110},
    {"rate-node", KEY_NODE, "N", 0, "exchange of a rank with other nodes, in GB/s [50]", 110},
    {"overhead", KEY_OVERHEAD, "TIME", 0, "overhead of each operation [3us]", 110},
    {.name = NULL}};

static const char help_text[] =
    "Shows the plan of a case: what each step of a rank computes, moves and waits for. First "
    "checks the plans of all ranks for races and deadlocks. Needs no daemon."
    "\vExamples:\n"
    "  cpattn-submit explain --world-size 4\n"
    "  cpattn-submit explain --world-size 4 --sharding contiguous --rank 3\n"
    "  cpattn-submit explain --world-size 4 --comm a2a --seqlen 8192 --svg a2a.svg\n"
    "  cpattn-submit explain --world-size 4 --compare p2p,a2a,all_gather\n"
    "  cpattn-submit explain --world-size 16 --nodes 2 --heads 16 --a2a-size 8 --compare a2a+p2p";

static void rate_given(struct explain_options *o, const char *name)
{
    if (!o->rate)
        o->rate = name;
}

static error_t parse_rate(struct explain_options *o, const char *name, const char *value,
                          double unit, double *rate)
{
    int count;
    error_t failed = options_count(name, value, 1, 1000000, &count);
    if (!failed)
        *rate = count * unit;
    rate_given(o, name);
    return failed;
}

static error_t parse_overhead(struct explain_options *o, const char *value)
{
    uint64_t ns;
    error_t failed = options_duration("overhead", value, &ns);
    if (!failed)
        o->rates.overhead_s = (double)ns * 1e-9;
    rate_given(o, "overhead");
    return failed;
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct explain_options *o = state->input;
    switch (key) {
    case KEY_RANK:
        return options_count("rank", value, 0, WORLD_SIZE_MAX - 1, &o->rank);
    case KEY_SVG:
        o->svg = value;
        return 0;
    case KEY_COMPARE:
        o->compare = value;
        return explain_check_words(value, &o->about.c) ? 0 : EINVAL;
    case KEY_TRACE:
        o->trace = value;
        return 0;
    case KEY_TFLOPS:
        return parse_rate(o, "rate-tflops", value, 1e12, &o->rates.flops);
    case KEY_MEMORY:
        return parse_rate(o, "rate-memory", value, 1e9, &o->rates.memory_bytes);
    case KEY_LINK:
        return parse_rate(o, "rate-link", value, 1e9, &o->rates.link_bytes);
    case KEY_NODE:
        return parse_rate(o, "rate-node", value, 1e9, &o->rates.node_bytes);
    case KEY_OVERHEAD:
        return parse_overhead(o, value);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum status draw(const struct explain_options *o, FILE *svg, struct plan *const *plans,
                        int world_size, struct error *error)
{
    struct timeline *timeline = NULL;
    enum status status = timeline_create(plans, world_size, &o->rates, &timeline, error);
    if (status)
        return status;
    char end[DURATION_TEXT_MAX];
    svg_draw(svg, &(struct svg_panel){plans, timeline}, 1, &o->rates);
    if (svg != stdout)
        printf("%s: %s predicted\n", o->svg,
               duration_format((uint64_t)(timeline->end * 1e9), end, sizeof(end)));
    timeline_destroy(timeline);
    return STATUS_OK;
}

// Prints how much the rank sends within its node and to other nodes, if the case has several nodes.
static void show_nodes(const struct plan *plan)
{
    const struct cp_case *c = &plan->c;
    int32_t nodes = case_node(c, c->world_size - 1) + 1;
    int64_t sent = 0, far = 0;
    char near_text[32], far_text[32];
    if (nodes == 1)
        return;
    for (int32_t i = 0; i < plan->op_count; i++) {
        int64_t op_sent, op_far, received;
        if (plan->ops[i].kind != OP_EXCHANGE)
            continue;
        timeline_traffic(plan, &plan->ops[i], &op_sent, &received);
        timeline_traffic_far(plan, &plan->ops[i], &op_far, &received);
        sent += op_sent;
        far += op_far;
    }
    printf(
        "\n%d nodes of %d rank%s: rank %d is on node %d, and sends %s within it and %s to others\n",
        nodes, c->world_size / nodes, plural(c->world_size / nodes), plan->rank,
        case_node(c, plan->rank), units_bytes(sent - far, near_text), units_bytes(far, far_text));
}

// Checks the plans of a case. Draws them into the file `svg`, or writes one as text if `svg` is
// NULL.
static enum status explain(const struct cp_case *c, const struct explain_options *o, FILE *svg,
                           struct error *error)
{
    struct plan *plans[WORLD_SIZE_MAX] = {NULL};
    if (o->compare)
        return explain_compare(c, o->compare, &o->rates, svg, error);
    enum status status = explain_make_plans(c, svg ? -1 : o->rank, plans, error);
    if (!status && svg != stdout)
        printf("checked together: the plans of %d rank%s have no race and no deadlock\n",
               c->world_size, plural(c->world_size));
    if (!status && svg) {
        status = draw(o, svg, plans, c->world_size, error);
    } else if (!status) {
        putchar('\n');
        plan_explain(plans[o->rank], stdout);
        show_nodes(plans[o->rank]);
    }
    for (int r = 0; r < c->world_size; r++)
        plan_destroy(plans[r]);
    return status;
}

static int explain_into(const struct cp_case *c, const struct explain_options *o)
{
    struct error error;
    bool shown = o->svg && strcmp(o->svg, "-") == 0;
    FILE *svg = shown ? stdout : o->svg ? fopen(o->svg, "we") : NULL;
    if (o->svg && !svg)
        return command_unwritable(o->svg);
    enum status status = explain(c, o, svg, &error);
    bool torn = svg && ferror(svg);
    torn = (svg && !shown && fclose(svg) != 0) || torn;
    if (!status && torn)
        status = error_set(&error, STATUS_DATA_LOSS, "%s could not be written: %s", o->svg,
                           strerror(errno));
    if (status)
        command_complain("%s", error.text);
    return command_exit(status);
}

// Complains about options that have no effect.
static int options_check(const struct explain_options *o)
{
    bool drawn = o->svg || o->compare, timed = drawn || o->trace;
    const struct options_vain list[] = {
        {drawn && o->rank >= 0, "rank",
         o->svg ? "does not go with --svg, which draws all ranks"
                : "does not go with --compare, which compares the plans of all ranks"},
        {o->compare && o->trace, "trace", "does not go with --compare: a trace is of one case"},
        {o->compare && options_given(&o->about.fields, "comm"), "comm",
         "does not go with --compare, whose values replace it"},
        {o->about.c.implementation[0], "implementation", "does not go with explain: " NO_PLAN},
        {o->rate && !timed, o->rate ? o->rate : "",
         "requires --svg, --trace or --compare: the text of a plan has no times"},
        {.option = NULL}};
    return options_vain_check(list);
}

int command_explain(int argc, char **argv)
{
    static const struct argp argp = {
        .options = option_table, .parser = parse_option, .doc = help_text};
    struct explain_options options = {.rank = -1};
    const struct cp_case *c = &options.about.c;
    timeline_rates_init(&options.rates);
    int exit_status = options_parse_case(&options.about, &argp, &options, false, argc, argv);
    if (!exit_status)
        exit_status = options_check(&options);
    if (exit_status)
        return exit_status;
    const char *svg = options.svg && strcmp(options.svg, "-") == 0 ? NULL : options.svg;
    const struct files_entry files[] = {
        {"--svg", svg, true}, {"--trace", options.trace, true}, {.option = NULL}};
    if (options.rank >= c->world_size) {
        command_complain("--rank is %d; accepted is 0 to %d with world_size %d", options.rank,
                         c->world_size - 1, c->world_size);
        return COMMAND_USAGE;
    }
    options.rank = options.rank < 0 ? 0 : options.rank;
    exit_status = files_check(files);
    if (!exit_status)
        exit_status = command_output_check(options.trace);
    if (!exit_status)
        exit_status = explain_into(c, &options);
    if (exit_status == COMMAND_PASS && options.trace)
        exit_status = trace_file_write(options.trace, c, &options.rates, NULL);
    return exit_status;
}
