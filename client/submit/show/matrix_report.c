// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/matrix_report.h"

#include <string.h>

#include "client/submit/show/table.h"
#include "client/submit/show/verdict.h"
#include "common/plural.h"

static bool is_bad(const struct outcome *o)
{
    return o->kind == OUTCOME_FAIL || o->kind == OUTCOME_ERROR;
}

// The largest error as a fraction of its limit, with the rule and the tensor. `outcome` may be
// NULL.
static void used_cells(struct table *table, const struct outcome *outcome)
{
    char used[OUTCOME_NUMBER_MAX];
    bool known = outcome && outcome->tensor[0];
    bool near = known && outcome->used > OUTCOME_NEAR;
    table_cell(table, near ? PAINT_WARN : PAINT_PLAIN, "%s",
               known ? outcome_percent(outcome->used, used) : "-");
    table_cell(table, PAINT_PLAIN, "%s", known ? outcome->rule : "-");
    table_cell(table, PAINT_PLAIN, "%s", known ? outcome->tensor : "-");
}

static void time_cell(struct table *table, uint64_t ns)
{
    char text[DURATION_TEXT_MAX];
    table_cell(table, PAINT_PLAIN, "%s", ns ? duration_format(ns, text, sizeof(text)) : "-");
}

// ---- a row for each case ----------------------------------------------------------------------

static void print_cases(FILE *out, const struct matrix_report *report)
{
    struct table *table =
        table_create(out, "CASE VERDICT >OF_LIMIT RULE TENSOR >FORWARD >BACKWARD >RAN >WAITED");
    for (int i = 0; i < report->list->count; i++) {
        const struct outcome *o = &report->outcomes[i];
        if (o->kind == OUTCOME_EXCLUDED)
            continue;
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s", report->list->cases[i].id);
        table_cell(table, verdict_paint(o->kind), "%s", outcome_name(o->kind));
        used_cells(table, o);
        time_cell(table, o->forward_ns);
        time_cell(table, o->backward_ns);
        time_cell(table, o->run_ns);
        time_cell(table, o->wait_ns);
    }
    table_print(table, "");
    table_destroy(table);
}

// ---- a row for each value of the first axis ---------------------------------------------------

struct sum {
    int kinds[OUTCOME_KINDS];
    const struct outcome *worst, *slowest;
};

static void sum_add(struct sum *sum, const struct outcome *o)
{
    sum->kinds[o->kind]++;
    if (o->tensor[0] && (!sum->worst || o->used > sum->worst->used))
        sum->worst = o;
    if (!sum->slowest || o->run_ns > sum->slowest->run_ns)
        sum->slowest = o;
}

static void count_cell(struct table *table, int count, enum terminal_paint paint)
{
    if (count)
        table_cell(table, paint, "%d", count);
    else
        table_cell(table, PAINT_DIM, "-");
}

static void sum_row(struct table *table, const char *label, const struct sum *sum)
{
    table_row(table);
    table_cell(table, PAINT_PLAIN, "%s", label);
    count_cell(table, sum->kinds[OUTCOME_PASS], PAINT_GOOD);
    count_cell(table, sum->kinds[OUTCOME_FAIL], PAINT_BAD);
    count_cell(table, sum->kinds[OUTCOME_ERROR], PAINT_BAD);
    count_cell(table, sum->kinds[OUTCOME_NOT_RUN], PAINT_WARN);
    count_cell(table, sum->kinds[OUTCOME_EXCLUDED], PAINT_DIM);
    used_cells(table, sum->worst);
    time_cell(table, sum->slowest ? sum->slowest->run_ns : 0);
}

static struct sum sum_of(const struct matrix_report *report, int axis, int value)
{
    struct sum sum = {.worst = NULL};
    for (int i = 0; i < report->list->count; i++)
        if (axis < 0 || report->list->cases[i].value[axis] == value)
            sum_add(&sum, &report->outcomes[i]);
    return sum;
}

