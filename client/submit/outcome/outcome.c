// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/outcome.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/outcome/text.h"
#include "common/plural.h"
#include "common/report.h"

const char *outcome_name(enum outcome_kind kind)
{
    static const char *const names[OUTCOME_KINDS] = {"not run", "pass",     "fail",
                                                     "error",   "excluded", "unverified"};
    return names[kind];
}

void outcome_fini(struct outcome *outcome)
{
    free(outcome->sentence);
    free(outcome->diagnosis);
    free(outcome->first);
    free(outcome->detail);
    *outcome = (struct outcome){0};
}

bool outcome_is_good(const struct outcome *outcome)
{
    return outcome->kind == OUTCOME_PASS || outcome->kind == OUTCOME_UNVERIFIED;
}

// ---- numbers ----------------------------------------------------------------------------------

double outcome_part(double value, double limit)
{
    if (isnan(value) || isnan(limit))
        return INFINITY;
    if (isinf(limit)) // of a reference that is zero
        return isinf(value) ? 1 : 0;
    if (limit > 0)
        return fabs(value) / limit;
    return value != 0 ? INFINITY : 0;
}

double outcome_in_twins(const struct cpattn_figures *figures, double relative)
{
    return figures->twin_rel > 0 ? relative / figures->twin_rel : relative;
}

bool outcome_is_logarithm(const struct cpattn_figures *figures)
{
    return strcmp(figures->tensor, "lse") == 0 || strcmp(figures->tensor, "max_logit") == 0;
}

const char *outcome_number(double value, char text[OUTCOME_NUMBER_MAX])
{
    double size = fabs(value);
    if (size >= 99999.5 || (size > 0 && size < 0.005))
        snprintf(text, OUTCOME_NUMBER_MAX, "%.0e", value);
    else
        snprintf(text, OUTCOME_NUMBER_MAX, "%.*f", size < 9.995 ? 2 : 0, value);
    return text;
}

const char *outcome_percent(double part, char text[OUTCOME_NUMBER_MAX])
{
    if (!(part <= 99))
        snprintf(text, OUTCOME_NUMBER_MAX, "> 99x");
    else if (part >= 10)
        snprintf(text, OUTCOME_NUMBER_MAX, "%.1fx", part);
    else
        snprintf(text, OUTCOME_NUMBER_MAX, "%.0f%%", 100 * part);
    return text;
}

// ---- figures ----------------------------------------------------------------------------------

const struct outcome_rule outcome_rules[] = {{CPATTN_RULE_NONFINITE, "nonfinite"},
                                             {CPATTN_RULE_ZERO, "zero"},
                                             {CPATTN_RULE_PADDING, "padding"},
                                             {CPATTN_RULE_ELEMENT, "element"},
                                             {CPATTN_RULE_RMSE, "rmse"},
                                             {CPATTN_RULE_SLOPE, "slope"},
                                             {CPATTN_RULE_ROW, "row"},
                                             {0, NULL}};

static const uint32_t exact_rules = CPATTN_RULE_NONFINITE | CPATTN_RULE_ZERO | CPATTN_RULE_PADDING;

// An error as a fraction of its rule's limit; 0 if the rule does not apply to the tensor.
static double rule_part(const struct cpattn_figures *f, uint32_t rule)
{
    switch (rule) {
    case CPATTN_RULE_RMSE:
        return outcome_part(f->rmse_rel, f->rmse_limit);
    case CPATTN_RULE_ROW:
        return f->worst_row_limit > 0 ? outcome_part(f->worst_row_rel, f->worst_row_limit) : 0;
    case CPATTN_RULE_SLOPE:
        return f->slope_limit > 0 ? outcome_part(f->slope, f->slope_limit) : 0;
    case CPATTN_RULE_ELEMENT:
        return outcome_part(f->worst_element, 1);
    default:
        return 0;
    }
}

double outcome_used(const struct cpattn_figures *figures, const char **rule)
{
    double most = -1;
    for (const struct outcome_rule *r = outcome_rules; r->name; r++) {
        if (figures->broken & r->bit & exact_rules) {
            *rule = r->name;
            return INFINITY;
        }
        double used = rule_part(figures, r->bit);
        if (r->bit & exact_rules || used <= most)
            continue;
        most = used;
        *rule = r->name;
    }
    return most;
}

// Broken tensors come before sound ones, then larger errors before smaller ones.
static bool is_worse(const struct cpattn_figures *a, const struct cpattn_figures *b)
{
    if (!a->broken != !b->broken)
        return a->broken != 0;
    const char *rule;
    return outcome_used(a, &rule) > outcome_used(b, &rule);
}

