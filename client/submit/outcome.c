// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/command.h"
#include "client/submit/text.h"

const char *outcome_name(enum outcome_kind kind)
{
    static const char *const names[OUTCOME_KINDS] = {"not run", "pass",     "fail",
                                                     "error",   "excluded", "unverified"};
    return names[kind];
}

void outcome_fini(struct outcome *outcome)
{
    free(outcome->sentence);
    free(outcome->detail);
    *outcome = (struct outcome){0};
}

int outcome_exit(const struct outcome *outcome)
{
    if (outcome->kind == OUTCOME_PASS || outcome->kind == OUTCOME_UNVERIFIED)
        return COMMAND_PASS;
    return outcome->kind == OUTCOME_FAIL ? COMMAND_FAIL : command_exit(outcome->status);
}

// ---- figures ----------------------------------------------------------------------------------

static double part(double value, double limit)
{
    if (isnan(value) || isnan(limit))
        return INFINITY;
    if (limit > 0)
        return value / limit;
    return value > 0 ? INFINITY : 0;
}

double outcome_used(const struct cpattn_figures *figures)
{
    double rmse = part(figures->rmse_rel, figures->rmse_limit);
    double row = part(figures->worst_row_rel, figures->worst_row_limit);
    double most = fmax(rmse, row);
    if (figures->nonfinite > 0)
        return INFINITY;
    return fmax(most, part(figures->worst_element, 1));
}

// Broken comes before sound, then the worse.
static bool is_worse(const struct cpattn_figures *a, const struct cpattn_figures *b)
{
    if (!a->broken != !b->broken)
        return a->broken != 0;
    return outcome_used(a) > outcome_used(b);
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
        // What is computed from a broken tensor is broken, too: the first one tells more.
        if (worst && (worst->broken || !is_worse(f, worst)))
            continue;
        worst = f;
        *rank = r;
    }
    return worst;
}

void outcome_explain(const struct cpattn_figures *figures, int rank, char *text, size_t size)
{
    const char *joint = ": ";
    if (figures->broken & CPATTN_RULE_PADDING) {
        snprintf(text, size,
                 "%s of rank %d, padding: %" PRId64 " of %" PRId64 " elements are not zero",
                 figures->tensor, rank, figures->mismatches, figures->elements);
        return;
    }
    snprintf(text, size, "%s of rank %d, chunk %d", figures->tensor, rank, figures->chunk);
    if (figures->broken & CPATTN_RULE_NONFINITE) {
        text_append(text, size, "%s%" PRId64 " NaN or infinite", joint, figures->nonfinite);
        joint = "; ";
    }
    if (figures->broken & CPATTN_RULE_ELEMENT) {
        text_append(text, size, "%s%" PRId64 " of %" PRId64 " elements outside the tolerance",
                    joint, figures->mismatches, figures->elements);
        joint = "; ";
    }
    if (figures->broken & CPATTN_RULE_RMSE) {
        text_append(text, size, "%srelative RMSE %.2g, allowed %.2g", joint, figures->rmse_rel,
                    figures->rmse_limit);
        joint = "; ";
    }
    if (figures->broken & CPATTN_RULE_ROW)
        text_append(text, size,
                    "%sworst row %.2g, allowed %.2g, at sequence %d, head %d, position %" PRId64,
                    joint, figures->worst_row_rel, figures->worst_row_limit,
                    figures->worst_row.sequence, figures->worst_row.head,
                    figures->worst_row.position);
}

void outcome_first_bad(const struct cpattn_figures *figures, char *text, size_t size)
{
    const struct cpattn_element *e = &figures->first_bad;
    text[0] = '\0';
    if (e->position >= 0)
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

static void take_figures(struct outcome *outcome, const struct cpattn_result *result, char *text,
                         size_t size)
{
    int rank, broken = broken_count(result);
    const struct cpattn_figures *f = outcome_worst(result, &rank);
    snprintf(text, size, "failed without a figure that says why");
    if (!f)
        return;
    outcome->used = outcome_used(f);
    snprintf(outcome->tensor, sizeof(outcome->tensor), "%s", f->tensor);
    outcome_explain(f, rank, text, size);
    if (broken > 1)
        text_append(text, size, " (and %d more)", broken - 1);
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
        snprintf(sentence, sizeof(sentence), "run and timed, and compared with nothing, as asked");
    outcome->sentence = strdup(sentence);
    return outcome->sentence ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
}
