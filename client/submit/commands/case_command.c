// SPDX-License-Identifier: Apache-2.0
// cpattn-submit case: one case, or the same one several times.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/dump.h"
#include "client/submit/commands/files.h"
#include "client/submit/commands/options.h"
#include "client/submit/commands/repeats.h"
#include "client/submit/commands/smaller.h"
#include "client/submit/commands/trace_file.h"
#include "client/submit/show/progress.h"
#include "client/submit/show/verdict.h"
#include "client/submit/write/json.h"
#include "common/duration.h"
#include "common/plural.h"

#define REPEAT_MAX 1000000

struct case_options {
    struct options_case about;
    int repeat;
    bool verbose, minimize;
    const char *dump_fails, *trace;
};

enum { KEY_REPEAT = 1, KEY_DUMP_FAILS, KEY_TRACE, KEY_MINIMIZE };

static const struct argp_option option_table[] = {
    {.doc = "How to run and show it:", .group = 100},
    {"repeat", KEY_REPEAT, "N", 0,
     "run it N times, one after the other; all runs must give the same results bit for bit "
     "[1]",
     100},
    {"verbose", 'v', NULL, 0, "show the figures of every chunk, the times of every rank", 100},
    {"trace", KEY_TRACE, "FILE", 0,
     "write a trace for Perfetto: the operations of each rank, predicted and measured", 100},
    {"dump-fails", KEY_DUMP_FAILS, "DIR", 0, DUMP_FAILS_HELP, 100},
    {"minimize", KEY_MINIMIZE, NULL, 0,
     "if it does not pass, look for the smallest case that fails in the same way", 100},
    {.name = NULL}};

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct case_options *o = state->input;
    switch (key) {
    case KEY_REPEAT:
        return options_count("repeat", value, 1, REPEAT_MAX, &o->repeat);
    case 'v':
        o->verbose = true;
        return 0;
    case KEY_TRACE:
        o->trace = value;
        return 0;
    case KEY_DUMP_FAILS:
        o->dump_fails = value;
        return 0;
    case KEY_MINIMIZE:
        o->minimize = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char help_text[] =
    "Runs one case and compares its results with an independent reference. Defaults are in "
    "brackets."
    "\vExamples:\n"
    "  cpattn-submit case\n"
    "  cpattn-submit case --world-size 4 --heads 32 --kv-heads 4 --seqlen 4096\n"
    "  cpattn-submit case --dtype fp16 --mask none --repeat 20\n"
    "\n"
    "Exit status: 0 pass, 1 fail, 64 the command line is wrong, 64 plus the number of the "
    "status if the case could not be run; cpattn-submit(1) lists them.";

static const struct argp argp = {.options = option_table, .parser = parse_option, .doc = help_text};

// ---- one run ----------------------------------------------------------------------------------

// What the runs have in common.
struct runs {
    const struct case_options *options;
    const struct options_asking *asking;
    const struct cp_case *c;
    struct cpattn_case *library_case;
    struct cpattn_client *client;
    struct outcome_digest digest;
    uint64_t *run_ns; // [repeat], of the runs so far
    struct progress progress;
    int done;
};

static int show(const struct runs *runs, const struct outcome *outcome,
                const struct cpattn_result *result)
{
    const struct case_options *o = runs->options;
    int exit_status = command_outcome_exit(outcome), written = COMMAND_PASS;
    bool last = runs->done == o->repeat || exit_status != COMMAND_PASS;
    if (runs->asking->json)
        written = command_json_exit(json_answer(stdout, NULL, runs->c, outcome, result));
    else if (last)
        verdict_print(stdout, runs->c, outcome, result, o->verbose);
    return command_graver(exit_status, written);
}

static void fail_dump(const struct runs *runs)
{
    char name[32];
    snprintf(name, sizeof(name), "case-%016" PRIx64, case_hash(runs->c));
    (void)dump_fail(runs->client, runs->c, runs->asking->timeout_ns, runs->options->dump_fails,
                    name);
}

// Writes the trace of this run in place of that of the run before.
static int write_trace(const struct runs *runs, const struct cpattn_result *result)
{
    struct timeline_rates rates;
    timeline_rates_init(&rates);
    return trace_file_write(runs->options->trace, runs->c, &rates, result);
}

// Searches for the smallest case that fails in the same way, and shows it.
static void minimize(const struct runs *runs, const struct outcome *outcome)
{
    struct smaller search;
    if (command_interrupted())
        return;
    smaller_find(&search, runs->client, runs->c, outcome, runs->asking->timeout_ns);
    bool json = runs->asking->json;
    if (!json)
        printf("\n%s%d smaller case%s tried; %s\n",
               command_interrupted() ? "interrupted: "
               : search.lost         ? "the daemon does not answer any more: "
                                     : "",
               search.tried, plural(search.tried),
               search.found ? "the smallest that fails in the same way:"
                            : "none fails as this one");
    if (search.found && json)
        (void)json_answer(stdout, NULL, &search.c, &search.outcome, search.result);
    else if (search.found)
        verdict_print(stdout, &search.c, &search.outcome, search.result, runs->options->verbose);
    smaller_fini(&search);
}

// Runs the case once more. Returns the exit status.
static int run(struct runs *runs)
{
    struct cpattn_result *result = NULL;
    struct cpattn_error error = {.text = ""};
    struct outcome outcome;
    progress_draw(&runs->progress, command_now_ns(), "");
    enum cpattn_status status =
        command_run(runs->client, runs->library_case, runs->asking->timeout_ns, &result, &error);
    progress_clear(&runs->progress);
    runs->progress.done++;
    enum status memory = outcome_init(&outcome, status, result, error.text);
    outcome.timeout_ns = runs->asking->timeout_ns;
    runs->run_ns[runs->done++] = outcome.run_ns;
    if (!memory && result && runs->c->deterministic)
        memory = outcome_compare(&outcome, result, &runs->digest);
    if (memory)
        command_complain("not enough memory for the answer");
    int exit_status = memory ? command_exit(memory) : show(runs, &outcome, result);
    if (!memory && outcome.kind == OUTCOME_FAIL && runs->options->dump_fails)
        fail_dump(runs);
    if (!memory && !outcome_is_good(&outcome) && runs->options->minimize)
        minimize(runs, &outcome);
    if (!memory && runs->options->trace && result && cpattn_result_rank(result, 0))
        exit_status = command_graver(exit_status, write_trace(runs, result));
    outcome_fini(&outcome);
    cpattn_result_destroy(result);
    return exit_status;
}

static int run_all(struct runs *runs)
{
    int exit_status = COMMAND_PASS;
    progress_init(&runs->progress, stderr, runs->options->repeat, command_now_ns());
    runs->progress.runs = true;
    runs->progress.live = runs->progress.live && runs->options->repeat > 1;
    while (runs->done < runs->options->repeat && exit_status == COMMAND_PASS &&
           !(runs->done > 0 && command_interrupted()))
        exit_status = run(runs);
    if (runs->options->repeat == 1)
        return exit_status;
    int passed = exit_status == COMMAND_PASS ? runs->done : runs->done - 1;
    bool cut_short = command_interrupted() && passed > 0;
    if ((exit_status == COMMAND_PASS || cut_short) && !runs->asking->json)
        repeats_print(runs->run_ns, passed, runs->options->repeat,
                      runs->c->deterministic ? &runs->digest.first : NULL);
    return command_interrupted() ? command_exit(STATUS_CANCELLED) : exit_status;
}

static int submit(const struct case_options *o)
{
    const struct cp_case *c = &o->about.c;
    struct runs runs = {.options = o, .asking = &o->about.asking, .c = c};
    int exit_status = command_exit(STATUS_RESOURCE_EXHAUSTED);
    runs.library_case = command_library_case(c);
    runs.run_ns = calloc((size_t)o->repeat, sizeof(*runs.run_ns));
    if (!runs.run_ns)
        command_complain("not enough memory for %d runs", o->repeat);
    if (runs.library_case && runs.run_ns) {
        command_catch_interrupts();
        runs.client = options_connect(runs.asking, &exit_status);
        if (runs.client)
            exit_status = run_all(&runs);
    }
    cpattn_client_destroy(runs.client);
    cpattn_case_destroy(runs.library_case);
    free(runs.run_ns);
    return exit_status;
}

int command_case(int argc, char **argv)
{
    struct case_options options = {.repeat = 1};
    int exit_status = options_parse_case(&options.about, &argp, &options, true, argc, argv);
    bool timed = options.about.c.operation_times;
    if (options.trace)
        trace_file_ask(&options.about.c);
    const struct options_vain vain[] = {{options_given(&options.about.fields, "operation-times") &&
                                             timed != options.about.c.operation_times,
                                         "operation-times", OPERATION_TIMES_WHY},
                                        {.option = NULL}};
    if (!exit_status)
        exit_status = options_vain_check(vain);
    const struct files_entry files[] = {{"--trace", options.trace, true},
                                        {"--dump-fails", options.dump_fails, false},
                                        {.option = NULL}};
    if (!exit_status)
        exit_status = files_check(files);
    if (!exit_status)
        exit_status = command_output_check(options.trace);
    if (!exit_status)
        exit_status = dump_check(options.dump_fails);
    return exit_status ? exit_status : submit(&options);
}