static bool is_among(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

int outcome_tensors(const struct cpattn_result *result, const char *names[OUTCOME_TENSORS_MAX])
{
    const struct cpattn_figures *f;
    int count = 0;
    for (int r = 0; result && r < result->world_size; r++)
        for (int i = 0; (f = cpattn_result_figures(result, r, i)); i++)
            if (count < OUTCOME_TENSORS_MAX && !is_among(f->tensor, names, count))
                names[count++] = f->tensor;
    return count;
}

const struct cpattn_figures *outcome_worst_of(const struct cpattn_result *result,
                                              const char *tensor, int *rank)
{
    const struct cpattn_figures *worst = NULL, *f;
    for (int r = 0; r < result->world_size; r++) {
        for (int i = 0; (f = cpattn_result_figures(result, r, i)); i++) {
            if (strcmp(f->tensor, tensor) != 0 || (worst && !is_worse(f, worst)))
                continue;
            worst = f;
            *rank = r;
        }
    }
    return worst;
}

const struct cpattn_figures *outcome_worst(const struct cpattn_result *result, int *rank)
{
    const char *names[OUTCOME_TENSORS_MAX];
    const struct cpattn_figures *worst = NULL;
    int count = outcome_tensors(result, names);
    for (int i = 0; i < count; i++) {
        int r = 0;
        const struct cpattn_figures *f = outcome_worst_of(result, names[i], &r);
        // Tensors computed from a broken one are broken, too, so the first broken one is the cause.
        if (worst && (worst->broken || !is_worse(f, worst)))
            continue;
        worst = f;
        *rank = r;
    }
    return worst;
}

const struct outcome_remark outcome_remarks[] = {
    {CPATTN_REMARK_LONG_SUM, "long_sum",
     "is within its limit only because its sums have many terms: long sums in fp32 lose a little "
     "with each term, and the limit grows with their number"},
    {CPATTN_REMARK_ZEROS_PASS, "zeros_pass",
     "passes, as zeros would: rounding errors of an honest kernel are as large as the values here"},
    {CPATTN_REMARK_NONE, NULL, NULL}};

bool outcome_remarked(const struct cpattn_result *result, const char *tensor,
                      enum cpattn_remark remark)
{
    const struct cpattn_figures *f;
    for (int r = 0; r < result->world_size; r++)
        for (int i = 0; (f = cpattn_result_figures(result, r, i)); i++)
            if (f->remark == remark && strcmp(f->tensor, tensor) == 0)
                return true;
    return false;
}

static bool is_of_attention(const struct cpattn_figures *figures)
{
    for (int tensor = 1; tensor < TENSOR_COUNT; tensor++)
        if (strcmp(figures->tensor, report_tensor_name(tensor)) == 0)
            return true;
    return false;
}

static void explain_padding(const struct cpattn_figures *f, char *text, size_t size)
{
    const char *what = is_of_attention(f)                 ? "elements are not zero"
                       : strcmp(f->tensor, "guards") == 0 ? "bytes around the tensors have changed"
                       : strcmp(f->tensor, "inputs") == 0 ? "inputs have changed"
                                                          : "elements of the input have changed";
    text_append(text, size, "%" PRId64 " of %" PRId64 " %s", f->mismatches, f->elements, what);
}

static void explain_element(const struct cpattn_figures *f, char *text, size_t size)
{
    char part[OUTCOME_NUMBER_MAX];
    if (strcmp(f->tensor, "same") == 0)
        text_append(text, size, "%" PRId64 " of %" PRId64 " results differ between ranks",
                    f->mismatches, f->judged);
    else
        text_append(text, size,
                    "%" PRId64 " of %" PRId64 " element%s outside, the worst %s times its limit",
                    f->mismatches, f->judged, plural(f->judged),
                    outcome_number(f->worst_element, part));
}

static void explain_rms(const struct cpattn_figures *f, char *text, size_t size)
{
    char error[OUTCOME_NUMBER_MAX], limit[OUTCOME_NUMBER_MAX];
    outcome_number(outcome_in_twins(f, f->rmse_rel), error);
    outcome_number(outcome_in_twins(f, f->rmse_limit), limit);
    text_append(text, size, "RMS error %s%s, allowed %s", error,
                f->twin_rel > 0 ? " times the twin's" : " of the reference", limit);
}

static void explain_row(const struct cpattn_figures *f, char *text, size_t size)
{
    char error[OUTCOME_NUMBER_MAX], limit[OUTCOME_NUMBER_MAX];
    outcome_number(f->worst_row_rel, error);
    outcome_number(f->worst_row_limit, limit);
    text_append(text, size,
                "worst row %s%s, allowed %s, at sequence %d, head %d, position %" PRId64, error,
                f->twin_rel > 0 ? " times the twin's" : "", limit, f->worst_row.sequence,
                f->worst_row.head, f->worst_row.position);
}

static void explain_rule(const struct cpattn_figures *f, uint32_t rule, char *text, size_t size)
{
    switch (rule) {
    case CPATTN_RULE_NONFINITE:
        text_append(text, size, "%" PRId64 " NaN or infinite", f->nonfinite);
        return;
    case CPATTN_RULE_ZERO:
        text_append(text, size, "not exactly zero where nothing is visible");
        return;
    case CPATTN_RULE_PADDING:
        explain_padding(f, text, size);
        return;
    case CPATTN_RULE_ELEMENT:
        explain_element(f, text, size);
        return;
    case CPATTN_RULE_RMSE:
        explain_rms(f, text, size);
        return;
    case CPATTN_RULE_SLOPE:
        text_append(text, size, "%.3g %% too %s as a whole, allowed %.2g %%", 100 * fabs(f->slope),
                    f->slope > 0 ? "large" : "small", 100 * f->slope_limit);
        return;
    default:
        explain_row(f, text, size);
    }
}

void outcome_explain(const struct cpattn_figures *figures, int rank, char *text, size_t size)
{
    const char *joint = ": ";
    if (!is_of_attention(figures))
        snprintf(text, size, "%s of rank %d", figures->tensor, rank);
    else if (figures->chunk == CPATTN_CHUNK_PADDING)
        snprintf(text, size, "%s of rank %d, padding", figures->tensor, rank);
    else
        snprintf(text, size, "%s of rank %d, chunk %d", figures->tensor, rank, figures->chunk);
    for (const struct outcome_rule *r = outcome_rules; r->name; r++) {
        if (!(figures->broken & r->bit))
            continue;
        text_append(text, size, "%s", joint);
        explain_rule(figures, r->bit, text, size);
        joint = "; ";
    }
}

void outcome_diagnosis(const struct cpattn_rank *rank, char *text, size_t size)
{
    const char *name = rank->diagnosis_tensor;
    text[0] = '\0';
    // A sentence about memory that must stay unchanged explains no error.
    if (strcmp(name, "guards") == 0 || strcmp(name, "inputs") == 0)
        snprintf(text, size, "%s", rank->diagnosis);
    else if (rank->diagnosis[0])
        snprintf(text, size, "%s; it explains %.0f %% of the error of %s on rank %d",
                 rank->diagnosis, 100 * rank->diagnosis_explained, rank->diagnosis_tensor,
                 rank->rank);
}

void outcome_first_bad(const struct cpattn_figures *figures, char *text, size_t size)
{
    const struct cpattn_element *e = &figures->first_bad;
    text[0] = '\0';
    const char *name = figures->tensor;
    bool is_vector = strcmp(name, "send") == 0 || strcmp(name, "receive") == 0;
    if (e->position >= 0 && is_vector)
        snprintf(text, size, "%s, element %" PRId64 ": got %.17g, expected %.17g", name,
                 e->position, figures->first_bad_got, figures->first_bad_expected);
    else if (e->position >= 0 && !is_of_attention(figures))
        snprintf(text, size, "%s, row %" PRId64 ", column %d: got %.9g, expected %.9g", name,
                 e->position, e->dim, figures->first_bad_got, figures->first_bad_expected);
    else if (e->position >= 0)
        snprintf(text, size,
                 "%s at sequence %d, head %d, position %" PRId64
                 ", dim %d: got %.9g, expected %.9g",
                 figures->tensor, e->sequence, e->head, e->position, e->dim, figures->first_bad_got,
                 figures->first_bad_expected);
}

// ---- an answer --------------------------------------------------------------------------------

static int broken_count(const struct cpattn_result *result)
{
    const struct cpattn_figures *f;
    int count = 0;
    for (int r = 0; r < result->world_size; r++)
        for (int i = 0; (f = cpattn_result_figures(result, r, i)); i++)
            count += f->broken != 0;
    return count;
}

static void take_times(struct outcome *outcome, const struct cpattn_result *result)
{
    outcome->wait_ns = result->queue_ns + result->start_ns;
    outcome->run_ns = result->run_ns;
    for (int r = 0; r < result->world_size; r++) {
        const struct cpattn_rank *rank = cpattn_result_rank(result, r);
        if (rank && rank->forward_ns > outcome->forward_ns)
            outcome->forward_ns = rank->forward_ns;
        if (rank && rank->backward_ns > outcome->backward_ns)
            outcome->backward_ns = rank->backward_ns;
    }
}

static void take_remarks(struct outcome *outcome, const struct cpattn_result *result)
{
    const struct cpattn_figures *f;
    for (int r = 0; r < result->world_size; r++)
        for (int i = 0; (f = cpattn_result_figures(result, r, i)); i++) {
            outcome->te_mismatches += f->te_mismatches;
            outcome->sampled = outcome->sampled || f->judged < f->elements;
            outcome->remarked = outcome->remarked || f->remark != CPATTN_REMARK_NONE;
        }
}

static void take_figures(struct outcome *outcome, const struct cpattn_result *result, char *text,
                         size_t size)
{
    int rank, broken = broken_count(result);
    const char *rule = "";
    const struct cpattn_figures *f = outcome_worst(result, &rank);
    snprintf(text, size, "failed without a figure that says why");
    if (!f)
        return;
    outcome->used = outcome_used(f, &rule);
    snprintf(outcome->tensor, sizeof(outcome->tensor), "%s", f->tensor);
    snprintf(outcome->rule, sizeof(outcome->rule), "%s", rule);
    take_remarks(outcome, result);
    outcome_explain(f, rank, text, size);
    if (broken > 1)
        text_append(text, size, " (and %d more)", broken - 1);
}

const struct cpattn_rank *outcome_diagnosed(const struct cpattn_result *result)
{
    const struct cpattn_rank *best = NULL, *rank;
    const struct cpattn_figures *f;
    int of_rank;
    double most = -1;
    f = outcome_worst(result, &of_rank);
    for (int r = 0; (rank = cpattn_result_rank(result, r)); r++) {
        bool decisive = f && strcmp(rank->diagnosis_tensor, f->tensor) == 0;
        double worth = round(100 * rank->diagnosis_explained) + (decisive ? 200 : 0);
        if (!rank->diagnosis[0] || worth <= most)
            continue;
        best = rank;
        most = worth;
    }
    return best;
}

static enum status take_diagnosis(struct outcome *outcome, const struct cpattn_result *result)
{
    char text[OUTCOME_SENTENCE_MAX];
    const struct cpattn_rank *best = outcome_diagnosed(result);
    if (!best)
        return STATUS_OK;
    outcome_diagnosis(best, text, sizeof(text));
    outcome->diagnosis = strdup(text);
    return outcome->diagnosis ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
}

static enum outcome_kind verdict_kind(enum cpattn_verdict verdict)
{
    switch (verdict) {
    case CPATTN_VERDICT_PASS:
        return OUTCOME_PASS;
    case CPATTN_VERDICT_UNVERIFIED:
        return OUTCOME_UNVERIFIED;
    case CPATTN_VERDICT_FAIL:
    case CPATTN_VERDICT_NONE:
        break;
    }
    return OUTCOME_FAIL;
}

enum status outcome_init(struct outcome *outcome, enum cpattn_status status,
                         const struct cpattn_result *result, const char *text)
{
    char sentence[OUTCOME_SENTENCE_MAX];
    *outcome = (struct outcome){.status = (enum status)status, .kind = OUTCOME_ERROR};
    if (result)
        take_times(outcome, result);
    snprintf(sentence, sizeof(sentence), "%s", text && text[0] ? text : cpattn_status_text(status));
    if (status == CPATTN_OK && result) {
        take_figures(outcome, result, sentence, sizeof(sentence));
        outcome->kind = verdict_kind(result->verdict);
    }
    if (outcome->kind == OUTCOME_PASS)
        return STATUS_OK;
    if (outcome->kind == OUTCOME_UNVERIFIED)
        snprintf(sentence, sizeof(sentence), "run and timed, but not compared (verify is off)");
    outcome->sentence = strdup(sentence);
    if (!outcome->sentence)
        return STATUS_RESOURCE_EXHAUSTED;
    return outcome->kind == OUTCOME_FAIL ? take_diagnosis(outcome, result) : STATUS_OK;
}

enum status outcome_not_run(struct outcome *outcome, const char *why)
{
    outcome->kind = OUTCOME_NOT_RUN;
    free(outcome->sentence);
    outcome->sentence = strdup(why);
    return outcome->sentence ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
}

enum status outcome_compare(struct outcome *outcome, const struct cpattn_result *result,
                            struct outcome_digest *digest)
{
    char text[OUTCOME_SENTENCE_MAX];
    if (outcome->kind != OUTCOME_PASS && outcome->kind != OUTCOME_UNVERIFIED)
        return STATUS_OK;
    if (digest->runs++ == 0)
        digest->first = result->digest;
    if (digest->first == result->digest)
        return STATUS_OK;
    snprintf(text, sizeof(text),
             "run %d gave digest %016" PRIx64 " and run 1 gave %016" PRIx64
             ": the results differ between runs",
             digest->runs, result->digest, digest->first);
    outcome->kind = OUTCOME_FAIL;
    free(outcome->sentence);
    outcome->sentence = strdup(text);
    return outcome->sentence ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
}
