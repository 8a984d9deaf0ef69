// SPDX-License-Identifier: Apache-2.0
// The figures and the text of a verdict.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "client/figures.h"

void verdict_append(struct cpattn_check_verdict *v, const struct figures *figures)
{
    struct rank_report *report = &v->report;
    report->pass = report->pass && figures->broken == 0;
    report->figures[report->figures_count] = *figures; // public figures point to its name
    v->figures[report->figures_count] = figures_public(&report->figures[report->figures_count]);
    report->figures_count++;
}

// ---- text ---------------------------------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static void text_add(struct cpattn_check_verdict *v,
                                                           const char *format, ...)
{
    size_t used = strlen(v->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(v->text + used, sizeof(v->text) - used, format, arguments);
    va_end(arguments);
}

// Adds the text of a tensor of a collective or linear layer.
static void job_text(struct cpattn_check_verdict *v, const struct cpattn_figures *f)
{
    text_add(v, "%s %s: %lld of %lld elements outside", f->broken ? "FAIL" : "pass", f->tensor,
             (long long)f->mismatches, (long long)f->judged);
    if (f->rmse_limit > 0)
        text_add(v, ", rms %.3g of %.3g", f->rmse_rel, f->rmse_limit);
    if (f->nonfinite > 0)
        text_add(v, ", %lld not finite", (long long)f->nonfinite);
    if (f->first_bad.position >= 0)
        text_add(v, "; first bad element: position %lld, dim %d: %g instead of %g",
                 (long long)f->first_bad.position, f->first_bad.dim, f->first_bad_got,
                 f->first_bad_expected);
    text_add(v, "\n");
}

// Adds the broken rules, as " breaks rmse, slope;".
static void broken_text(struct cpattn_check_verdict *v, const struct cpattn_figures *f)
{
    static const struct {
        uint32_t rule;
        const char *name;
    } rules[] = {{CPATTN_RULE_RMSE, "rmse"},      {CPATTN_RULE_SLOPE, "slope"},
                 {CPATTN_RULE_ROW, "row"},        {CPATTN_RULE_ELEMENT, "element"},
                 {CPATTN_RULE_ZERO, "zero"},      {CPATTN_RULE_NONFINITE, "nonfinite"},
                 {CPATTN_RULE_PADDING, "padding"}};
    const char *joint = " breaks ";
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        if (!(f->broken & rules[i].rule))
            continue;
        text_add(v, "%s%s", joint, rules[i].name);
        joint = ", ";
    }
    text_add(v, "%s", f->broken ? ";" : "");
}

static void errors_text(struct cpattn_check_verdict *v, const struct cpattn_figures *f)
{
    text_add(v, "%s", f->nonfinite > 0 ? ", others:" : "");
    if (f->twin_rel > 0 && isfinite(f->twin_rel))
        text_add(v, " error %.3g of %.3g times an honest kernel's,", f->rmse_rel / f->twin_rel,
                 f->rmse_limit / f->twin_rel);
    text_add(v, " rms %.3g of %.3g", f->rmse_rel, f->rmse_limit);
    if (f->slope_limit > 0) // LSE has none
        text_add(v, ", slope %.2g of %.2g", f->slope, f->slope_limit);
    text_add(v, ", worst row %.3g of %.3g", f->worst_row_rel, f->worst_row_limit);
}

static void figures_text(struct cpattn_check_verdict *v, const struct cpattn_figures *f)
{
    text_add(v, "%s %s", f->broken ? "FAIL" : "pass", f->tensor);
    if (f->chunk == CPATTN_CHUNK_PADDING) {
        text_add(v, ", padding: %lld of %lld elements are not zero\n", (long long)f->mismatches,
                 (long long)f->elements);
        return;
    }
    text_add(v, ", chunk %d:", f->chunk);
    broken_text(v, f);
    if (f->nonfinite > 0)
        text_add(v, " %lld of %lld elements are not finite", (long long)f->nonfinite,
                 (long long)f->elements);
    // Without a finite element there is nothing to measure.
    if (f->nonfinite == 0 || isfinite(f->rmse_limit))
        errors_text(v, f);
    if (f->remark == CPATTN_REMARK_ZEROS_PASS)
        text_add(v, "; rounding errors are as large as the values here: zeros pass, too");
    if (f->first_bad.position >= 0)
        text_add(
            v, "; first bad element: sequence %d, position %lld, head %d, dim %d: %g instead of %g",
            f->first_bad.sequence, (long long)f->first_bad.position, f->first_bad.head,
            f->first_bad.dim, f->first_bad_got, f->first_bad_expected);
    text_add(v, "\n");
}

// The name of the diagnosed tensor; "": there is no diagnosis.
static const char *diagnosis_tensor(const struct diagnosis *d)
{
    return d->tensor ? report_tensor_name(d->tensor) : d->name;
}

void verdict_write(struct cpattn_check_verdict *v)
{
    const struct diagnosis *d = &v->report.diagnosis;
    for (int i = 0; i < v->report.figures_count; i++)
        if (v->report.figures[i].tensor)
            figures_text(v, &v->figures[i]);
        else
            job_text(v, &v->figures[i]);
    if (d->text[0])
        text_add(v, "diagnosis: %s (explains %.0f %% of the error of %s)\n", d->text,
                 100 * d->explained, diagnosis_tensor(d));
}

// ---- public functions ---------------------------------------------------------------------------

void cpattn_check_verdict_destroy(struct cpattn_check_verdict *verdict)
{
    free(verdict);
}

bool cpattn_check_verdict_pass(const struct cpattn_check_verdict *verdict)
{
    return verdict->report.pass;
}

const struct cpattn_figures *
cpattn_check_verdict_figures(const struct cpattn_check_verdict *verdict, int index)
{
    return index >= 0 && index < verdict->report.figures_count ? &verdict->figures[index] : NULL;
}

const char *cpattn_check_verdict_diagnosis(const struct cpattn_check_verdict *verdict,
                                           const char **tensor, double *explained)
{
    const struct diagnosis *d = &verdict->report.diagnosis;
    if (tensor)
        *tensor = diagnosis_tensor(d);
    if (explained)
        *explained = d->explained;
    return d->text;
}

uint64_t cpattn_check_verdict_digest(const struct cpattn_check_verdict *verdict)
{
    return verdict->same;
}

const char *cpattn_check_verdict_text(const struct cpattn_check_verdict *verdict)
{
    return verdict->text;
}
