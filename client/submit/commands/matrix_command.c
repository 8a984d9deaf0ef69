// SPDX-License-Identifier: Apache-2.0
// cpattn-submit matrix: lists or runs the cases of a file.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/flight.h"
#include "client/submit/commands/installed.h"
#include "client/submit/commands/matrix_dump.h"
#include "client/submit/commands/options.h"
#include "client/submit/outcome/text.h"
#include "client/submit/show/matrix_report.h"
#include "client/submit/show/progress.h"
#include "client/submit/show/verdict.h"
#include "client/submit/write/json.h"
#include "client/submit/write/junit.h"
#include "common/duration.h"
#include "plan/weight.h"

#define JOBS_DEFAULT     4
#define PATIENCE_DEFAULT (UINT64_C(60) * 1000000000)
#define CHOICES_MAX      64
#define NAMES_SHOWN_MAX  3
// With this everything has one token.
#define SEQLEN_SCALE_MAX ((int)SEQLEN_MAX)

struct matrix_options {
    const char *file, *socket, *junit, *dump_fails;
    const char *sets[CHOICES_MAX], *filters[CHOICES_MAX];
    struct matrix_choice choice;
    uint64_t timeout_ns, patience_ns;
    int jobs;
    bool list, excluded, fail_fast, json, verbose;
};

enum {
    KEY_FILTER = 1,
    KEY_SUBSET,
    KEY_SET,
    KEY_EXCLUDED,
    KEY_UNSKIP,
    KEY_SEQLEN_SCALE,
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
     "only cases with FIELD=VALUE[,VALUE...], with FIELD!=VALUE[,VALUE...], with FIELD>NUMBER (or "
     ">=, <, <=), or whose id matches a shell pattern or contains a text; 'A or B' matches what "
     "either does; a case has to match all of several filters",
     1},
    {"subset", KEY_SUBSET, "NAME", 0, "only this subset of the file", 1},
    {"set", KEY_SET, "FIELD=VALUE", 0,
     "set a field in every case; a field that is an axis has this one value then", 1},
    {"unskip", KEY_UNSKIP, NULL, 0,
     "run what the file excludes only because a backend it was made for does not do it", 1},
    {"seqlen-scale", KEY_SEQLEN_SCALE, "N", 0,
     "divide lengths, padding and windows by N, rounding up; which cases there are stays the same",
     1},
    {"list", 'l', NULL, 0, "print the cases and run nothing", 1},
    {"excluded", KEY_EXCLUDED, NULL, 0, "with --list: print what is excluded, and why", 1},
    {.doc = "How to run them:", .group = 10},
    {"jobs", 'j', "N", 0, "submit N at once [4]", 10},
    {"timeout", KEY_TIMEOUT, "TIME", 0,
     "give a case up after this time, the wait for its turn not included: 90, 90s, 5m; up to 24h "
     "[that of the file, or 90s]",
     10},
    {"patience", KEY_PATIENCE, "TIME", 0,
     "wait this long for a daemon that goes away while cases are left, and submit once more what "
     "it left unanswered; also for ranks that cannot be started [60s]",
     10},
    {"fail-fast", KEY_FAIL_FAST, NULL, 0, "stop at the first case that does not pass", 10},
    {"socket", KEY_SOCKET, "PATH", 0, COMMAND_SOCKET_HELP, 10},
    {.doc = "What to write:", .group = 20},
    {"verbose", 'v', NULL, 0, "a row for each case and every failure in full, however many", 20},
    {"json", KEY_JSON, NULL, 0, "print a JSON object per case as it is answered", 20},
    {"junit", KEY_JUNIT, "FILE", 0, "write a JUnit report as well", 20},
    {"dump-fails", KEY_DUMP_FAILS, "DIR", 0, DUMP_FAILS_HELP, 20},
    {.name = NULL}};

