// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/matrix_options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/dump.h"
#include "client/submit/commands/flight.h"
#include "client/submit/commands/options.h"
#include "plan/number.h"

#define JOBS_DEFAULT     4
#define PATIENCE_DEFAULT (UINT64_C(60) * 1000000000)
#define RETRY_MAX        100
#define REPEAT_MAX       1000000
#define SHARDS_MAX       10000
// With this divisor every sequence has one token.
#define SEQLEN_SCALE_MAX ((int)SEQLEN_MAX)

enum {
    KEY_FILTER = 1,
    KEY_SUBSET,
    KEY_SET,
    KEY_EXCLUDED,
    KEY_UNSKIP,
    KEY_SEQLEN_SCALE,
    KEY_SHARD,
    KEY_LAST_FAILED,
    KEY_SHUFFLE,
    KEY_REPEAT,
    KEY_RETRY,
    KEY_DURATIONS,
    KEY_SAVE,
    KEY_RESUME,
    KEY_MARKDOWN,
    KEY_FAIL_FAST,
    KEY_TIMEOUT,
    KEY_PATIENCE,
    KEY_JUNIT,
    KEY_DUMP_FAILS,
    KEY_JSON,
    KEY_SOCKET
};

static const struct argp_option option_table[] = {
    {.doc = "Which cases:", .group = 1},
    {"filter", KEY_FILTER, "FILTER", 0,
     "only cases with FIELD=VALUE[,VALUE...], FIELD!=VALUE[,VALUE...] or FIELD>NUMBER (or "
     ">=, <, <=), or with an id that matches a shell pattern or contains a text; 'A or B' "
     "matches if one of them does; a case must match all filters",
     1},
    {"subset", KEY_SUBSET, "NAME", 0, "only this subset of the file", 1},
    {"set", KEY_SET, "FIELD=VALUE", 0,
     "set a field in every case; for an axis this value replaces the list", 1},
    {"unskip", KEY_UNSKIP, NULL, 0,
     "also run cases that the file excludes only because its backend does not support them", 1},
    {"seqlen-scale", KEY_SEQLEN_SCALE, "N", 0,
     "divide lengths, padding and windows by N, rounding up; the list of cases stays the same", 1},
    {"shard", KEY_SHARD, "I/N", 0,
     "only part I of N, from 1/N to N/N; together the parts have every case once", 1},
    {"last-failed", KEY_LAST_FAILED, "FILE", 0,
     "only cases that failed, could not be run, or had a wrong result before a pass, in the run "
     "that FILE records (--save)",
     1},
    {"list", 'l', NULL, 0, "print the cases and run nothing", 1},
    {"excluded", KEY_EXCLUDED, NULL, 0,
     "with --list: print the excluded cases with their "
     "reasons",
     1},
    {.doc = "How to run them:", .group = 10},
    {"jobs", 'j', "N", 0, "submit N cases at once to each daemon [4]", 10},
    {"timeout", KEY_TIMEOUT, "TIME", 0,
     "give up a case after this time, without the wait for its turn: 90, 90s, 5m; up to 24h "
     "[the limit in the file, or 90s]",
     10},
    {"patience", KEY_PATIENCE, "TIME", 0,
     "if a daemon goes away or hangs, wait this long for the next one and submit unanswered cases "
     "once more; also how long to wait for ranks that cannot be started [60s]",
     10},
    {"fail-fast", KEY_FAIL_FAST, NULL, 0, "stop at the first case that does not pass", 10},
    {"shuffle", KEY_SHUFFLE, "SEED", 0, "submit in a random order drawn from this seed", 10},
    {"repeat", KEY_REPEAT, "N", 0,
     "run each case N times; all runs must give the same results bit for bit [1]", 10},
    {"retry", KEY_RETRY, "N", 0,
     "run a case that does not pass up to N more times; if it passes then, it is flaky; "
     "a wrong result makes the exit status 1 nevertheless [0]",
     10},
    {"resume", KEY_RESUME, "FILE", 0,
     "continue the run that FILE records: cases with a verdict are not run again, and new "
     "answers are appended",
     10},
    {"socket", KEY_SOCKET, "PATH", 0,
     COMMAND_SOCKET_HELP "; may be repeated to distribute the cases over several daemons", 10},
    {.doc = "What to write:", .group = 20},
    {"verbose", 'v', NULL, 0,
     "print a row for each case and every failure in full, without "
     "a limit",
     20},
    {"json", KEY_JSON, NULL, 0, "print a JSON object per case when it is answered", 20},
    {"durations", KEY_DURATIONS, "N", 0, "list the N cases that ran longest", 20},
    {"save", KEY_SAVE, "FILE", 0,
     "record the run for --resume, --last-failed and report: one JSON object per case, when it "
     "is answered",
     20},
    {"markdown", KEY_MARKDOWN, "FILE", 0,
     "append a summary in Markdown to FILE, such as \"$GITHUB_STEP_SUMMARY\"", 20},
    {"junit", KEY_JUNIT, "FILE", 0, "also write a JUnit report", 20},
    {"dump-fails", KEY_DUMP_FAILS, "DIR", 0, DUMP_FAILS_HELP, 20},
    {.name = NULL}};

