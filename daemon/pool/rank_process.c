// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/rank_process.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"

static const struct crew_handler *handler_of(const struct rank_process *r)
{
    return &r->crew->crews->handler;
}

void rank_process_distrust(struct rank_process *r, const struct error *error)
{
    log_warning("rank_distrusted rank=%d world=%d generation=%u error=%s", r->rank,
                r->crew->world_size, r->crew->generation,
                log_quote(&(struct log_quoted){0}, error->text));
    r->closed = true;
    if (r->failure.status == STATUS_OK) {
        struct progress_view at = progress_load(&r->crew->progress[r->rank]);
        r->failure = (struct rank_failure){.status = (int32_t)error->status,
                                           .kind = FAILURE_OWN,
                                           .peer = -1,
                                           .phase = at.phase,
                                           .step = at.step};
        snprintf(r->failure.text, sizeof(r->failure.text), "%s", error->text);
    }
    handler_of(r)->failed(handler_of(r)->context, r->crew->index, r->crew->generation, r->rank,
                          FAILURE_OWN, -1);
}

static void text_clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *c = text; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
}

static enum status on_ready(struct rank_process *r, const struct channel_frame *frame,
                            const void *payload, struct error *error)
{
    if (frame->length >= EXCHANGE_TEXT_MAX)
        return error_set(error, STATUS_DATA_LOSS,
                         "a READY frame carries %u bytes of payload instead of less than %d",
                         frame->length, EXCHANGE_TEXT_MAX);
    if (r->said_ready)
        return error_set(error, STATUS_DATA_LOSS, "rank %d says READY twice", r->rank);
    r->said_ready = true;
    if (frame->length > 0) {
        char *exchange = r->crew->exchange;
        memcpy(exchange, payload, frame->length);
        exchange[frame->length] = '\0';
        text_clean(exchange, EXCHANGE_TEXT_MAX);
    }
    handler_of(r)->ready(handler_of(r)->context, r->crew->index, r->crew->generation, r->rank);
    return STATUS_OK;
}

// The results of attention are identified by number; those of other kinds of jobs, and memory that
// a job must leave as it is, by name.
static bool tensor_plausible(int32_t tensor, const char name[TENSOR_NAME_MAX], bool attention)
{
    return tensor == 0 ? report_name_is_valid(name)
                       : attention && tensor > 0 && tensor < TENSOR_COUNT;
}

// `pass`: the rank reports a pass; then no figure may have a broken rule.
static bool figures_plausible(const struct figures *f, bool pass)
{
    return f->chunk >= 0 && f->chunk <= CHUNK_PADDING && f->elements >= 0 && f->mismatches >= 0 &&
           f->nonfinite >= 0 && f->judged >= 0 && f->judged <= f->elements &&
           f->te_mismatches >= 0 && f->remark >= 0 && f->remark < REMARK_COUNT && f->broken >= 0 &&
           f->broken <= RULES_ALL && !(pass && f->broken != 0);
}

static bool diagnosis_plausible(const struct diagnosis *d, bool attention)
{
    return (!d->text[0] || tensor_plausible(d->tensor, d->name, attention)) && d->explained >= 0 &&
           d->explained <= 1;
}

static bool use_plausible(const struct provider_use *use)
{
    return use->own_forward >= 0 && use->own_backward >= 0 && use->provider_forward >= 0 &&
           use->provider_backward >= 0;
}

static bool report_plausible(const struct rank_report *report, int rank, bool attention)
{
    unsigned char pass;
    memcpy(&pass, &report->pass, 1);
    bool plausible = pass <= 1 && report->rank == rank && report->refusal.status >= STATUS_OK &&
                     report->refusal.status < STATUS_COUNT && report->figures_count >= 0 &&
                     report->figures_count <= REPORT_FIGURES_MAX &&
                     diagnosis_plausible(&report->diagnosis, attention) &&
                     op_times_plausible(&report->op_times) && use_plausible(&report->use);
    for (int i = 0; plausible && i < report->figures_count; i++)
        plausible =
            tensor_plausible(report->figures[i].tensor, report->figures[i].name, attention) &&
            figures_plausible(&report->figures[i], pass);
    return plausible;
}

