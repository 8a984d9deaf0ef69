// SPDX-License-Identifier: Apache-2.0
// cpattn-submit bench: how fast a case is. It is verified once; then it is repeated without, so
// that what is timed has been shown to be right and nothing stands between the runs.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/options.h"
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
    struct options_case about;
    const char *save, *compare;
    int repeat, warmup, slower;
};

enum { KEY_REPEAT = 1, KEY_WARMUP, KEY_SAVE, KEY_COMPARE, KEY_SLOWER };

static const struct argp_option option_table[] = {
    {.doc = "How to measure and show it:", .group = 100},
    {"repeat", KEY_REPEAT, "N", 0, "timed runs [20]", 100},
    {"warmup", KEY_WARMUP, "N", 0, "untimed runs before them [5]", 100},
    {"save", KEY_SAVE, "FILE", 0, "also write a JSON object per case to this file", 100},
    {"compare", KEY_COMPARE, "FILE", 0,
     "compare with the bench that this file records; exit with 1 if a case has become slower", 100},
    {"slower", KEY_SLOWER, "PERCENT", 0, "with --compare: how much slower a case may be [5]", 100},
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
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char help_text[] =
    "Measures how fast a case is. Runs it once and verifies the result, then repeats it "
    "without verification, and shows the median time of the slowest rank and the spread. "
    "With --verify off nothing is verified. Defaults are in brackets. An option of the case "
    "with commas, as --seqlen 4k,16k, stands for several cases; several such options are "
    "combined."
    "\vExamples:\n"
    "  cpattn-submit bench --world-size 4 --batch 1 --heads 32 --seqlen 16384\n"
    "  cpattn-submit bench --training false --repeat 100 --json\n"
    "  cpattn-submit bench --seqlen 4k,16k,64k --world-size 4 --save old.jsonl\n"
    "  cpattn-submit bench --seqlen 4k,16k,64k --world-size 4 --compare old.jsonl\n"
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
    struct cp_case c; // as it is timed
    struct bench bench;
    struct outcome verified;      // of the first run
    struct outcome_digest digest; // of those without verification
    struct progress progress;     // of all runs
};

// Runs a case once; the exit status, after words where that is not 0. *outcome and *result are the
// caller's to end. `digest`: of the runs that it has to agree with, or NULL.
static int run(struct session *s, const struct cp_case *c, struct outcome_digest *digest,
               struct outcome *outcome, struct cpattn_result **result)
{
    struct cpattn_error error = {.text = ""};
    struct cpattn_case *made = command_library_case(c);
    if (!made)
        return command_exit(STATUS_RESOURCE_EXHAUSTED);
    progress_draw(&s->progress, command_now_ns(), "");
    enum cpattn_status status =
        command_run(s->client, made, s->options->about.asking.timeout_ns, result, &error);
    cpattn_case_destroy(made);
    progress_clear(&s->progress);
    s->progress.done++;
    enum status memory = outcome_init(outcome, status, *result, error.text);
    outcome->timeout_ns = s->options->about.asking.timeout_ns;
    if (!memory && *result && digest && c->deterministic)
        memory = outcome_compare(outcome, *result, digest);
    int exit_status = memory ? command_exit(memory) : command_outcome_exit(outcome);
    if (memory)
        command_complain("not enough memory for the answer");
    else if (exit_status != COMMAND_PASS)
        verdict_print(stderr, c, outcome, *result, false);
    return exit_status;
}

static int run_verified(struct session *s, const struct cp_case *asked)
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
    int exit_status = run(s, &s->c, &s->digest, &outcome, &result);
    if (exit_status == COMMAND_PASS && counts)
        bench_add(&s->bench, &s->c, result);
    outcome_fini(&outcome);
    cpattn_result_destroy(result);
    return exit_status;
}