static error_t add_choice(const char *option, const char **values, int *count, int max,
                          const char *value)
{
    if (*count == max) {
        command_complain("--%s is given more than %d times", option, max);
        return EINVAL;
    }
    values[(*count)++] = value;
    return 0;
}

static error_t parse_argument(struct matrix_options *o, char *value, struct argp_state *state)
{
    if (o->file)
        return options_no_argument(state, value);
    o->file = value;
    return 0;
}

// Complains about an option for results, or for an order of runs, beside --list. Other options on
// how cases are run are accepted: --list may be added to any command line to see its cases.
static error_t list_check(const struct matrix_options *o)
{
    static const char why[] = "does not go with --list, which runs nothing";
    const struct options_vain list[] = {{o->junit, "junit", why},
                                        {o->save, "save", why},
                                        {o->resume, "resume", why},
                                        {o->markdown, "markdown", why},
                                        {o->dump_fails, "dump-fails", why},
                                        {o->shuffle, "shuffle", why},
                                        {o->repeat, "repeat", why},
                                        {o->durations, "durations", why},
                                        {.option = NULL}};
    return o->list && options_vain_check(list) ? EINVAL : 0;
}

static error_t parse_end(const struct matrix_options *o, const struct argp_state *state)
{
    if (!o->file)
        command_complain("the matrix file is missing; see %s --help", state->name);
    else if (o->excluded && !o->list)
        command_complain("--excluded requires --list");
    else if (o->repeat > 1 && o->retry)
        command_complain("--retry does not go with --repeat: a repeated case must pass each time");
    else if (o->json && o->durations)
        command_complain("--durations does not go with --json, which has the times of every case");
    else if (o->save && o->resume)
        command_complain("--save does not go with --resume, which adds to its own file");
    else
        return list_check(o);
    return EINVAL;
}

// "2/8".
static error_t parse_shard(const char *value, struct matrix_choice *choice)
{
    char *end;
    long index = strtol(value, &end, 10), count = 0;
    if (value[0] >= '0' && value[0] <= '9' && *end == '/' && end[1] >= '0' && end[1] <= '9')
        count = strtol(end + 1, &end, 10);
    if (*end || index < 1 || index > count || count > SHARDS_MAX) {
        command_complain("--shard is '%s'; accepted is I/N with N from 1 to %d and I from 1 to N",
                         value, SHARDS_MAX);
        return EINVAL;
    }
    choice->shard = (int)index;
    choice->shards = (int)count;
    return 0;
}

static error_t parse_shuffle(struct matrix_options *o, const char *value)
{
    o->shuffle = true;
    if (number_parse_digits(value, &o->shuffle_seed))
        return 0;
    command_complain("--shuffle is '%s'; accepted is a whole number", value);
    return EINVAL;
}

static error_t add_socket(struct matrix_options *o, const char *value)
{
    for (int i = 0; i < o->socket_count; i++)
        if (strcmp(o->sockets[i], value) == 0) {
            command_complain("--socket %s is given twice", value);
            return EINVAL;
        }
    return add_choice("socket", o->sockets, &o->socket_count, FLIGHT_CLIENTS_MAX, value);
}