// Copies a report after checking its length, which depends on its count of operation times.
static enum status report_take(const struct channel_frame *frame, const void *payload,
                               struct rank_report *report, struct error *error)
{
    enum { FIXED = offsetof(struct rank_report, op_times.list) };
    if (frame->length < FIXED)
        return channel_expect(frame, FIXED, error);
    memcpy(report, payload, FIXED);
    if (report->op_times.count < 0 || report->op_times.count > OP_TIMES_MAX)
        return error_set(error, STATUS_DATA_LOSS, "a report has times of %d operations",
                         report->op_times.count);
    size_t bytes = report_bytes(report->op_times.count);
    enum status status = channel_expect(frame, (uint32_t)bytes, error);
    if (status == STATUS_OK)
        memcpy(report, payload, bytes);
    return status;
}

static enum status on_report(struct rank_process *r, const struct channel_frame *frame,
                             const void *payload, struct error *error)
{
    struct rank_report *report = &r->crew->reports[r->rank];
    if (frame->job == 0 || frame->job != r->crew->job || r->reported)
        return error_set(error, STATUS_DATA_LOSS, "rank %d reports on a case it does not run",
                         r->rank);
    enum status status = report_take(frame, payload, report, error);
    if (status != STATUS_OK)
        return status;
    if (!report_plausible(report, r->rank, r->crew->kind == &job_kind_attention))
        return error_set(error, STATUS_DATA_LOSS, "rank %d reports impossible figures", r->rank);
    text_clean(report->refusal.text, sizeof(report->refusal.text));
    text_clean(report->diagnosis.text, sizeof(report->diagnosis.text));
    text_clean(report->use.reason, sizeof(report->use.reason));
    r->reported = true;
    handler_of(r)->reported(handler_of(r)->context, r->crew->index, r->crew->generation, r->rank,
                            frame->job);
    return STATUS_OK;
}

static bool failure_plausible(const struct rank_failure *f, int rank, int world_size)
{
    bool peer_named = f->peer >= 0 && f->peer < world_size && f->peer != rank;
    return f->status > STATUS_OK && f->status < STATUS_COUNT && f->phase >= 0 &&
           f->phase < REPORT_PHASES && f->step >= 0 &&
           (f->kind == FAILURE_OWN || (f->kind == FAILURE_PEER_LOST && peer_named));
}

static enum status on_failed(struct rank_process *r, const struct channel_frame *frame,
                             const void *payload, struct error *error)
{
    struct rank_failure failure;
    enum status status = channel_expect(frame, sizeof(failure), error);
    if (status != STATUS_OK)
        return status;
    memcpy(&failure, payload, sizeof(failure));
    if (!failure_plausible(&failure, r->rank, r->crew->world_size))
        return error_set(error, STATUS_DATA_LOSS, "rank %d reports an impossible failure", r->rank);
    text_clean(failure.text, sizeof(failure.text));
    if (r->failure.status == STATUS_OK)
        r->failure = failure;
    handler_of(r)->failed(handler_of(r)->context, r->crew->index, r->crew->generation, r->rank,
                          failure.kind, failure.peer);
    return STATUS_OK;
}

static enum status on_pong(struct rank_process *r, const struct channel_frame *frame,
                           const void *payload, struct error *error)
{
    (void)r;
    (void)payload;
    return channel_expect(frame, 0, error);
}

enum status rank_process_frame(struct rank_process *r, const struct channel_frame *frame,
                               const void *payload, struct error *error)
{
    static enum status (*const handlers[])(struct rank_process *, const struct channel_frame *,
                                           const void *, struct error *) = {
        [CHANNEL_READY] = on_ready,
        [CHANNEL_REPORT] = on_report,
        [CHANNEL_FAILED] = on_failed,
        [CHANNEL_PONG] = on_pong,
    };
    if (!r->said_hello) {
        r->said_hello = true;
        return channel_hello_check(frame, payload, r->rank, error);
    }
    if (frame->type >= sizeof(handlers) / sizeof(handlers[0]) || !handlers[frame->type])
        return error_set(error, STATUS_DATA_LOSS,
                         "rank %d sends %s, which ranks must not "
                         "send",
                         r->rank, channel_type_name(frame->type));
    return handlers[frame->type](r, frame, payload, error);
}
