// SPDX-License-Identifier: Apache-2.0
// cpattn-submit explain: the plan of a case, made and checked here; no daemon is asked.
#include <stdlib.h>

#include "client/submit/command.h"
#include "client/submit/options.h"
#include "plan/plan.h"

struct explain_options {
    struct options_fields *fields;
    int rank;
};

enum { KEY_RANK = 1 };

static const struct argp_option option_table[] = {
    {.doc = "What to show:", .group = 100},
    {"rank", KEY_RANK, "R", 0, "the rank whose plan is shown, from 0 [0]", 100},
    {.name = NULL}};

static const char help_text[] =
    "Shows the plan of a case: what each step of a rank computes, moves and waits for. The plans "
    "of "
    "all ranks are checked for races and deadlocks first. Needs no daemon."
    "\vExamples:\n"
    "  cpattn-submit explain --world-size 4\n"
    "  cpattn-submit explain --world-size 4 --sharding contiguous --rank 3";

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct explain_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = o->fields;
        return 0;
    case KEY_RANK:
        return options_count("rank", value, 0, WORLD_SIZE_MAX - 1, &o->rank);
    case ARGP_KEY_ARG:
        return options_no_argument(state, value);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int explain(const struct cp_case *c, int rank)
{
    struct plan *plans[WORLD_SIZE_MAX] = {NULL};
    struct error error;
    enum status status = STATUS_OK;
    for (int r = 0; r < c->world_size && !status; r++)
        status = plan_create(c, r, &plans[r], &error);
    if (!status)
        status = plan_check(plans, c->world_size, &error);
    if (status)
        command_complain("%s", error.text);
    else {
        printf("checked together: the plans of %d rank%s have no race and no deadlock\n\n",
               c->world_size, c->world_size == 1 ? "" : "s");
        plan_explain(plans[rank], stdout);
    }
    for (int r = 0; r < c->world_size; r++)
        plan_destroy(plans[r]);
    return command_exit(status);
}

int command_explain(int argc, char **argv)
{
    struct options_fields fields;
    struct explain_options options = {.fields = &fields};
    struct cp_case c;
    struct error error;
    case_init(&c);
    options_fields_init(&fields, &c);
    struct argp_child children[] = {{&fields.argp, 0, NULL, 0}, {.argp = NULL}};
    struct argp argp = {
        .options = option_table, .parser = parse_option, .doc = help_text, .children = children};
    int exit_status = options_parse(&argp, argc, argv, &options);
    if (exit_status)
        return exit_status;
    enum status status = case_check(&c, &error);
    if (status) {
        command_complain("%s", error.text);
        return command_exit(status);
    }
    if (options.rank >= c.world_size) {
        command_complain("--rank is %d; accepted is 0 to %d with world_size %d", options.rank,
                         c.world_size - 1, c.world_size);
        return COMMAND_USAGE;
    }
    return explain(&c, options.rank);
}