static void print_sums(FILE *out, const struct matrix_report *report)
{
    const struct matrix_axis *first = &report->list->axes[0];
    char columns[160];
    snprintf(columns, sizeof(columns),
             "%s >PASS >FAIL >ERROR >NOT_RUN >EXCLUDED >OF_LIMIT RULE TENSOR >SLOWEST",
             first->name);
    for (char *c = columns; *c && *c != ' '; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    struct table *table = table_create(out, columns);
    for (int value = 0; value < first->count; value++) {
        struct sum sum = sum_of(report, 0, value);
        if (sum.slowest)
            sum_row(table, first->values[value].label, &sum);
    }
    struct sum all = sum_of(report, -1, 0);
    sum_row(table, "all", &all);
    table_print(table, "");
    table_destroy(table);
}

// True if the rate of failures of one value of an axis is more than twice that of another. Values
// of which no case ran have no rate.
static bool axis_tells(const struct matrix_report *report, int axis)
{
    double least = 1, most = 0;
    for (int value = 0; value < report->list->axes[axis].count; value++) {
        struct sum sum = sum_of(report, axis, value);
        int bad = sum.kinds[OUTCOME_FAIL] + sum.kinds[OUTCOME_ERROR];
        int all = bad + sum.kinds[OUTCOME_PASS];
        if (all == 0)
            continue;
        double rate = (double)bad / all;
        least = rate < least ? rate : least;
        most = rate > most ? rate : most;
    }
    return most > 2 * least;
}

static void where_rows(struct table *table, const struct matrix_report *report, int axis)
{
    const struct matrix_axis *a = &report->list->axes[axis];
    for (int value = 0; value < a->count; value++) {
        struct sum sum = sum_of(report, axis, value);
        int bad = sum.kinds[OUTCOME_FAIL] + sum.kinds[OUTCOME_ERROR];
        if (!bad)
            continue;
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s", a->name);
        table_cell(table, PAINT_PLAIN, "%s", a->values[value].label);
        count_cell(table, sum.kinds[OUTCOME_FAIL], PAINT_BAD);
        count_cell(table, sum.kinds[OUTCOME_ERROR], PAINT_BAD);
        table_cell(table, PAINT_PLAIN, "%d", bad + sum.kinds[OUTCOME_PASS]);
    }
}

// The axes whose values separate failures from passes.
static void print_where(FILE *out, const struct matrix_report *report)
{
    struct table *table = table_create(out, "AXIS VALUE >FAIL >ERROR >OF");
    bool any = false;
    for (int axis = 0; axis < report->list->axis_count; axis++) {
        if (!axis_tells(report, axis))
            continue;
        where_rows(table, report, axis);
        any = true;
    }
    if (any)
        fputs("\nWhere the failures are:\n", out);
    table_print(table, "");
    table_destroy(table);
}

// ---- failures in full -------------------------------------------------------------------------

static void print_failures(FILE *out, const struct matrix_report *report, int bad)
{
    int shown = 0;
    for (int i = 0; i < report->list->count; i++) {
        const struct outcome *o = &report->outcomes[i];
        if (!is_bad(o))
            continue;
        if (shown == MATRIX_REPORT_FAILURES_MAX && !report->verbose) {
            fprintf(out, "\nand %d more; --verbose, --json or --junit has all of them\n",
                    bad - shown);
            return;
        }
        fputc('\n', out);
        verdict_print_line(out, report->list->cases[i].id, o);
        fputs(o->detail ? o->detail : "", out);
        shown++;
    }
}

void matrix_report_sum(const struct matrix_report *report, char text[MATRIX_REPORT_SUM_MAX])
{
    const size_t size = MATRIX_REPORT_SUM_MAX;
    struct totals totals = {0};
    char elapsed[DURATION_TEXT_MAX], words[TOTALS_TEXT_MAX];
    for (int i = 0; i < report->list->count; i++)
        totals_add(&totals, &report->outcomes[i]);
    int shown = report->list->count - totals.kinds[OUTCOME_EXCLUDED];
    totals.kinds[OUTCOME_EXCLUDED] = 0;
    totals_format(&totals, words);
    size_t used = (size_t)snprintf(text, size, "%d case%s:%s%s", shown, plural(shown),
                                   words[0] ? " " : "", words);
    used += (size_t)snprintf(text + used, size - used, " in %s",
                             duration_format(report->elapsed_ns, elapsed, sizeof(elapsed)));
    if (report->recorded)
        snprintf(text + used, size - used, "; %d of them recorded before", report->recorded);
}

// ---- flaky cases, longest cases, notes --------------------------------------------------------

static void print_flaky(FILE *out, const struct matrix_report *report)
{
    bool any = false;
    for (int i = 0; i < report->list->count; i++) {
        const struct outcome *o = &report->outcomes[i];
        if (!o->first)
            continue;
        if (!any)
            fputs("\nFlaky, passed after another try:\n", out);
        any = true;
        fprintf(out, "  %s: %s\n", report->list->cases[i].id, o->first);
    }
}

// The next longest case after `than`, in list order among equals; -1: none is left.
static int next_longest(const struct matrix_report *report, int than)
{
    int longest = -1;
    const struct outcome *o = report->outcomes;
    uint64_t limit = than < 0 ? UINT64_MAX : o[than].run_ns;
    for (int i = 0; i < report->list->count; i++) {
        bool behind = o[i].run_ns < limit || (o[i].run_ns == limit && i > than);
        if (o[i].run_ns > 0 && behind && (longest < 0 || o[i].run_ns > o[longest].run_ns))
            longest = i;
    }
    return longest;
}

static void print_durations(FILE *out, const struct matrix_report *report)
{
    if (report->durations == 0)
        return;
    struct table *table = table_create(out, "LONGEST >RAN >FORWARD >BACKWARD >WAITED");
    int longest = -1;
    for (int i = 0; i < report->durations; i++) {
        longest = next_longest(report, longest);
        if (longest < 0)
            break;
        const struct outcome *o = &report->outcomes[longest];
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s", report->list->cases[longest].id);
        time_cell(table, o->run_ns);
        time_cell(table, o->forward_ns);
        time_cell(table, o->backward_ns);
        time_cell(table, o->wait_ns);
    }
    fputc('\n', out);
    table_print(table, "");
    table_destroy(table);
}

// Prints facts about the run that no verdict contains.
static void print_notes(FILE *out, const struct matrix_report *report)
{
    int sampled = 0, remarked = 0, blind = 0, te = 0;
    for (int i = 0; i < report->list->count; i++) {
        const struct outcome *o = &report->outcomes[i];
        sampled += o->sampled;
        remarked += o->remarked;
        blind += o->blind;
        te += o->te_mismatches > 0;
    }
    const struct {
        int count;
        const char *words;
    } notes[] = {{sampled, "judged by a sample; --set verify=full judges every element"},
                 {remarked, "with a remark; --json has it"},
                 {blind, "passed with a feature that cannot show in the verdict; --json "
                         "names it"},
                 {te, "with elements that TransformerEngine's own rule refuses, for comparison"}};
    bool any = sampled || remarked || blind || te;
    if (any)
        fputc('\n', out);
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++)
        if (notes[i].count)
            fprintf(out, "%d case%s %s\n", notes[i].count, plural(notes[i].count), notes[i].words);
}

void matrix_report_print(FILE *out, const struct matrix_report *report)
{
    char sum[MATRIX_REPORT_SUM_MAX];
    struct sum all = sum_of(report, -1, 0);
    int shown = report->list->count - all.kinds[OUTCOME_EXCLUDED];
    int bad = all.kinds[OUTCOME_FAIL] + all.kinds[OUTCOME_ERROR];
    bool rows = shown <= MATRIX_REPORT_ROWS_MAX || report->verbose;
    if (rows)
        print_cases(out, report);
    else
        print_sums(out, report);
    if (bad > 0 && !rows)
        print_where(out, report);
    print_failures(out, report, bad);
    print_flaky(out, report);
    print_durations(out, report);
    print_notes(out, report);
    bool colours = terminal_colours(out);
    matrix_report_sum(report, sum);
    fprintf(out, "\n%s%s%s\n",
            terminal_paint(colours, bad                              ? PAINT_BAD
                                    : all.kinds[OUTCOME_NOT_RUN] > 0 ? PAINT_WARN
                                                                     : PAINT_GOOD),
            sum, terminal_unpaint(colours));
}