// Parses the options that name files and sockets.
static error_t parse_file(int key, char *value, struct matrix_options *o)
{
    switch (key) {
    case KEY_JUNIT:
        o->junit = value;
        return 0;
    case KEY_DUMP_FAILS:
        o->dump_fails = value;
        return 0;
    case KEY_SAVE:
        o->save = value;
        return 0;
    case KEY_RESUME:
        o->resume = value;
        return 0;
    case KEY_LAST_FAILED:
        o->last_failed = value;
        return 0;
    case KEY_MARKDOWN:
        o->markdown = value;
        return 0;
    case KEY_SOCKET:
        return add_socket(o, value);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// Parses the options on how cases are run.
static error_t parse_running(int key, char *value, struct matrix_options *o)
{
    switch (key) {
    case KEY_TIMEOUT:
        return options_duration("timeout", value, &o->timeout_ns);
    case KEY_PATIENCE:
        return options_duration("patience", value, &o->patience_ns);
    case 'j':
        return options_count("jobs", value, 1, FLIGHT_JOBS_MAX, &o->jobs);
    case KEY_SHUFFLE:
        return parse_shuffle(o, value);
    case KEY_REPEAT:
        return options_count("repeat", value, 1, REPEAT_MAX, &o->repeat);
    case KEY_RETRY:
        return options_count("retry", value, 0, RETRY_MAX, &o->retry);
    case KEY_DURATIONS:
        return options_count("durations", value, 1, MATRIX_CASES_MAX, &o->durations);
    case KEY_FAIL_FAST:
        o->fail_fast = true;
        return 0;
    default:
        return parse_file(key, value, o);
    }
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct matrix_options *o = state->input;
    switch (key) {
    case KEY_FILTER:
        return add_choice("filter", o->filters, &o->choice.filter_count, MATRIX_CHOICES_MAX, value);
    case KEY_SET:
        return add_choice("set", o->sets, &o->choice.set_count, MATRIX_CHOICES_MAX, value);
    case KEY_UNSKIP:
        o->choice.unskip = true;
        return 0;
    case KEY_SEQLEN_SCALE:
        return options_count("seqlen-scale", value, 1, SEQLEN_SCALE_MAX, &o->choice.seqlen_scale);
    case KEY_SHARD:
        return parse_shard(value, &o->choice);
    case KEY_SUBSET:
        o->choice.subset = value;
        return 0;
    case 'l':
        o->list = true;
        return 0;
    case KEY_EXCLUDED:
        o->excluded = true;
        return 0;
    case KEY_JSON:
        o->json = true;
        return 0;
    case 'v':
        o->verbose = true;
        return 0;
    case ARGP_KEY_ARG:
        return parse_argument(o, value, state);
    case ARGP_KEY_END:
        return parse_end(o, state);
    default:
        return parse_running(key, value, o);
    }
}

static const struct argp_child access_child[] = {COMMAND_ACCESS_CHILD, {.argp = NULL}};

static const struct argp argp = {
    .options = option_table,
    .parser = parse_option,
    .children = access_child,
    .args_doc = "FILE",
    .doc = "Runs the cases of a matrix file, cpattn-matrix(5): all combinations of models and "
           "axes, except the excluded ones."
           "\vExamples:\n"
           "  cpattn-submit matrix demonstration.yaml\n"
           "  cpattn-submit matrix demonstration.yaml --list\n"
           "  cpattn-submit matrix demonstration.yaml --filter model=cp_2_0 -j 8\n"
           "  cpattn-submit matrix demonstration.yaml --set seqlen=1000 --junit report.xml\n"
           "  cpattn-submit matrix transformer-engine.yaml --seqlen-scale 16 --unskip\n"
           "  cpattn-submit matrix transformer-engine.yaml --shard 2/8 --save 2.jsonl\n"
           "  cpattn-submit matrix transformer-engine.yaml --last-failed 2.jsonl\n"
           "\n"
           "Exit status: 0 all passed, 1 a verdict is a fail, 64 the command line or the file "
           "is not valid, 64 plus the number of the status of the first case that could not be "
           "run; cpattn-submit(1) lists them."};

int matrix_options_parse(int argc, char **argv, struct matrix_options *o)
{
    *o = (struct matrix_options){.jobs = JOBS_DEFAULT, .patience_ns = PATIENCE_DEFAULT};
    o->choice.sets = o->sets;
    o->choice.filters = o->filters;
    int exit_status = options_parse(&argp, argc, argv, o);
    o->repeat = o->repeat ? o->repeat : 1;
    o->socket_count = o->socket_count ? o->socket_count : 1;
    return exit_status;
}