static int measure(struct session *s, const struct cp_case *asked)
{
    const struct bench_options *o = s->options;
    progress_init(&s->progress, stderr, 1 + o->warmup + o->repeat, command_now_ns());
    s->progress.runs = true;
    int exit_status = run_verified(s, asked);
    s->c = *asked;
    s->c.verify = VERIFY_OFF;
    for (int i = 0; i < o->warmup && exit_status == COMMAND_PASS && !command_interrupted(); i++)
        exit_status = run_timed(s, false);
    for (int i = 0; i < o->repeat && exit_status == COMMAND_PASS && !command_interrupted(); i++)
        exit_status = run_timed(s, true);
    return command_interrupted() ? command_exit(STATUS_CANCELLED) : exit_status;
}

// ---- what came of them ------------------------------------------------------------------------

// What all cases have in common.
struct series {
    const struct bench_options *options;
    struct cpattn_client *client;
    struct bench_record *earlier; // of --compare; or NULL
    FILE *save;                   // or NULL
    struct table *table;          // of several cases; or NULL
    int slower;                   // cases that have become too slow
};

// Bytes that a rank sends in forward and backward, the most of all ranks; 0 where it cannot be
// told.
static int64_t bytes_sent(const struct cp_case *c)
{
    int64_t most = 0;
    for (int r = 0; r < c->world_size; r++) {
        struct plan *plan = NULL;
        int64_t sent = 0;
        if (plan_create(c, r, &plan, NULL) != STATUS_OK)
            return 0;
        for (int32_t i = 0; i < plan->op_count; i++)
            sent += op_bytes(plan, &plan->ops[i]);
        plan_destroy(plan);
        most = sent > most ? sent : most;
    }
    return most;
}

static double earlier_ns(const struct series *series, const struct cp_case *c)
{
    char command[CASE_COMMAND_MAX];
    case_command(c, command, sizeof(command));
    const struct bench_entry *entry =
        series->earlier ? bench_record_find(series->earlier, command) : NULL;
    return entry ? entry->device_ns : 0;
}

// Says where a case has become too slow.
static enum status judge(struct series *series, const struct bench_shown *shown,
                         struct error *error)
{
    char what[256];
    double ns;
    enum status status = bench_device_ns(shown->bench, &ns, error);
    if (status || shown->earlier_ns <= 0 ||
        ns <= shown->earlier_ns * (1 + series->options->slower / 100.0))
        return status;
    case_describe(shown->c, what, sizeof(what));
    command_complain("%s: forward and backward take %.3f times as long as in %s", what,
                     ns / shown->earlier_ns, series->options->compare);
    series->slower++;
    return STATUS_OK;
}

static void fill_point(const struct series *series, int point)
{
    const struct sweep *sweep = &series->options->about.fields.sweep;
    table_row(series->table);
    for (int i = 0; i < sweep->count; i++)
        table_cell(series->table, PAINT_PLAIN, "%s", sweep_value(sweep, point, i));
}

static int show(struct series *series, const struct session *s, int point)
{
    struct error error;
    const struct bench_options *o = series->options;
    struct bench_shown shown = {.c = &s->c,
                                .bench = &s->bench,
                                .verified = &s->verified,
                                .warmup = o->warmup,
                                .repeat = o->repeat,
                                .sent = bytes_sent(&s->c),
                                .earlier_ns = earlier_ns(series, &s->c)};
    if (series->save && !json_bench(series->save, &s->c, &s->verified, o->warmup, &s->bench))
        return command_file_failed(series->save, o->save, "the record");
    if (o->about.asking.json && !json_bench(stdout, &s->c, &s->verified, o->warmup, &s->bench))
        return command_show_failed("the JSON");
    enum status status = judge(series, &shown, &error);
    if (!status && series->table) {
        fill_point(series, point);
        status = bench_table_row(series->table, &shown, series->earlier != NULL, &error);
    } else if (!status && !o->about.asking.json) {
        status = bench_table_print(stdout, &shown, &error);
    }
    if (status != STATUS_OK)
        command_complain("%s", error.text);
    return command_exit(status);
}

