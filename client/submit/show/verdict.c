// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/verdict.h"

#include <inttypes.h>
#include <string.h>

#include "client/submit/outcome/measure.h"
#include "client/submit/outcome/text.h"
#include "client/submit/show/figures.h"
#include "client/submit/show/table.h"
#include "common/duration.h"
#include "common/plural.h"

// With more ranks than this, only the times of the slowest are shown.
#define RANKS_SHOWN_MAX 8

enum terminal_paint verdict_paint(enum outcome_kind kind)
{
    switch (kind) {
    case OUTCOME_PASS:
        return PAINT_GOOD;
    case OUTCOME_FAIL:
    case OUTCOME_ERROR:
        return PAINT_BAD;
    case OUTCOME_NOT_RUN:
    case OUTCOME_EXCLUDED:
    case OUTCOME_UNVERIFIED:
    case OUTCOME_KINDS:
        break;
    }
    return PAINT_DIM;
}

void verdict_print_line(FILE *out, const char *what, const struct outcome *outcome)
{
    bool colours = terminal_colours(out);
    fprintf(out, "%s%-5s%s %s\n", terminal_paint(colours, verdict_paint(outcome->kind)),
            outcome_name(outcome->kind), terminal_unpaint(colours), what);
}

// ---- times ------------------------------------------------------------------------------------

static void time_cell(struct table *table, uint64_t ns)
{
    char text[DURATION_TEXT_MAX];
    table_cell(table, ns ? PAINT_PLAIN : PAINT_DIM, "%s",
               ns ? duration_format(ns, text, sizeof(text)) : "-");
}

static void times_row(struct table *table, const struct cp_case *c, const struct cpattn_rank *rank)
{
    table_row(table);
    table_cell(table, PAINT_PLAIN, "%d", rank->rank);
    time_cell(table, rank->plan_ns);
    time_cell(table, rank->inputs_ns);
    time_cell(table, rank->forward_ns);
    time_cell(table, rank->backward_ns);
    time_cell(table, rank->exchange_ns);
    time_cell(table, rank->exposed_ns);
    time_cell(table, rank->reference_ns + rank->compare_ns);
    if (c)
        table_cell(table, PAINT_PLAIN, "%.3g", measure_rates(c, rank).both * 1e-12);
}

static int slowest_rank(const struct cpattn_result *result)
{
    uint64_t most = 0;
    int slowest = 0;
    for (int r = 0; r < result->world_size; r++) {
        const struct cpattn_rank *rank = cpattn_result_rank(result, r);
        if (!rank || rank->forward_ns + rank->backward_ns <= most)
            continue;
        most = rank->forward_ns + rank->backward_ns;
        slowest = r;
    }
    return slowest;
}

// `c` is NULL for another kind of job, which computes no attention.
static void print_times(FILE *out, const struct cp_case *c, const struct cpattn_result *result,
                        bool verbose)
{
    char columns[128];
    bool all = verbose || result->world_size <= RANKS_SHOWN_MAX;
    int first = all ? 0 : slowest_rank(result), count = all ? result->world_size : 1;
    snprintf(columns, sizeof(columns),
             ">%s >PLAN >INPUTS >FORWARD >BACKWARD >EXCHANGE >EXPOSED >VERIFY%s",
             all ? "RANK" : "SLOWEST_RANK", c ? " >TFLOP/S" : "");
    struct table *table = table_create(out, columns);
    for (int r = first; r < first + count; r++) {
        const struct cpattn_rank *rank = cpattn_result_rank(result, r);
        if (rank)
            times_row(table, c, rank);
    }
    table_print(table, "");
    table_destroy(table);
}

// The phases from request to verdict, in order.
static void print_summary(FILE *out, const struct cpattn_result *result)
{
    uint64_t parts_ns[PARTS];
    char text[DURATION_TEXT_MAX], line[256];
    const char *joint = ": ";
    measure_parts(result, parts_ns);
    snprintf(line, sizeof(line), "%d rank%s, wall %s", result->world_size,
             plural(result->world_size), duration_format(result->total_ns, text, sizeof(text)));
    for (int i = 0; i < PARTS; i++) {
        if (parts_ns[i] == 0)
            continue;
        text_append(line, sizeof(line), "%s%s %s", joint, measure_part_name((enum measure_part)i),
                    duration_format(parts_ns[i], text, sizeof(text)));
        joint = ", ";
    }
    terminal_wrap(out, "      ", line);
    fprintf(out, "      digest %016" PRIx64 "\n", result->digest);
}

