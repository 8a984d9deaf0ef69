// SPDX-License-Identifier: Apache-2.0
// cpattn-submit KIND: one job of another kind than attention, or the same one several times. Its
// options are the fields of the kind.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/files.h"
#include "client/submit/commands/options.h"
#include "client/submit/commands/repeats.h"
#include "client/submit/commands/trace_file.h"
#include "client/submit/show/verdict.h"
#include "client/submit/write/json.h"
#include "plan/plan.h"

#define REPEAT_MAX 1000000

struct job_options {
    struct options_job about;
    int repeat;    // 0: not given
    int explained; // a rank, or -1
    const char *svg, *trace;
    bool verbose;
};

enum { KEY_REPEAT = 1, KEY_EXPLAIN, KEY_SVG, KEY_TRACE };

static const struct argp_option option_table[] = {
    {.doc = "How to run and show it:", .group = 100},
    {"repeat", KEY_REPEAT, "N", 0,
     "run it N times, one after the other; all results must have the same bits [1]", 100},
    {"verbose", 'v', NULL, 0, "show the figures and times of every rank", 100},
    {"explain", KEY_EXPLAIN, "RANK", 0,
     "print what this rank would do, and run nothing; without a daemon", 100},
    {"svg", KEY_SVG, "FILE", 0,
     "draw the predicted timeline of all ranks to this file, and run nothing; - is standard "
     "output; without a daemon",
     100},
    {"trace", KEY_TRACE, "FILE", 0,
     "write the predicted and the measured timeline of all ranks as a trace for Perfetto", 100},
    {.name = NULL}};

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct job_options *o = state->input;
    switch (key) {
    case KEY_REPEAT:
        return options_count("repeat", value, 1, REPEAT_MAX, &o->repeat);
    case KEY_EXPLAIN:
        return options_count("explain", value, 0, WORLD_SIZE_MAX - 1, &o->explained);
    case KEY_SVG:
        o->svg = value;
        return 0;
    case KEY_TRACE:
        o->trace = value;
        return 0;
    case 'v':
        o->verbose = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// ---- without a daemon -------------------------------------------------------------------------

static bool has_plan(const struct job_options *o)
{
    const struct job_kind *kind = o->about.spec.kind;
    if (!kind->plan)
        command_complain("there is nothing to explain of a job '%s'", kind->name);
    return kind->plan;
}

static int explain(const struct job_options *o)
{
    const struct job_spec *spec = &o->about.spec;
    int world_size = job_spec_needs(spec).world_size;
    struct error error;
    if (o->explained >= world_size) {
        command_complain("--explain is '%d'; accepted is 0 to %d", o->explained, world_size - 1);
        return COMMAND_USAGE;
    }
    struct plan *plan;
    enum status status = spec->kind->plan(spec->bytes, o->explained, &plan, &error);
    if (status != STATUS_OK) {
        command_complain("%s", error.text);
        return command_exit(status);
    }
    plan_explain(plan, stdout);
    plan_destroy(plan);
    return COMMAND_PASS;
}

// ---- with a daemon ----------------------------------------------------------------------------

static int show(const struct job_options *o, const struct outcome *outcome,
                const struct cpattn_result *result, bool last)
{
    const struct options_job *about = &o->about;
    if (about->asking.json)
        return command_json_exit(json_job(stdout, NULL, &about->spec, outcome, result));
    if (last)
        verdict_print_job(stdout, &about->spec, outcome, result, o->verbose);
    return COMMAND_PASS;
}

// What the runs have in common.
struct runs {
    const struct job_options *options;
    struct cpattn_client *client;
    struct cpattn_case *c;
    struct outcome_digest digest;
    uint64_t *run_ns; // [repeat], of the runs so far
    int done;
};

// Runs the job once more. Returns the exit status.
static int run(struct runs *runs)
{
    const struct job_options *o = runs->options;
    const struct options_asking *asking = &o->about.asking;
    struct cpattn_result *result = NULL;
    struct cpattn_error error = {.text = ""};
    struct outcome outcome;
    enum cpattn_status status =
        command_run(runs->client, runs->c, asking->timeout_ns, &result, &error);
    enum status memory = outcome_init(&outcome, status, result, error.text);
    outcome.timeout_ns = asking->timeout_ns;
    runs->run_ns[runs->done++] = outcome.run_ns;
    if (!memory && result)
        memory = outcome_compare(&outcome, result, &runs->digest);
    if (memory)
        command_complain("not enough memory for the answer");
    int exit_status = memory ? command_exit(memory) : command_outcome_exit(&outcome);
    bool last = runs->done == o->repeat || exit_status != COMMAND_PASS;
    int shown = memory ? exit_status : show(o, &outcome, result, last);
    if (!memory && o->trace && last && result && cpattn_result_rank(result, 0))
        shown = command_graver(shown, trace_file_write_job(o->trace, &o->about.spec, result));
    outcome_fini(&outcome);
    cpattn_result_destroy(result);
    return command_graver(exit_status, shown);
}

static int run_all(struct runs *runs)
{
    int exit_status = COMMAND_PASS, asked = runs->options->repeat;
    while (runs->done < asked && exit_status == COMMAND_PASS &&
           !(runs->done > 0 && command_interrupted()))
        exit_status = run(runs);
    int passed = exit_status == COMMAND_PASS ? runs->done : runs->done - 1;
    if (asked > 1 && (exit_status == COMMAND_PASS || (command_interrupted() && passed > 0)) &&
        !runs->options->about.asking.json)
        repeats_print(runs->run_ns, passed, asked, &runs->digest.first);
    return asked > 1 && command_interrupted() ? command_exit(STATUS_CANCELLED) : exit_status;
}

static int submit(const struct job_options *o)
{
    int exit_status = command_exit(STATUS_RESOURCE_EXHAUSTED);
    struct runs runs = {.options = o};
    runs.c = command_library_job(&o->about.spec);
    runs.run_ns = calloc((size_t)o->repeat, sizeof(*runs.run_ns));
    if (!runs.run_ns)
        command_complain("not enough memory for %d runs", o->repeat);
    if (runs.c && runs.run_ns) {
        command_catch_interrupts();
        runs.client = options_connect(&o->about.asking, &exit_status);
        if (runs.client)
            exit_status = run_all(&runs);
    }
    cpattn_client_destroy(runs.client);
    cpattn_case_destroy(runs.c);
    free(runs.run_ns);
    return exit_status;
}

// Sets operation_times, which a trace needs, except for a guest, which has none. False after a
// complaint.
static bool ask_times(struct job_spec *spec)
{
    struct error error;
    if (job_spec_needs(spec).implementation[0])
        return true;
    enum status status = job_spec_set(spec, "operation_times", "true", &error);
    if (status)
        command_complain("%s", error.text);
    return status == STATUS_OK;
}

// True if the command line sets operation_times to false.
static bool refuses_times(const struct job_options *o)
{
    const struct job_spec *spec = &o->about.spec;
    const struct case_field *field = job_kind_field(spec->kind, "operation_times");
    char value[JOB_FIELD_VALUE_MAX];
    if (!field || !options_given(&o->about.fields, "operation-times"))
        return false;
    job_spec_get(spec, field, value, sizeof(value));
    return strcmp(value, "false") == 0;
}

// Complains about options that have no effect.
static int options_check(const struct job_options *o)
{
    const char *asking = o->about.asking.given ? o->about.asking.given : command_access_given();
    bool runs = o->explained < 0 && !o->svg;
    const char *why = o->svg ? "does not go with --svg, which runs nothing"
                             : "does not go with --explain, which runs nothing";
    bool guest = job_spec_needs(&o->about.spec).implementation[0];
    const struct options_vain list[] = {
        {!runs && guest, "implementation",
         o->svg ? "does not go with --svg: " NO_PLAN : "does not go with --explain: " NO_PLAN},
        {!runs && o->repeat > 0, "repeat", why},
        {!runs && o->verbose, "verbose", why},
        {!runs && asking, asking ? asking : "", why},
        {o->trace && refuses_times(o), "operation-times", OPERATION_TIMES_WHY},
        {.option = NULL}};
    return options_vain_check(list);
}

int command_job(const struct job_kind *kind, int argc, char **argv)
{
    char doc[1024], argument[JOB_FIELD_NAME_MAX + 2] = "";
    struct job_options o = {.explained = -1};
    if (kind->argument)
        snprintf(argument, sizeof(argument), "[%s]", kind->argument);
    for (char *c = argument; *c; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    snprintf(doc, sizeof(doc),
             "Asks the daemon to %s, and checks the result. Defaults are in "
             "brackets.\v"
             "Exit status: 0 pass, 1 fail, 64 the command line is wrong, 64 plus the number of the "
             "status when it could not be run; cpattn-submit(1) lists them.",
             kind->about);
    const struct argp argp = {.options = option_table,
                              .parser = parse_option,
                              .args_doc = kind->argument ? argument : NULL,
                              .doc = doc};
    int exit_status = options_parse_job(&o.about, kind, &argp, &o, argc, argv);
    if (exit_status != COMMAND_PASS)
        return exit_status;
    if ((o.explained >= 0) + (o.svg != NULL) + (o.trace != NULL) > 1) {
        command_complain("--explain, --svg and --trace are given together; give one of them");
        return COMMAND_USAGE;
    }
    if (options_check(&o))
        return COMMAND_USAGE;
    o.repeat = o.repeat > 0 ? o.repeat : 1;
    const struct files_entry files[] = {{"--trace", o.trace, true}, {.option = NULL}};
    if ((o.explained >= 0 || o.svg || o.trace) && !has_plan(&o))
        return COMMAND_USAGE;
    if (o.explained >= 0)
        return explain(&o);
    if (o.svg)
        return picture_file_write_job(o.svg, &o.about.spec);
    if (files_check(files) || command_output_check(o.trace) ||
        (o.trace && !ask_times(&o.about.spec)))
        return COMMAND_USAGE;
    return submit(&o);
}