// ---- the cases --------------------------------------------------------------------------------

static int bench_point(struct series *series, int point)
{
    struct session s = {.options = series->options, .client = series->client};
    struct cp_case c;
    struct error error;
    options_point(&series->options->about, point, &c);
    if (bench_init(&s.bench, series->options->repeat, &error)) {
        command_complain("%s", error.text);
        return command_exit(STATUS_RESOURCE_EXHAUSTED);
    }
    int exit_status = measure(&s, &c);
    // What an interrupt left is worth showing.
    if (exit_status == COMMAND_PASS || (command_interrupted() && s.bench.runs > 0)) {
        int shown = show(series, &s, point);
        exit_status = shown ? shown : exit_status;
    }
    outcome_fini(&s.verified);
    bench_fini(&s.bench);
    return exit_status;
}

// "SEQLEN COMM": the columns of the fields with several values.
static struct table *sweep_table(const struct series *series)
{
    const struct sweep *sweep = &series->options->about.fields.sweep;
    char names[SWEEP_FIELDS_MAX * 32] = "";
    size_t used = 0;
    for (int i = 0; i < sweep->count && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s>%s", i ? " " : "",
                                 sweep->fields[i].name);
    for (char *c = names; *c; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    return bench_table_create(stdout, names, series->earlier != NULL);
}

// A case that fails or cannot be run does not keep the others from being measured; the exit status
// is the first of theirs.
static int bench_all(struct series *series)
{
    int exit_status = COMMAND_PASS;
    int points = sweep_points(&series->options->about.fields.sweep);
    if (points > 1 && !series->options->about.asking.json)
        series->table = sweep_table(series);
    for (int i = 0; i < points && !command_interrupted(); i++) {
        int one = bench_point(series, i);
        exit_status = exit_status ? exit_status : one;
    }
    if (series->table)
        table_print(series->table, "");
    table_destroy(series->table);
    return exit_status == COMMAND_PASS && series->slower ? COMMAND_FAIL : exit_status;
}

// ---- files ------------------------------------------------------------------------------------

static int open_files(struct series *series)
{
    const struct bench_options *o = series->options;
    struct error error;
    if (o->compare && bench_record_load(o->compare, &series->earlier, &error)) {
        command_complain("%s", error.text);
        return COMMAND_USAGE;
    }
    if (o->save && !(series->save = fopen(o->save, "we"))) {
        command_complain("%s cannot be written: %s", o->save, strerror(errno));
        return COMMAND_USAGE;
    }
    return COMMAND_PASS;
}

static int close_files(struct series *series, int exit_status)
{
    bool told = series->save && ferror(series->save); // when a case was not taken
    bench_record_destroy(series->earlier);
    if (!series->save || fclose(series->save) == 0 || told)
        return exit_status;
    command_complain("%s could not be written: %s", series->options->save, strerror(errno));
    return exit_status ? exit_status : command_exit(STATUS_DATA_LOSS);
}

static int bench(const struct bench_options *o)
{
    struct series series = {.options = o};
    int exit_status = open_files(&series);
    if (!exit_status) {
        command_catch_interrupts();
        series.client = options_connect(&o->about.asking, &exit_status);
    }
    if (series.client)
        exit_status = bench_all(&series);
    cpattn_client_destroy(series.client);
    return close_files(&series, exit_status);
}

int command_bench(int argc, char **argv)
{
    struct bench_options options = {
        .repeat = REPEAT_DEFAULT, .warmup = WARMUP_DEFAULT, .slower = SLOWER_DEFAULT};
    options.about.sweeps = true;
    int exit_status = options_parse_case(&options.about, &argp, &options, true, argc, argv);
    if (!exit_status)
        exit_status = bench(&options);
    sweep_fini(&options.about.fields.sweep);
    return exit_status;
}
