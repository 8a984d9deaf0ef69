// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/figures.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/submit/outcome/outcome.h"
#include "client/submit/outcome/text.h"
#include "client/submit/show/table.h"
#include "common/plural.h"
#include "plan/weight.h"

// Maximum number of different diagnoses shown.
#define DIAGNOSES_MAX 3

// ---- cells ------------------------------------------------------------------------------------

// A figure and its limit, as "1.02 of 1.50".
struct measured {
    double value, limit;
    uint32_t rule;
};

static void measured_cell(struct table *table, const struct cpattn_figures *f,
                          const struct measured *m, const char *value, const char *limit)
{
    bool broken = (f->broken & m->rule) != 0;
    enum terminal_paint paint = broken                                            ? PAINT_BAD
                                : outcome_part(m->value, m->limit) > OUTCOME_NEAR ? PAINT_WARN
                                                                                  : PAINT_PLAIN;
    if ((m->limit > 0 && !isinf(m->limit)) || broken)
        table_cell(table, paint, "%s%s of %s", broken ? "!" : "", value, limit);
    else
        table_cell(table, PAINT_DIM, "-");
}

static void slope_cell(struct table *table, const struct cpattn_figures *f)
{
    struct measured m = {f->slope, f->slope_limit, CPATTN_RULE_SLOPE};
    char value[16], limit[16];
    snprintf(value, sizeof(value), "%.0e", m.value);
    snprintf(limit, sizeof(limit), "%.0e", m.limit);
    measured_cell(table, f, &m, value, limit);
}

static void units_cell(struct table *table, const struct cpattn_figures *f,
                       const struct measured *m)
{
    char value[16], limit[16];
    outcome_number(m->value, value);
    outcome_number(m->limit, limit);
    measured_cell(table, f, m, value, limit);
}

static void rms_cell(struct table *table, const struct cpattn_figures *f)
{
    struct measured m = {outcome_in_twins(f, f->rmse_rel), outcome_in_twins(f, f->rmse_limit),
                         CPATTN_RULE_RMSE};
    if (outcome_is_logarithm(f) || isinf(f->twin_rel)) // of a reference that is zero
        m.limit = 0;
    units_cell(table, f, &m);
}

static void row_cell(struct table *table, const struct cpattn_figures *f)
{
    struct measured m = {f->worst_row_rel, f->worst_row_limit, CPATTN_RULE_ROW};
    if (outcome_is_logarithm(f))
        m.limit = 0;
    units_cell(table, f, &m);
}

static void part_cell(struct table *table, const struct cpattn_figures *f)
{
    char part[16];
    bool broken = (f->broken & CPATTN_RULE_ELEMENT) != 0;
    enum terminal_paint paint = broken                            ? PAINT_BAD
                                : f->worst_element > OUTCOME_NEAR ? PAINT_WARN
                                                                  : PAINT_PLAIN;
    outcome_percent(f->worst_element, part);
    table_cell(table, paint, "%s%s", broken ? "!" : "", part);
}

// Fills the cell of the rules without a tolerance.
static void exact_cell(struct table *table, const struct cpattn_figures *f)
{
    char text[32] = "";
    if (f->broken & CPATTN_RULE_NONFINITE)
        text_append(text, sizeof(text), "!nonfinite");
    if (f->broken & CPATTN_RULE_ZERO)
        text_append(text, sizeof(text), "%s!zero", text[0] ? " " : "");
    if (f->broken & CPATTN_RULE_PADDING)
        text_append(text, sizeof(text), "%s!padding", text[0] ? " " : "");
    table_cell(table, text[0] ? PAINT_BAD : PAINT_DIM, "%s", text[0] ? text : "-");
}

// ---- tables -----------------------------------------------------------------------------------

static bool any_inexact(const struct cpattn_result *result)
{
    const struct cpattn_figures *f;
    const uint32_t exact = CPATTN_RULE_NONFINITE | CPATTN_RULE_ZERO | CPATTN_RULE_PADDING;
    for (int r = 0; r < result->world_size; r++)
        for (int i = 0; (f = cpattn_result_figures(result, r, i)); i++)
            if (f->broken & exact)
                return true;
    return false;
}

struct layout {
    bool exact;   // a column for the rules without a tolerance
    bool numbers; // columns for the largest error and for counts
};

static struct table *figures_table(FILE *out, const struct layout *layout)
{
    char columns[128] = "TENSOR >RANK CHUNK >RMSE >SLOPE >ROW >ELEMENT";
    if (layout->numbers)
        text_append(columns, sizeof(columns), " >MAX_ERROR >OUTSIDE >JUDGED");
    if (layout->exact)
        text_append(columns, sizeof(columns), " EXACT");
    return table_create(out, columns);
}

static void figures_row(struct table *table, const struct layout *layout,
                        const struct cpattn_figures *f, int rank)
{
    table_row(table);
    table_cell(table, f->broken ? PAINT_BAD : PAINT_PLAIN, "%s", f->tensor);
    table_cell(table, PAINT_PLAIN, "%d", rank);
    if (f->chunk == CPATTN_CHUNK_PADDING)
        table_cell(table, PAINT_PLAIN, "pad");
    else
        table_cell(table, PAINT_PLAIN, "%d", f->chunk);
    rms_cell(table, f);
    slope_cell(table, f);
    row_cell(table, f);
    if (f->chunk == CPATTN_CHUNK_PADDING)
        table_cell(table, PAINT_DIM, "-");
    else
        part_cell(table, f);
    if (layout->numbers) {
        table_cell(table, PAINT_PLAIN, "%.2e", f->max_abs);
        table_cell(table, PAINT_PLAIN, "%" PRId64, f->mismatches);
        table_cell(table, PAINT_PLAIN, "%" PRId64 " of %" PRId64, f->judged, f->elements);
    }
    if (layout->exact)
        exact_cell(table, f);
}

