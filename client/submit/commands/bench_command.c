// SPDX-License-Identifier: Apache-2.0
// cpattn-submit bench: how fast a case is. It is verified once; then it is repeated without, so
// that what is timed has been shown to be right and nothing stands between the runs.
#include <stdlib.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/options.h"
#include "client/submit/outcome/bench.h"
#include "client/submit/show/progress.h"
#include "client/submit/show/table.h"
#include "client/submit/show/verdict.h"
#include "client/submit/write/json.h"
#include "common/duration.h"

#define RUNS_MAX       100000
#define REPEAT_DEFAULT 20
#define WARMUP_DEFAULT 5

struct bench_options {
    struct options_case about;
    int repeat, warmup;
};

enum { KEY_REPEAT = 1, KEY_WARMUP };

static const struct argp_option option_table[] = {
    {.doc = "How to measure and show it:", .group = 100},
    {"repeat", KEY_REPEAT, "N", 0, "timed runs [20]", 100},
    {"warmup", KEY_WARMUP, "N", 0, "runs before them that are not timed [5]", 100},
    {.name = NULL}};

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct bench_options *o = state->input;
    switch (key) {
    case KEY_REPEAT:
        return options_count("repeat", value, 1, RUNS_MAX, &o->repeat);
    case KEY_WARMUP:
        return options_count("warmup", value, 0, RUNS_MAX, &o->warmup);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char help_text[] =
    "Measures how fast a case is: runs it once and checks the result, then several times without "
    "the check, and shows the median of what the slowest rank took and how far the runs lie apart. "
    "With --verify off the check is left out. What is not given has the default in brackets."
    "\vExamples:\n"
    "  cpattn-submit bench --world-size 4 --batch 1 --heads 32 --seqlen 16384\n"
    "  cpattn-submit bench --training false --repeat 100 --json\n"
    "\n"
    "Exit status: 0 measured, 1 the result is wrong, 64 the command line is wrong, 64 plus the "
    "number of the status when the case could not be run; cpattn-submit(1) lists them.";

static const struct argp argp = {.options = option_table, .parser = parse_option, .doc = help_text};

// ---- the runs ---------------------------------------------------------------------------------

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

static void value_cell(struct table *table, enum bench_series series, double value)
{
    char text[DURATION_TEXT_MAX];
    if (bench_is_rate(series))
        table_cell(table, PAINT_PLAIN, "%.4g TFLOP/s", value * 1e-12);
    else
        table_cell(table, PAINT_PLAIN, "%s", duration_format((uint64_t)value, text, sizeof(text)));
}

static enum status print_table(const struct session *s, struct error *error)
{
    static const char *const names[BENCH_SERIES] = {
        "forward", "backward", "exchange", "exposed exchange",
        "wall",    "forward",  "backward", "forward and backward"};
    struct table *table = table_create(stdout, "OF_EACH_RUN >MEDIAN >LEAST >MOST >SPREAD");
    enum status status = STATUS_OK;
    for (int i = 0; i < BENCH_SERIES && status == STATUS_OK; i++) {
        struct bench_summary sum;
        status = bench_sum(&s->bench, (enum bench_series)i, &sum, error);
        if (status != STATUS_OK || sum.most <= 0)
            continue;
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s%s", names[i],
                   bench_is_rate((enum bench_series)i) ? " per device" : "");
        value_cell(table, (enum bench_series)i, sum.median);
        value_cell(table, (enum bench_series)i, sum.least);
        value_cell(table, (enum bench_series)i, sum.most);
        table_cell(table, PAINT_DIM, "%.1f%%", 100 * sum.spread);
    }
    if (status == STATUS_OK)
        table_print(table, "");
    table_destroy(table);
    return status;
}

static void print_verdict(const struct outcome *verified)
{
    char used[OUTCOME_NUMBER_MAX];
    if (verified->kind != OUTCOME_PASS)
        printf("not verified");
    else if (!verified->tensor[0])
        printf("verified once: pass");
    else
        printf("verified once%s: pass, %s of a limit at most (%s of %s)",
               verified->sampled ? " by a sample" : "", outcome_percent(verified->used, used),
               verified->rule, verified->tensor);
}

static enum status print_bench(const struct session *s, struct error *error)
{
    char what[256];
    case_describe(&s->c, what, sizeof(what));
    printf("%s\n", what);
    print_verdict(&s->verified);
    printf("; %d timed run%s after %d for warming up", s->bench.runs, s->bench.runs == 1 ? "" : "s",
           s->options->warmup);
    if (s->bench.runs < s->options->repeat)
        printf(", interrupted before the other %d", s->options->repeat - s->bench.runs);
    fputs("\n\n", stdout);
    return print_table(s, error);
}

static int show(const struct session *s)
{
    struct error error;
    if (s->options->about.asking.json)
        return command_json_exit(
            json_bench(stdout, &s->c, &s->verified, s->options->warmup, &s->bench));
    enum status status = print_bench(s, &error);
    if (status != STATUS_OK)
        command_complain("%s", error.text);
    return command_exit(status);
}

static int bench(const struct bench_options *o)
{
    struct session s = {.options = o};
    struct error error;
    int exit_status = COMMAND_PASS;
    enum status status = bench_init(&s.bench, o->repeat, &error);
    if (status != STATUS_OK) {
        command_complain("%s", error.text);
        exit_status = command_exit(status);
    } else {
        command_catch_interrupts();
        s.client = options_connect(&o->about.asking, &exit_status);
    }
    if (s.client)
        exit_status = measure(&s, &o->about.c);
    // What an interrupt left is worth showing.
    if (exit_status == COMMAND_PASS || (command_interrupted() && s.bench.runs > 0)) {
        int shown = show(&s);
        exit_status = shown ? shown : exit_status;
    }
    cpattn_client_destroy(s.client);
    outcome_fini(&s.verified);
    bench_fini(&s.bench);
    return exit_status;
}

int command_bench(int argc, char **argv)
{
    struct bench_options options = {.repeat = REPEAT_DEFAULT, .warmup = WARMUP_DEFAULT};
    int exit_status = options_parse_case(&options.about, &argp, &options, true, argc, argv);
    return exit_status ? exit_status : bench(&options);
}
