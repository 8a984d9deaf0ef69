// SPDX-License-Identifier: Apache-2.0
// cpattn-submit bench: the speed of a job, of attention or of the kind that the first argument
// names. The first run is verified; the timed runs are not, so that nothing happens between them.
#include <stdlib.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/files.h"
#include "client/submit/commands/options.h"
#include "client/submit/commands/trace_file.h"
#include "client/submit/outcome/bench_record.h"
#include "client/submit/show/bench_table.h"
#include "client/submit/show/progress.h"
#include "client/submit/show/verdict.h"
#include "client/submit/write/json.h"
#include "plan/plan.h"

#define RUNS_MAX       100000
#define REPEAT_DEFAULT 20
#define WARMUP_DEFAULT 5

#define SLOWER_DEFAULT 5 // percent

struct bench_options {
    const struct job_kind *kind;
    union {
        struct options_case about; // of attention
        struct options_job job;    // of any other kind
    };
    const struct options_asking *asking; // of `about` or `job`
    struct sweep *sweep;
    const char *save, *compare, *trace;
    int repeat, warmup, slower; // slower: -1: not given
};

enum { KEY_REPEAT = 1, KEY_WARMUP, KEY_SAVE, KEY_COMPARE, KEY_SLOWER, KEY_TRACE };

