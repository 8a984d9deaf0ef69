// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/figures.h"

_Static_assert((int)CPATTN_VERDICT_PASS == (int)VERDICT_PASS, "verdicts agree");
_Static_assert((int)CPATTN_VERDICT_FAIL == (int)VERDICT_FAIL, "verdicts agree");
_Static_assert((int)CPATTN_VERDICT_UNVERIFIED == (int)VERDICT_UNVERIFIED, "verdicts agree");

// A result and the memory that it points into. The public struct must be the first member. Each
// list is NULL or has world_size entries; `figures` has REPORT_FIGURES_MAX per rank.
struct result {
    struct cpattn_result face;
    struct wire_reply reply; // owns what the texts point into
    struct cpattn_rank *ranks;
    struct cpattn_figures *figures;
    struct cpattn_failure *failures;
};

static struct result *result_plain(const struct cpattn_result *face)
{
    return (struct result *)(uintptr_t)face;
}

// Returns the received list under its public type; both structs have the same layout.
static const struct cpattn_operation_time *op_times_public(const struct op_times *times)
{
    _Static_assert(sizeof(struct cpattn_operation_time) == sizeof(struct op_time) &&
                       offsetof(struct cpattn_operation_time, end_ns) ==
                           offsetof(struct op_time, end_ns),
                   "operation times agree");
    return (const struct cpattn_operation_time *)times->list;
}

static struct cpattn_rank rank_public(const struct rank_report *report)
{
    return (struct cpattn_rank){
        .rank = report->rank,
        .pass = report->pass,
        .figures_count = report->figures_count,
        .digest = report->digest,
        .flops = report->flops,
        .plan_ns = report->timings.plan_ns,
        .inputs_ns = report->timings.inputs_ns,
        .forward_ns = report->timings.forward_ns,
        .backward_ns = report->timings.backward_ns,
        .exchange_ns = report->timings.exchange_ns,
        .exposed_ns = report->timings.exposed_ns,
        .reference_ns = report->timings.reference_ns,
        .compare_ns = report->timings.compare_ns,
        .diagnosis = report->diagnosis.text,
        .diagnosis_tensor = report->diagnosis.tensor ? report_tensor_name(report->diagnosis.tensor)
                                                     : report->diagnosis.name,
        .diagnosis_explained = report->diagnosis.explained,
        .own_forward = report->use.own_forward,
        .own_backward = report->use.own_backward,
        .provider_forward = report->use.provider_forward,
        .provider_backward = report->use.provider_backward,
        .provider_reason = report->use.reason,
        .launch_ns = report->timings.launch_ns,
        .operations = report->operations,
        .operation_times_count = report->op_times.count,
        .operations_begin_ns = report->op_times.begin_ns,
        .operation_times = report->op_times.count > 0 ? op_times_public(&report->op_times) : NULL,
    };
}

static struct cpattn_failure failure_public(const struct wire_rank_state *state)
{
    return (struct cpattn_failure){
        .rank = state->rank,
        .culprit = state->culprit,
        .phase = report_phase_name(state->phase),
        .step = state->step,
        .waiting_for = state->waiting_for,
        .state = state->state,
        .fate = state->fate,
        .text = state->text,
        .stderr_tail = state->stderr_tail,
    };
}

static bool fill_ranks(struct result *r, const struct wire_result *wire)
{
    size_t count = (size_t)wire->world_size;
    r->face = (struct cpattn_result){
        .verdict = (enum cpattn_verdict)wire->verdict,
        .world_size = wire->world_size,
        .digest = wire->digest,
        .queue_ns = wire->queue_ns,
        .start_ns = wire->start_ns,
        .run_ns = wire->run_ns,
        .total_ns = wire->total_ns,
    };
    r->ranks = calloc(count, sizeof *r->ranks);
    r->figures = calloc(count * REPORT_FIGURES_MAX, sizeof *r->figures);
    if (!r->ranks || !r->figures)
        return false;
    for (size_t rank = 0; rank < count; rank++) {
        const struct rank_report *report = &wire->ranks[rank];
        r->ranks[rank] = rank_public(report);
        for (int i = 0; i < report->figures_count; i++)
            r->figures[rank * REPORT_FIGURES_MAX + (size_t)i] = figures_public(&report->figures[i]);
    }
    return true;
}

static bool fill_failures(struct result *r, const struct wire_failure *wire)
{
    r->face.world_size = wire->world_size;
    r->failures = calloc((size_t)wire->world_size, sizeof *r->failures);
    if (!r->failures)
        return false;
    for (int rank = 0; rank < wire->world_size; rank++)
        r->failures[rank] = failure_public(&wire->ranks[rank]);
    return true;
}

enum status result_create(struct wire_reply *reply, struct cpattn_result **result,
                          struct error *error)
{
    struct result *r = calloc(1, sizeof *r);
    bool filled = false;
    if (r && reply->status == STATUS_OK)
        filled = fill_ranks(r, &reply->result);
    else if (r)
        filled = fill_failures(r, &reply->failure);
    if (!filled) {
        cpattn_result_destroy(r ? &r->face : NULL);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for the result");
    }
    r->reply = *reply;
    memset(reply, 0, sizeof *reply);
    *result = &r->face;
    return STATUS_OK;
}

void cpattn_result_destroy(struct cpattn_result *result)
{
    if (!result)
        return;
    struct result *r = result_plain(result);
    wire_reply_fini(&r->reply);
    free(r->ranks);
    free(r->figures);
    free(r->failures);
    free(r);
}

const char *cpattn_verdict_name(enum cpattn_verdict verdict)
{
    switch (verdict) {
    case CPATTN_VERDICT_PASS:
        return "pass";
    case CPATTN_VERDICT_FAIL:
        return "fail";
    case CPATTN_VERDICT_UNVERIFIED:
        return "unverified";
    case CPATTN_VERDICT_NONE:
        break;
    }
    return "none";
}

static bool rank_exists(const struct cpattn_result *result, int rank)
{
    return rank >= 0 && rank < result->world_size;
}

const struct cpattn_rank *cpattn_result_rank(const struct cpattn_result *result, int rank)
{
    const struct result *r = result_plain(result);
    return r->ranks && rank_exists(result, rank) ? &r->ranks[rank] : NULL;
}

const struct cpattn_figures *cpattn_result_figures(const struct cpattn_result *result, int rank,
                                                   int index)
{
    const struct cpattn_rank *of = cpattn_result_rank(result, rank);
    if (!of || index < 0 || index >= of->figures_count)
        return NULL;
    return &result_plain(result)->figures[rank * REPORT_FIGURES_MAX + index];
}

const struct cpattn_failure *cpattn_result_failure(const struct cpattn_result *result, int rank)
{
    const struct result *r = result_plain(result);
    return r->failures && rank_exists(result, rank) ? &r->failures[rank] : NULL;
}