// If the case names a provider, prints how many attention operations of all ranks it and the own
// kernels computed.
static void print_use(FILE *out, const struct cp_case *c, const struct cpattn_result *result)
{
    char line[CPATTN_ERROR_TEXT_MAX + 160];
    const struct cpattn_rank *rank;
    const char *reason = "";
    long long own = 0, provided = 0;
    for (int r = 0; (rank = cpattn_result_rank(result, r)); r++) {
        own += rank->own_forward + rank->own_backward;
        provided += rank->provider_forward + rank->provider_backward;
        reason = reason[0] ? reason : rank->provider_reason;
    }
    if (!c->provider[0])
        return;
    snprintf(line, sizeof(line), "attention: %lld operation%s by %s, %lld by our own kernels%s%s",
             provided, plural(provided), c->provider, own, reason[0] ? ": " : "", reason);
    terminal_wrap(out, "      ", line);
}

// Number of ranks whose stderr is shown if no rank is known to be the cause.
#define STDERRS_SHOWN 8

// ---- failures ---------------------------------------------------------------------------------

static void print_stderr(FILE *out, const char *indent, const struct cpattn_failure *failure)
{
    fprintf(out, "%sstderr of rank %d:\n", indent, failure->rank);
    for (const char *line = failure->stderr_tail; *line;) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "%s  | %.*s\n", indent, (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void rank_row(struct table *table, const struct cpattn_failure *f)
{
    enum terminal_paint paint = f->culprit ? PAINT_BAD : PAINT_PLAIN;
    table_row(table);
    table_cell(table, paint, "%d%s", f->rank, f->culprit ? " <- cause" : "");
    table_cell(table, paint, "%s", f->fate[0] ? f->fate : "-");
    table_cell(table, paint, "%c", f->state);
    table_cell(table, paint, "%s", f->phase);
    table_cell(table, paint, "%d", f->step);
    if (f->waiting_for >= 0)
        table_cell(table, paint, "rank %d", f->waiting_for);
    else
        table_cell(table, paint, "-");
    table_cell(table, paint, "%s", f->text[0] ? f->text : "-");
}

static bool culprit_known(const struct cpattn_result *result)
{
    const struct cpattn_failure *f;
    for (int r = 0; r < result->world_size; r++)
        if ((f = cpattn_result_failure(result, r)) && f->culprit)
            return true;
    return false;
}

static void print_ranks(FILE *out, const char *indent, const struct cpattn_result *result)
{
    const struct cpattn_failure *f;
    struct table *table = table_create(out, "RANK FATE STATE PHASE >STEP WAITED_FOR REPORTED");
    for (int r = 0; r < result->world_size; r++)
        if ((f = cpattn_result_failure(result, r)))
            rank_row(table, f);
    table_print(table, indent);
    table_destroy(table);
    bool known = culprit_known(result);
    for (int r = 0, shown = 0; r < result->world_size && shown < STDERRS_SHOWN; r++) {
        f = cpattn_result_failure(result, r);
        if (!f || (known && !f->culprit) || !f->stderr_tail[0])
            continue;
        print_stderr(out, indent, f);
        shown++;
    }
}

static void print_command(FILE *out, const char *indent, const char *text, uint64_t timeout_ns)
{
    char timeout[DURATION_TEXT_MAX];
    fprintf(out, "%sagain: %s", indent, text);
    if (timeout_ns && timeout_ns != TIMEOUT_DEFAULT_NS)
        fprintf(out, " --timeout %s", duration_ask(timeout_ns, timeout, sizeof(timeout)));
    fputc('\n', out);
}

// The broken rules, and the first element that breaks one.
static void print_broken(FILE *out, const char *indent, const struct cpattn_result *result)
{
    char where[256], text[320];
    int rank;
    const struct cpattn_figures *f = outcome_worst(result, &rank);
    if (!f || !f->broken)
        return;
    outcome_first_bad(f, where, sizeof(where));
    if (!where[0])
        return;
    snprintf(text, sizeof(text), "first bad element: %s", where);
    terminal_wrap(out, indent, text);
}

static void print_cause(FILE *out, const char *indent, const char *command,
                        const struct outcome *outcome, const struct cpattn_result *result)
{
    if (outcome->kind == OUTCOME_ERROR)
        fprintf(out, "%s%s: %s\n", indent, status_name(outcome->status), outcome->sentence);
    else if (outcome->sentence)
        terminal_wrap(out, indent, outcome->sentence);
    if (outcome->kind == OUTCOME_FAIL)
        print_broken(out, indent, result);
    if (outcome->kind == OUTCOME_ERROR && result && cpattn_result_failure(result, 0))
        print_ranks(out, indent, result);
    print_command(out, indent, outcome->command ? outcome->command : command, outcome->timeout_ns);
}

void verdict_print_cause(FILE *out, const char *indent, const struct cp_case *c,
                         const struct outcome *outcome, const struct cpattn_result *result)
{
    char command[CASE_COMMAND_MAX];
    case_command(c, command, sizeof(command));
    print_cause(out, indent, command, outcome, result);
    if (outcome->kind == OUTCOME_FAIL)
        figures_print_notes(out, indent, c, result);
}

void verdict_print_cause_job(FILE *out, const char *indent, const struct job_spec *spec,
                             const struct outcome *outcome, const struct cpattn_result *result)
{
    char command[1024];
    if (spec->kind == &job_kind_attention) {
        verdict_print_cause(out, indent, &spec->attention, outcome, result);
        return;
    }
    job_spec_command(spec, command, sizeof(command));
    print_cause(out, indent, command, outcome, result);
    if (outcome->kind == OUTCOME_FAIL)
        figures_print_diagnosis(out, indent, result);
}

// Writes the lines above the figures. False if there are none.
static bool print_head(FILE *out, const char *what, const char *command,
                       const struct outcome *outcome, const struct cpattn_result *result)
{
    verdict_print_line(out, what, outcome);
    if (outcome->kind == OUTCOME_UNVERIFIED)
        fprintf(out, "      %s\n", outcome->sentence);
    else if (outcome->kind != OUTCOME_PASS)
        print_cause(out, "      ", command, outcome, result);
    if (outcome->kind == OUTCOME_ERROR)
        return false;
    print_summary(out, result);
    return true;
}

void verdict_print(FILE *out, const struct cp_case *c, const struct outcome *outcome,
                   const struct cpattn_result *result, bool verbose)
{
    char what[256], command[CASE_COMMAND_MAX];
    case_describe(c, what, sizeof(what));
    case_command(c, command, sizeof(command));
    if (!print_head(out, what, command, outcome, result))
        return;
    print_use(out, c, result);
    fputc('\n', out);
    if (outcome->tensor[0] && outcome->kind != OUTCOME_UNVERIFIED) {
        figures_print(out, result, verbose);
        figures_print_notes(out, "", c, result);
        fputc('\n', out);
    }
    print_times(out, c, result, verbose);
}

void verdict_print_job(FILE *out, const struct job_spec *spec, const struct outcome *outcome,
                       const struct cpattn_result *result, bool verbose)
{
    char what[256], command[1024];
    if (spec->kind == &job_kind_attention) {
        verdict_print(out, &spec->attention, outcome, result, verbose);
        return;
    }
    job_spec_describe(spec, what, sizeof(what));
    job_spec_command(spec, command, sizeof(command));
    if (!print_head(out, what, command, outcome, result))
        return;
    fputc('\n', out);
    if (outcome->tensor[0] && outcome->kind != OUTCOME_UNVERIFIED) {
        figures_print(out, result, verbose);
        figures_print_diagnosis(out, "", result);
        fputc('\n', out);
    }
    print_times(out, NULL, result, verbose);
}