static const struct argp_option option_table[] = {
    {.doc = "How to measure and show it:", .group = 100},
    {"repeat", KEY_REPEAT, "N", 0, "timed runs [20]", 100},
    {"warmup", KEY_WARMUP, "N", 0, "untimed runs before them [5]", 100},
    {"save", KEY_SAVE, "FILE", 0, "also write a JSON object per case to this file", 100},
    {"compare", KEY_COMPARE, "FILE", 0,
     "compare with the bench that this file records; exit with 1 if a case has become slower", 100},
    {"slower", KEY_SLOWER, "PERCENT", 0, "with --compare: how much slower a case may be [5]", 100},
    {"trace", KEY_TRACE, "FILE", 0,
     "run the case once more and write a trace for Perfetto: its operations, predicted and "
     "measured",
     100},
    {.name = NULL}};

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct bench_options *o = state->input;
    switch (key) {
    case KEY_REPEAT:
        return options_count("repeat", value, 1, RUNS_MAX, &o->repeat);
    case KEY_WARMUP:
        return options_count("warmup", value, 0, RUNS_MAX, &o->warmup);
    case KEY_SAVE:
        o->save = value;
        return 0;
    case KEY_COMPARE:
        o->compare = value;
        return 0;
    case KEY_SLOWER:
        return options_count("slower", value, 0, 10000, &o->slower);
    case KEY_TRACE:
        o->trace = value;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char help_text[] =
    "Measures how fast a case is. Runs it once and verifies the result, then repeats it "
    "without verification, and shows the median time of the slowest rank and the spread. "
    "With --verify off nothing is verified. Defaults are in brackets. An option of the case "
    "with commas, as --seqlen 4k,16k, stands for several cases; several such options are "
    "combined. The first argument may name another kind of job, as collective, whose options "
    "follow; bench KIND --help lists them."
    "\vExamples:\n"
    "  cpattn-submit bench --world-size 4 --batch 1 --heads 32 --seqlen 16384\n"
    "  cpattn-submit bench --training false --repeat 100 --json\n"
    "  cpattn-submit bench --seqlen 4k,16k,64k --world-size 4 --save old.jsonl\n"
    "  cpattn-submit bench --seqlen 4k,16k,64k --world-size 4 --compare old.jsonl\n"
    "  cpattn-submit bench collective all_reduce --world-size 2 --size 1k,1m,1g\n"
    "\n"
    "Exit status: 0 measured, 1 a result is wrong or slower than --compare allows, 64 the "
    "command line is wrong, 64 plus the number of the status if the case could not be run; "
    "cpattn-submit(1) lists them.";

static const struct argp argp = {.options = option_table, .parser = parse_option, .doc = help_text};

// ---- the runs ---------------------------------------------------------------------------------

// The bench of one case.
struct session {
    const struct bench_options *options;
    struct cpattn_client *client;
    struct job_spec spec; // as it is timed
    struct bench bench;
    struct outcome verified;      // of the first run
    struct outcome_digest digest; // of the runs without verification
    struct progress progress;     // of all runs
};

// Runs a case once. Returns the exit status, after a message if it is not 0. The caller owns
// *outcome and *result. `digest`: of the runs before, whose bits this run must reproduce if the job
// is deterministic; NULL: not compared.
static int run(struct session *s, const struct job_spec *spec, struct outcome_digest *digest,
               struct outcome *outcome, struct cpattn_result **result)
{
    struct cpattn_error error = {.text = ""};
    bool repeats = spec->kind != &job_kind_attention || spec->attention.deterministic;
    struct cpattn_case *made = command_library_job(spec);
    if (!made)
        return command_exit(STATUS_RESOURCE_EXHAUSTED);
    progress_draw(&s->progress, command_now_ns(), "");
    enum cpattn_status status =
        command_run(s->client, made, s->options->asking->timeout_ns, result, &error);
    cpattn_case_destroy(made);
    progress_clear(&s->progress);
    s->progress.done++;
    enum status memory = outcome_init(outcome, status, *result, error.text);
    outcome->timeout_ns = s->options->asking->timeout_ns;
    if (!memory && *result && digest && repeats)
        memory = outcome_compare(outcome, *result, digest);
    int exit_status = memory ? command_exit(memory) : command_outcome_exit(outcome);
    if (memory)
        command_complain("not enough memory for the answer");
    else if (exit_status != COMMAND_PASS)
        verdict_print_job(stderr, spec, outcome, *result, false);
    return exit_status;
}

static int run_verified(struct session *s, const struct job_spec *asked)
{
    struct cpattn_result *result = NULL;
    int exit_status = run(s, asked, NULL, &s->verified, &result);
    cpattn_result_destroy(result);
    return exit_status;
}

static int run_timed(struct session *s, bool counts)
{
    struct cpattn_result *result = NULL;
    struct outcome outcome = {.kind = OUTCOME_NOT_RUN};
    int exit_status = run(s, &s->spec, &s->digest, &outcome, &result);
    if (exit_status == COMMAND_PASS && counts)
        bench_add(&s->bench, &s->spec, result);
    outcome_fini(&outcome);
    cpattn_result_destroy(result);
    return exit_status;
}

// Turns verification off for the timed runs: `verify` is "off" for attention and "false" for other
// kinds of job that have the field.
static void verify_not(struct job_spec *spec)
{
    if (spec->kind == &job_kind_attention)
        spec->attention.verify = VERIFY_OFF;
    else if (job_kind_field(spec->kind, "verify"))
        (void)!job_spec_set(spec, "verify", "false", NULL);
}

// The times of operations are taken in a run of their own, so that this does not disturb the timed
// runs.
static int run_traced(struct session *s)
{
    struct cpattn_result *result = NULL;
    struct outcome outcome = {.kind = OUTCOME_NOT_RUN};
    struct timeline_rates rates;
    struct job_spec spec = s->spec;
    trace_file_ask(&spec.attention);
    timeline_rates_init(&rates);
    int exit_status = run(s, &spec, &s->digest, &outcome, &result);
    if (exit_status == COMMAND_PASS)
        exit_status = trace_file_write(s->options->trace, &spec.attention, &rates, result);
    outcome_fini(&outcome);
    cpattn_result_destroy(result);
    return exit_status;
}

static int measure(struct session *s, const struct job_spec *asked)
{
    const struct bench_options *o = s->options;
    int count = 1 + o->warmup + o->repeat + (o->trace != NULL);
    progress_init(&s->progress, stderr, count, command_now_ns());
    s->progress.runs = true;
    int exit_status = run_verified(s, asked);
    s->spec = *asked;
    verify_not(&s->spec);
    for (int i = 0; i < o->warmup && exit_status == COMMAND_PASS && !command_interrupted(); i++)
        exit_status = run_timed(s, false);
    for (int i = 0; i < o->repeat && exit_status == COMMAND_PASS && !command_interrupted(); i++)
        exit_status = run_timed(s, true);
    if (o->trace && exit_status == COMMAND_PASS && !command_interrupted())
        exit_status = run_traced(s);
    return command_interrupted() ? command_exit(STATUS_CANCELLED) : exit_status;
}

// ---- series -----------------------------------------------------------------------------------

// What all cases have in common.
struct series {
    const struct bench_options *options;
    struct cpattn_client *client;
    struct bench_record *earlier; // of --compare; or NULL
    FILE *save;                   // or NULL
    struct table *table;          // of several cases; or NULL
    int slower;                   // cases that have become too slow
};

// Creates the plan of a rank. UNIMPLEMENTED: this kind of job has none.
static enum status plan_of(const struct job_spec *spec, int rank, struct plan **plan)
{
    struct error ignored;
    if (spec->kind == &job_kind_attention)
        return plan_create(&spec->attention, rank, plan, &ignored);
    return spec->kind->plan ? spec->kind->plan(spec->bytes, rank, plan, &ignored)
                            : STATUS_UNIMPLEMENTED;
}

// The most bytes that any rank sends in forward and backward; 0: unknown.
static int64_t bytes_sent(const struct job_spec *spec)
{
    int64_t most = 0;
    int world_size = job_spec_needs(spec).world_size;
    for (int r = 0; r < world_size; r++) {
        struct plan *plan = NULL;
        int64_t sent = 0;
        if (plan_of(spec, r, &plan) != STATUS_OK)
            return 0;
        for (int32_t i = 0; i < plan->op_count; i++)
            sent += op_bytes(plan, &plan->ops[i]);
        plan_destroy(plan);
        most = sent > most ? sent : most;
    }
    return most;
}

static double earlier_ns(const struct series *series, const struct job_spec *spec)
{
    char command[CASE_COMMAND_MAX];
    job_spec_command(spec, command, sizeof(command));
    const struct bench_entry *entry =
        series->earlier ? bench_record_find(series->earlier, command) : NULL;
    if (series->earlier && !entry)
        command_complain("%s has no bench of %s", series->options->compare,
                         command + strlen("cpattn-submit "));
    return entry ? entry->device_ns : 0;
}

// Reports a case that has become too slow.
static enum status judge(struct series *series, const struct bench_shown *shown,
                         struct error *error)
{
    char what[256];
    double ns;
    int slower = series->options->slower >= 0 ? series->options->slower : SLOWER_DEFAULT;
    enum status status = bench_device_ns(shown->bench, &ns, error);
    if (status || shown->earlier_ns <= 0 || ns <= shown->earlier_ns * (1 + slower / 100.0))
        return status;
    job_spec_describe(shown->spec, what, sizeof(what));
    command_complain("%s: %s %.3f times as long as in %s", what,
                     shown->spec->kind == &job_kind_attention ? "forward and backward take"
                                                              : "a run takes",
                     ns / shown->earlier_ns, series->options->compare);
    series->slower++;
    return STATUS_OK;
}

static void fill_point(const struct series *series, int point)
{
    const struct sweep *sweep = series->options->sweep;
    table_row(series->table);
    for (int i = 0; i < sweep->count; i++)
        table_cell(series->table, PAINT_PLAIN, "%s", sweep_value(sweep, point, i));
}

static int show(struct series *series, const struct session *s, int point)
{
    struct error error;
    const struct bench_options *o = series->options;
    struct bench_shown shown = {.spec = &s->spec,
                                .bench = &s->bench,
                                .verified = &s->verified,
                                .warmup = o->warmup,
                                .repeat = o->repeat,
                                .sent = bytes_sent(&s->spec),
                                .earlier_ns = earlier_ns(series, &s->spec)};
    enum status status = judge(series, &shown, &error);
    if (series->save && !json_bench(series->save, &s->spec, &s->verified, o->warmup, &s->bench))
        return command_file_failed(series->save, o->save, "the record");
    if (o->asking->json && !json_bench(stdout, &s->spec, &s->verified, o->warmup, &s->bench))
        return command_show_failed("the JSON");
    if (!status && series->table) {
        fill_point(series, point);
        status = bench_table_row(series->table, &shown, series->earlier != NULL, &error);
    } else if (!status && !o->asking->json) {
        status = bench_table_print(stdout, &shown, &error);
    }
    if (status != STATUS_OK)
        command_complain("%s", error.text);
    return command_exit(status);
}

// ---- the cases --------------------------------------------------------------------------------

static void point_fill(const struct bench_options *o, int point, struct job_spec *spec)
{
    if (o->kind == &job_kind_attention)
        options_point(&o->about, point, spec);
    else
        options_job_point(&o->job, point, spec);
}

static int bench_point(struct series *series, int point)
{
    struct session s = {.options = series->options, .client = series->client};
    struct job_spec spec;
    struct error error;
    point_fill(series->options, point, &spec);
    if (bench_init(&s.bench, series->options->repeat, &error)) {
        command_complain("%s", error.text);
        return command_exit(STATUS_RESOURCE_EXHAUSTED);
    }
    int exit_status = measure(&s, &spec);
    // After an interrupt the runs so far are shown.
    if (exit_status == COMMAND_PASS || (command_interrupted() && s.bench.runs > 0))
        exit_status = command_graver(exit_status, show(series, &s, point));
    outcome_fini(&s.verified);
    bench_fini(&s.bench);
    return exit_status;
}

// "SEQLEN COMM": the columns of the fields with several values.
static struct table *sweep_table(const struct series *series)
{
    const struct sweep *sweep = series->options->sweep;
    char names[SWEEP_FIELDS_MAX * 32] = "";
    size_t used = 0;
    for (int i = 0; i < sweep->count && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s>%s", i ? " " : "",
                                 sweep->fields[i].name);
    for (char *c = names; *c; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    struct job_spec spec;
    point_fill(series->options, 0, &spec);
    return bench_table_create(stdout, names, &spec, series->earlier != NULL);
}

// Measures the other cases even if one fails or cannot be run. Returns the gravest exit status.
static int bench_all(struct series *series)
{
    int exit_status = COMMAND_PASS;
    int points = sweep_points(series->options->sweep);
    if (points > 1 && !series->options->asking->json)
        series->table = sweep_table(series);
    for (int i = 0; i < points && !command_interrupted(); i++)
        exit_status = command_graver(exit_status, bench_point(series, i));
    if (series->table)
        table_print(series->table, "");
    table_destroy(series->table);
    return series->slower ? COMMAND_FAIL : exit_status;
}

// ---- files ------------------------------------------------------------------------------------

static int open_earlier(struct series *series)
{
    const struct bench_options *o = series->options;
    const struct options_vain vain[] = {
        {o->slower >= 0 && !o->compare, "slower", "requires --compare"}, {.option = NULL}};
    const struct files_entry files[] = {{"--save", o->save, true},
                                        {"--trace", o->trace, true},
                                        {"--compare", o->compare, false},
                                        {.option = NULL}};
    struct error error;
    if (options_vain_check(vain) || files_check(files))
        return COMMAND_USAGE;
    if (o->compare && bench_record_load(o->compare, &series->earlier, &error)) {
        command_complain("%s", error.text);
        return COMMAND_USAGE;
    }
    return command_output_check(o->trace);
}

// When the daemon is there: without it an earlier record stays as it is.
static int open_save(struct series *series)
{
    const char *path = series->options->save;
    if (path && !(series->save = fopen(path, "we")))
        return command_unwritable(path);
    return COMMAND_PASS;
}

static int close_files(struct series *series, int exit_status)
{
    bool told = series->save && ferror(series->save); // when the write of a case failed
    bench_record_destroy(series->earlier);
    if (!series->save || fclose(series->save) == 0 || told)
        return exit_status;
    int unwritten = command_unwritten(series->options->save);
    return exit_status ? exit_status : unwritten;
}

// False after an error message.
static bool can_trace(const struct bench_options *o)
{
    int points = sweep_points(o->sweep);
    if (o->kind != &job_kind_attention)
        command_complain("--trace takes a case of attention, and this is a %s", o->kind->name);
    else if (points > 1)
        command_complain("--trace takes one case, and these options stand for %d", points);
    return o->kind == &job_kind_attention && points == 1;
}

static int bench(const struct bench_options *o)
{
    struct series series = {.options = o};
    if (o->trace && !can_trace(o))
        return COMMAND_USAGE;
    int exit_status = open_earlier(&series);
    if (!exit_status) {
        command_catch_interrupts();
        series.client = options_connect(o->asking, &exit_status);
    }
    if (series.client)
        exit_status = open_save(&series);
    if (series.client && !exit_status)
        exit_status = bench_all(&series);
    cpattn_client_destroy(series.client);
    return close_files(&series, exit_status);
}

// Returns the kind of job that argv[1] names, and replaces argv[1] by `name`, the new name of the
// command, at which the command line then begins. Attention, with nothing replaced, if argv[1]
// names no kind.
static const struct job_kind *kind_take(int *argc, char **argv, char name[64])
{
    const struct job_kind *kind = *argc > 1 ? job_kind_find(argv[1]) : NULL;
    if (!kind || !kind->fields)
        return &job_kind_attention;
    snprintf(name, 64, "%s %s", argv[0], kind->name);
    argv[1] = name;
    (*argc)--;
    return kind;
}

static int parse(struct bench_options *o, int argc, char **argv)
{
    char name[64];
    o->kind = kind_take(&argc, argv, name);
    if (o->kind == &job_kind_attention) {
        o->asking = &o->about.asking;
        o->sweep = &o->about.fields.sweep;
        o->about.sweeps = true;
        return options_parse_case(&o->about, &argp, o, true, argc, argv);
    }
    const struct argp of_kind = {.options = option_table,
                                 .parser = parse_option,
                                 .args_doc = o->kind->argument ? "[ARGUMENT]" : NULL,
                                 .doc = help_text};
    o->asking = &o->job.asking;
    o->sweep = &o->job.fields.sweep;
    o->job.sweeps = true;
    return options_parse_job(&o->job, o->kind, &of_kind, o, argc, argv + 1);
}

int command_bench(int argc, char **argv)
{
    struct bench_options options = {
        .repeat = REPEAT_DEFAULT, .warmup = WARMUP_DEFAULT, .slower = -1};
    int exit_status = parse(&options, argc, argv);
    if (!exit_status)
        exit_status = bench(&options);
    sweep_fini(options.sweep);
    return exit_status;
}