static void worst_rows(struct table *table, const struct layout *layout,
                       const struct cpattn_result *result)
{
    const char *names[OUTCOME_TENSORS_MAX];
    int count = outcome_tensors(result, names);
    for (int t = 0; t < count; t++) {
        int rank = 0;
        const struct cpattn_figures *worst = outcome_worst_of(result, names[t], &rank);
        figures_row(table, layout, worst, rank);
    }
}

static void all_rows(struct table *table, const struct layout *layout,
                     const struct cpattn_result *result)
{
    const struct cpattn_figures *f;
    for (int r = 0; r < result->world_size; r++)
        for (int i = 0; (f = cpattn_result_figures(result, r, i)); i++)
            figures_row(table, layout, f, r);
}

void figures_print(FILE *out, const struct cpattn_result *result, bool verbose)
{
    struct layout layout = {.exact = any_inexact(result), .numbers = verbose};
    struct table *table = figures_table(out, &layout);
    fprintf(out, "RMSE and ROW in units of the twin's error, ELEMENT in parts of its limit:\n");
    if (verbose)
        all_rows(table, &layout, result);
    else
        worst_rows(table, &layout, result);
    table_print(table, "");
    table_destroy(table);
}

// ---- the diagnosis ----------------------------------------------------------------------------

static bool say_the_same(const struct cpattn_rank *a, const struct cpattn_rank *b)
{
    return strcmp(a->diagnosis, b->diagnosis) == 0 &&
           strcmp(a->diagnosis_tensor, b->diagnosis_tensor) == 0;
}

// True if the first diagnosis, or that of a lower rank, is the same.
static bool is_said(const struct cpattn_result *result, int rank, const struct cpattn_rank *first)
{
    const struct cpattn_rank *own = cpattn_result_rank(result, rank);
    for (int r = 0; r < rank; r++)
        if (say_the_same(cpattn_result_rank(result, r), own))
            return true;
    return say_the_same(first, own);
}

static void diagnosis_print(FILE *out, const char *indent, const struct cpattn_rank *rank)
{
    char text[OUTCOME_SENTENCE_MAX] = "diagnosis: ";
    size_t used = strlen(text);
    outcome_diagnosis(rank, text + used, sizeof(text) - used);
    terminal_wrap(out, indent, text);
}

void figures_print_diagnosis(FILE *out, const char *indent, const struct cpattn_result *result)
{
    const struct cpattn_rank *first = outcome_diagnosed(result), *rank;
    int shown = 1;
    if (!first)
        return;
    diagnosis_print(out, indent, first);
    for (int r = 0; (rank = cpattn_result_rank(result, r)) && shown < DIAGNOSES_MAX; r++) {
        if (!rank->diagnosis[0] || is_said(result, r, first))
            continue;
        diagnosis_print(out, indent, rank);
        shown++;
    }
}

// ---- notes ------------------------------------------------------------------------------------

// Only figures of tensors, not of padding.
struct counts {
    int64_t elements, judged, te_mismatches;
    bool measured; // there is a twin
};

static struct counts counts_of(const struct cpattn_result *result)
{
    struct counts counts = {0};
    const struct cpattn_figures *f;
    for (int r = 0; r < result->world_size; r++)
        for (int i = 0; (f = cpattn_result_figures(result, r, i)); i++) {
            if (f->chunk == CPATTN_CHUNK_PADDING)
                continue;
            counts.elements += f->elements;
            counts.judged += f->judged;
            counts.te_mismatches += f->te_mismatches;
            counts.measured = counts.measured || f->twin_rel > 0;
        }
    return counts;
}

static void print_remarks(FILE *out, const char *indent, const struct cpattn_result *result)
{
    const char *names[OUTCOME_TENSORS_MAX];
    int count = outcome_tensors(result, names);
    for (int t = 0; t < count; t++)
        for (const struct outcome_remark *r = outcome_remarks; r->name; r++) {
            char text[256];
            if (!outcome_remarked(result, names[t], r->remark))
                continue;
            snprintf(text, sizeof(text), "remark: %s %s", names[t], r->text);
            terminal_wrap(out, indent, text);
        }
}

static void print_blind(FILE *out, const char *indent, const struct cp_case *c)
{
    char text[CASE_BLIND_MAX + 32] = "cannot show: ";
    size_t used = strlen(text);
    if (case_blind(c, text + used, sizeof(text) - used) > 0)
        terminal_wrap(out, indent, text);
}

void figures_print_notes(FILE *out, const char *indent, const struct cp_case *c,
                         const struct cpattn_result *result)
{
    struct counts counts = counts_of(result);
    char text[256];
    figures_print_diagnosis(out, indent, result);
    print_remarks(out, indent, result);
    print_blind(out, indent, c);
    if (!counts.measured)
        return;
    if (counts.judged < counts.elements) {
        snprintf(text, sizeof(text),
                 "judged: a sample of %.2g %%, %" PRId64 " of %" PRId64
                 " elements; --verify full judges all of them",
                 100 * (double)counts.judged / (double)counts.elements, counts.judged,
                 counts.elements);
        terminal_wrap(out, indent, text);
    }
    if (counts.te_mismatches == 0)
        snprintf(text, sizeof(text), "for comparison: TransformerEngine's own rule holds");
    else
        snprintf(text, sizeof(text),
                 "for comparison: TransformerEngine's own rule refuses %" PRId64 " element%s",
                 counts.te_mismatches, plural(counts.te_mismatches));
    terminal_wrap(out, indent, text);
}