static error_t add_choice(const char *option, const char **values, int *count, const char *value)
{
    if (*count == CHOICES_MAX) {
        command_complain("--%s is there more than %d times", option, CHOICES_MAX);
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

static error_t parse_end(const struct matrix_options *o, const struct argp_state *state)
{
    if (!o->file)
        command_complain("the matrix file is missing; see %s --help", state->name);
    else if (o->excluded && !o->list)
        command_complain("--excluded goes with --list");
    else if (o->list && o->junit)
        command_complain("--junit does not go with --list");
    else
        return 0;
    return EINVAL;
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct matrix_options *o = state->input;
    switch (key) {
    case KEY_FILTER:
        return add_choice("filter", o->filters, &o->choice.filter_count, value);
    case KEY_SET:
        return add_choice("set", o->sets, &o->choice.set_count, value);
    case KEY_UNSKIP:
        o->choice.unskip = true;
        return 0;
    case KEY_SEQLEN_SCALE:
        return options_count("seqlen-scale", value, 1, SEQLEN_SCALE_MAX, &o->choice.seqlen_scale);
    case KEY_SUBSET:
        o->choice.subset = value;
        return 0;
    case KEY_TIMEOUT:
        return options_duration("timeout", value, &o->timeout_ns);
    case KEY_PATIENCE:
        return options_duration("patience", value, &o->patience_ns);
    case 'j':
        return options_count("jobs", value, 1, FLIGHT_JOBS_MAX, &o->jobs);
    case KEY_JUNIT:
        o->junit = value;
        return 0;
    case KEY_DUMP_FAILS:
        o->dump_fails = value;
        return 0;
    case KEY_SOCKET:
        o->socket = value;
        return 0;
    case 'l':
        o->list = true;
        return 0;
    case KEY_EXCLUDED:
        o->excluded = true;
        return 0;
    case KEY_FAIL_FAST:
        o->fail_fast = true;
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
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child access_child[] = {COMMAND_ACCESS_CHILD, {.argp = NULL}};

static const struct argp argp = {
    .options = option_table,
    .parser = parse_option,
    .children = access_child,
    .args_doc = "FILE",
    .doc =
        "Runs the cases of a matrix file, cpattn-matrix(5): models times axes, less what is "
        "excluded."
        "\vExamples:\n"
        "  cpattn-submit matrix demonstration.yaml\n"
        "  cpattn-submit matrix demonstration.yaml --list\n"
        "  cpattn-submit matrix demonstration.yaml --filter model=cp_2_0 -j 8\n"
        "  cpattn-submit matrix demonstration.yaml --set seqlen=1000 --junit report.xml\n"
        "  cpattn-submit matrix transformer-engine.yaml --seqlen-scale 16 --unskip\n"
        "\n"
        "Exit status: 0 all passed, 1 a verdict is a fail, 64 the command line or the file cannot "
        "be understood, 64 plus the number of the status of the first case that could not be run; "
        "cpattn-submit(1) lists them."};

// ---- listing ----------------------------------------------------------------------------------

// An outcome that says only what the list knows.
static enum status outcome_of_fate(const struct matrix_case *made, struct outcome *outcome)
{
    *outcome = (struct outcome){.kind = OUTCOME_NOT_RUN};
    if (made->fate == MATRIX_EXCLUDED)
        outcome->kind = OUTCOME_EXCLUDED;
    if (made->fate == MATRIX_REFUSED) {
        outcome->kind = OUTCOME_ERROR;
        outcome->status = made->status;
    }
    if (!made->reason)
        return STATUS_OK;
    outcome->sentence = strdup(made->reason);
    return outcome->sentence ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
}

static bool list_json(const struct matrix_case *made)
{
    struct outcome outcome;
    struct cp_case c;
    matrix_case_load(made, &c);
    bool fine =
        !outcome_of_fate(made, &outcome) && json_answer(stdout, made->id, &c, &outcome, NULL);
    outcome_fini(&outcome);
    return fine;
}

static bool is_listed(const struct matrix_options *o, const struct matrix_case *made)
{
    return (made->fate == MATRIX_EXCLUDED) == o->excluded;
}

static int list_width(const struct matrix_options *o, const struct matrix_list *list)
{
    int width = 0;
    for (int i = 0; i < list->count; i++)
        if (is_listed(o, &list->cases[i]) && (int)strlen(list->cases[i].id) > width)
            width = (int)strlen(list->cases[i].id);
    return width;
}

static const char *kind_text(enum matrix_kind kind)
{
    static const char *const texts[] = {[KIND_UNSAID] = "",
                                        [KIND_BACKEND] = " (backend)",
                                        [KIND_DUPLICATE] = " (duplicate)",
                                        [KIND_MEANINGLESS] = " (meaningless)"};
    return texts[kind];
}

static int print_list(const struct matrix_options *o, const struct matrix_list *list)
{
    int width = list_width(o, list);
    for (int i = 0; i < list->count; i++) {
        const struct matrix_case *made = &list->cases[i];
        struct cp_case c;
        char what[256];
        if (!is_listed(o, made))
            continue;
        if (o->json) {
            if (list_json(made))
                continue;
            return command_json_exit(false);
        }
        matrix_case_load(made, &c);
        case_describe(&c, what, sizeof(what));
        printf("%-*s  %s%s%s\n", width, made->id, made->fate == MATRIX_REFUSED ? "refused: " : "",
               made->reason ? made->reason : what, kind_text(made->kind));
    }
    if (terminal_is(stdout) && !o->json)
        printf("\n%d cases, %d refused, %d excluded, %d left out by the command line\n",
               list->fate_count[MATRIX_RUNS], list->fate_count[MATRIX_REFUSED],
               list->fate_count[MATRIX_EXCLUDED], list->left_out);
    return COMMAND_PASS;
}

// ---- running ----------------------------------------------------------------------------------

struct run {
    const struct matrix_options *options;
    const struct matrix_list *list;
    struct outcome *outcomes; // [list->count]
    bool *flying;             // [list->count]: on its way
    struct progress progress;
    uint64_t timeout_ns; // of each case
    int next, oldest;
    struct cp_case submitted; // the last one
    bool stopped;             // nothing more is submitted
    bool lost;                // there is no daemon now
    bool failed_io;           // memory or an output failed
};

static bool next_case(void *context, int *number)
{
    struct run *run = context;
    while (run->next < run->list->count && run->list->cases[run->next].fate != MATRIX_RUNS)
        run->next++;
    if (run->next == run->list->count || run->stopped)
        return false;
    *number = run->next++;
    run->flying[*number] = true;
    return true;
}

static const struct cp_case *load_case(void *context, int number)
{
    struct run *run = context;
    matrix_case_load(&run->list->cases[number], &run->submitted);
    return &run->submitted;
}

// The text that the report shows of a case that did not pass.
static void keep_detail(struct outcome *outcome, const struct cp_case *c,
                        const struct cpattn_result *result)
{
    size_t size;
    FILE *memory = open_memstream(&outcome->detail, &size);
    if (!memory)
        return;
    verdict_print_cause(memory, "      ", c, outcome, result);
    if (fclose(memory) == 0)
        return;
    free(outcome->detail);
    outcome->detail = NULL;
}

static void count(struct progress *p, const struct outcome *outcome)
{
    p->done++;
    p->passed += outcome->kind == OUTCOME_PASS;
    p->failed += outcome->kind == OUTCOME_FAIL;
    p->errors += outcome->kind == OUTCOME_ERROR;
}

// A line for a case as it is answered: for every case where no live line is drawn, for the bad ones
// above that line.
static void print_answered(const struct run *run, int number)
{
    const struct outcome *o = &run->outcomes[number];
    const struct progress *p = &run->progress;
    char ran[DURATION_TEXT_MAX];
    FILE *out = terminal_is(stdout) || !p->live ? stdout : stderr;
    if (run->options->json || (p->live && o->kind == OUTCOME_PASS))
        return;
    if (!p->live)
        fprintf(out, "%*d/%d ", p->total >= 1000 ? 5 : p->total >= 100 ? 3 : 2, p->done, p->total);
    fprintf(out, "%-5s %s", outcome_name(o->kind), run->list->cases[number].id);
    if (o->sentence)
        fprintf(out, ": %s\n", o->sentence);
    else
        fprintf(out, "  %s\n", duration_format(o->run_ns, ran, sizeof(ran)));
    fflush(out);
}

static void take_outcome(struct run *run, int number, const struct cpattn_result *result)
{
    struct outcome *outcome = &run->outcomes[number];
    const struct matrix_case *made = &run->list->cases[number];
    struct cp_case c;
    matrix_case_load(made, &c);
    if (outcome->kind == OUTCOME_ERROR && outcome->status == STATUS_CANCELLED && run->stopped)
        outcome->kind = OUTCOME_NOT_RUN;
    outcome->blind = outcome->kind == OUTCOME_PASS && case_blind(&c, NULL, 0) > 0;
    outcome->timeout_ns = run->timeout_ns;
    if (outcome->kind == OUTCOME_FAIL || outcome->kind == OUTCOME_ERROR)
        keep_detail(outcome, &c, result);
    if (outcome->kind != OUTCOME_PASS && outcome->kind != OUTCOME_UNVERIFIED &&
        run->options->fail_fast)
        run->stopped = true;
    count(&run->progress, outcome);
    progress_clear(&run->progress);
    print_answered(run, number);
    if (run->options->json && !json_answer(stdout, made->id, &c, outcome, result))
        run->failed_io = run->stopped = true;
}

static void answered(void *context, int number, enum cpattn_status status,
                     struct cpattn_result *result, const char *text)
{
    struct run *run = context;
    run->flying[number] = false;
    if (outcome_init(&run->outcomes[number], status, result, text))
        run->failed_io = run->stopped = true;
    take_outcome(run, number, result);
    cpattn_result_destroy(result);
}

// "cp_1_0/bf16/w2, cp_1_0/bf16/w4 and 2 more": what is on its way, the oldest first.
static void flying_text(struct run *run, char *text, size_t size)
{
    int shown = 0, more = 0;
    size_t used = 0;
    text[0] = '\0';
    while (run->oldest < run->next && !run->flying[run->oldest])
        run->oldest++;
    for (int i = run->oldest; i < run->next; i++) {
        if (!run->flying[i])
            continue;
        if (shown == NAMES_SHOWN_MAX || used >= size) {
            more++;
            continue;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", shown++ ? ", " : "",
                                 run->list->cases[i].id);
    }
    if (more && used < size)
        snprintf(text + used, size - used, " and %d more", more);
}

static bool tick(void *context, const char *lost)
{
    struct run *run = context;
    char text[256] = "waiting for a daemon";
    if (command_interrupted())
        run->stopped = true;
    if (lost && !run->lost) {
        progress_clear(&run->progress);
        command_complain("%s; waiting for a daemon", lost);
    }
    run->lost = lost != NULL;
    if (!lost)
        flying_text(run, text, sizeof(text));
    progress_draw(&run->progress, command_now_ns(), run->stopped ? "stopping" : text);
    return run->stopped;
}

// What needs no daemon to be known: excluded and refused cases.
static void take_fates(struct run *run)
{
    for (int i = 0; i < run->list->count; i++) {
        if (outcome_of_fate(&run->list->cases[i], &run->outcomes[i]))
            run->failed_io = run->stopped = true;
        if (run->list->cases[i].fate == MATRIX_REFUSED)
            take_outcome(run, i, NULL);
    }
}

static int exit_of(const struct run *run)
{
    int exit_status = COMMAND_PASS;
    if (run->failed_io)
        return command_show_failed("the answers");
    for (int i = run->list->count - 1; i >= 0; i--)
        if (run->outcomes[i].kind == OUTCOME_ERROR)
            exit_status = command_exit(run->outcomes[i].status);
    for (int i = 0; i < run->list->count; i++)
        if (run->outcomes[i].kind == OUTCOME_FAIL)
            return COMMAND_FAIL;
    if (exit_status == COMMAND_PASS && command_interrupted())
        return command_exit(STATUS_CANCELLED);
    return exit_status;
}

static void print_head(const struct run *run, const struct matrix *matrix)
{
    const struct matrix_list *list = run->list;
    if (run->options->json)
        return;
    printf("%s%s%d case%s", matrix->title ? matrix->title : "", matrix->title ? ": " : "",
           run->progress.total, run->progress.total == 1 ? "" : "s");
    if (list->fate_count[MATRIX_EXCLUDED])
        printf(", %d excluded", list->fate_count[MATRIX_EXCLUDED]);
    if (list->left_out)
        printf(", %d left out", list->left_out);
    putchar('\n');
    fflush(stdout);
}

static int run_list(struct run *run, struct cpattn_client *client, const struct matrix *matrix)
{
    const struct matrix_list *list = run->list;
    run->timeout_ns = run->options->timeout_ns ? run->options->timeout_ns
                      : matrix->timeout_ns     ? matrix->timeout_ns
                                               : TIMEOUT_DEFAULT_NS;
    struct flight flight = {.client = client,
                            .jobs = run->options->jobs,
                            .timeout_ns = run->timeout_ns,
                            .patience_ns = run->options->patience_ns,
                            .context = run,
                            .next = next_case,
                            .load = load_case,
                            .answered = answered,
                            .tick = tick};
    progress_init(&run->progress, stderr, list->count - list->fate_count[MATRIX_EXCLUDED],
                  command_now_ns());
    print_head(run, matrix);
    take_fates(run);
    if (flight_run(&flight))
        run->failed_io = true;
    progress_clear(&run->progress);
    return exit_of(run);
}

// ---- the command ------------------------------------------------------------------------------

static int write_reports(const struct run *run, const struct matrix *matrix,
                         struct junit_file *junit)
{
    uint64_t elapsed_ns = command_now_ns() - run->progress.start_ns;
    char name[128];
    text_base_name(run->options->file, name, sizeof(name));
    struct matrix_report report = {.list = run->list,
                                   .outcomes = run->outcomes,
                                   .elapsed_ns = elapsed_ns,
                                   .verbose = run->options->verbose};
    struct junit_suite suite = {.name = matrix->title ? matrix->title : name,
                                .file = name,
                                .list = run->list,
                                .outcomes = run->outcomes,
                                .elapsed_ns = elapsed_ns};
    if (!run->options->json) {
        putchar('\n');
        matrix_report_print(stdout, &report);
    }
    if (!junit->out || junit_commit(junit, &suite))
        return COMMAND_PASS;
    command_complain("%s could not be written: %s", junit->path, strerror(errno));
    return command_exit(STATUS_INTERNAL);
}

static int run_matrix(const struct matrix_options *o, const struct matrix *matrix,
                      const struct matrix_list *list, struct junit_file *junit)
{
    struct run run = {.options = o, .list = list};
    int exit_status = command_exit(STATUS_RESOURCE_EXHAUSTED);
    run.outcomes = calloc((size_t)list->count, sizeof(*run.outcomes));
    run.flying = calloc((size_t)list->count, sizeof(*run.flying));
    struct cpattn_client *client = NULL;
    if (run.outcomes && run.flying) {
        command_catch_interrupts();
        const struct command_requests requests = {.max = o->jobs, .patience_ns = o->patience_ns};
        client = command_connect(o->socket, &requests, &exit_status);
    } else {
        command_complain("not enough memory for %d cases", list->count);
    }
    if (client) {
        exit_status = run_list(&run, client, matrix);
        int written = write_reports(&run, matrix, junit);
        exit_status = exit_status ? exit_status : written;
        if (o->dump_fails)
            matrix_dump_fails(client, list, run.outcomes, o->dump_fails);
    }
    cpattn_client_destroy(client);
    for (int i = 0; run.outcomes && i < list->count; i++)
        outcome_fini(&run.outcomes[i]);
    free(run.outcomes);
    free(run.flying);
    return exit_status;
}

// Whether there is anything to run or to list.
static bool is_empty(const struct matrix_options *o, const struct matrix_list *list)
{
    for (int i = 0; i < list->count; i++)
        if (o->list ? is_listed(o, &list->cases[i]) : list->cases[i].fate != MATRIX_EXCLUDED)
            return false;
    return true;
}

static int run_or_list(const struct matrix_options *o, const struct matrix *matrix,
                       const struct matrix_list *list)
{
    struct junit_file junit = {.out = NULL};
    if (is_empty(o, list) && !o->excluded) {
        command_complain("%s: no case is left: %d excluded, %d left out by the command line",
                         o->file, list->fate_count[MATRIX_EXCLUDED], list->left_out);
        return COMMAND_USAGE;
    }
    if (o->list)
        return print_list(o, list);
    // Before hours of cases, not after them.
    if (o->junit && !junit_open(&junit, o->junit)) {
        command_complain("%s cannot be written: %s", o->junit, strerror(errno));
        return COMMAND_USAGE;
    }
    int exit_status = run_matrix(o, matrix, list, &junit);
    junit_abandon(&junit);
    return exit_status;
}

int command_matrix(int argc, char **argv)
{
    struct matrix_options o = {.jobs = JOBS_DEFAULT, .patience_ns = PATIENCE_DEFAULT};
    char path[PATH_MAX];
    o.choice.sets = o.sets;
    o.choice.filters = o.filters;
    struct yaml *yaml = NULL;
    struct matrix *matrix = NULL;
    struct matrix_list *list = NULL;
    struct error error;
    int exit_status = options_parse(&argp, argc, argv, &o);
    if (exit_status)
        return exit_status;
    const char *name = o.file;
    o.file = installed_find(name, path);
    if (o.file == name && access(name, F_OK) != 0 && errno == ENOENT) {
        char where[INSTALLED_WHERE_MAX];
        command_complain("there is no file %s%s", name, installed_where(name, where));
        return COMMAND_USAGE;
    }
    if (yaml_load_file(o.file, &yaml, &error) || matrix_create(yaml, &matrix, &error) ||
        matrix_list_create(matrix, &o.choice, &list, &error)) {
        command_complain("%s", error.text);
        exit_status = COMMAND_USAGE;
    } else {
        exit_status = run_or_list(&o, matrix, list);
    }
    matrix_list_destroy(list);
    matrix_destroy(matrix);
    return exit_status;
}
