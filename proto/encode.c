// SPDX-License-Identifier: Apache-2.0
// Encodes plain structs.
#include <stdlib.h>
#include <string.h>

#include "proto/attend.h"
#include "proto/cpattn.pb-c.h"
#include "proto/schema.h"
#include "proto/spec.h"
#include "proto/wire.h"

// A message tree under construction.
struct build {
    struct scratch scratch;
    struct error *error;
    enum status status; // the first failure, after which all steps do nothing
};

// Returns a new message of the given kind, or NULL.
static void *build_message(struct build *b, const ProtobufCMessageDescriptor *descriptor)
{
    if (b->status != STATUS_OK)
        return NULL;
    void *message = scratch_alloc(&b->scratch, descriptor->sizeof_message);
    if (message)
        protobuf_c_message_init(descriptor, message);
    else
        b->status = scratch_refusal(&b->scratch, "a message", b->error);
    return message;
}

// Returns a new message of the given kind, filled from a record, or NULL.
static void *build_record(struct build *b, const ProtobufCMessageDescriptor *descriptor,
                          const struct map_field *fields, const void *record)
{
    ProtobufCMessage *message = build_message(b, descriptor);
    if (message)
        b->status = map_encode(message, fields, record, &b->scratch, b->error);
    return b->status == STATUS_OK ? message : NULL;
}

// Returns memory for the pointers of a repeated field, or NULL.
static void *build_list(struct build *b, size_t count)
{
    if (b->status != STATUS_OK)
        return NULL;
    void *list = scratch_alloc(&b->scratch, count * sizeof(void *));
    if (!list)
        b->status = scratch_refusal(&b->scratch, "a message", b->error);
    return list;
}

static ProtobufCBinaryData build_bytes(struct build *b, const void *data, size_t size)
{
    ProtobufCBinaryData bytes = {.len = 0};
    if (b->status != STATUS_OK || size == 0)
        return bytes;
    bytes.data = scratch_alloc(&b->scratch, size);
    if (!bytes.data) {
        b->status = scratch_refusal(&b->scratch, "a message", b->error);
        return bytes;
    }
    bytes.len = size;
    memcpy(bytes.data, data, size);
    return bytes;
}

static ProtobufCBinaryData build_id(struct build *b, const struct request_id *id)
{
    return build_bytes(b, id->bytes, sizeof id->bytes);
}

static enum status pack(const ProtobufCMessage *message, size_t size_max, void **data, size_t *size,
                        struct error *error)
{
    size_t packed = protobuf_c_message_get_packed_size(message);
    if (packed > size_max)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "a message of %zu bytes is larger than the %zu that one may have", packed,
                         size_max);
    uint8_t *bytes = malloc(packed + 1); // never 0
    if (!bytes)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a message");
    protobuf_c_message_pack(message, bytes);
    *data = bytes;
    *size = packed;
    return STATUS_OK;
}

// ---- requests -----------------------------------------------------------------------------------

static ProtobufCBinaryData build_text(struct build *b, const char *text)
{
    return build_bytes(b, text, strlen(text));
}

static Cpattn__V1__JobField *build_job_field(struct build *b, const struct job_field *field)
{
    Cpattn__V1__JobField *message = build_message(b, &cpattn__v1__job_field__descriptor);
    if (!message)
        return NULL;
    message->name = build_text(b, field->name);
    message->value = build_text(b, field->value);
    return b->status == STATUS_OK ? message : NULL;
}

static Cpattn__V1__Run *build_job(struct build *b, const struct job_text *job)
{
    Cpattn__V1__Run *run = build_message(b, &cpattn__v1__run__descriptor);
    Cpattn__V1__Job *message = build_message(b, &cpattn__v1__job__descriptor);
    if (b->status == STATUS_OK && (job->field_count < 0 || job->field_count > JOB_FIELDS_MAX))
        b->status = error_set(b->error, STATUS_INTERNAL, "a job has more fields than allowed");
    if (b->status != STATUS_OK)
        return NULL;
    run->job = message;
    message->kind = build_text(b, job->kind);
    message->n_fields = (size_t)job->field_count;
    message->fields = build_list(b, message->n_fields);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_fields; i++)
        message->fields[i] = build_job_field(b, &job->fields[i]);
    return b->status == STATUS_OK ? run : NULL;
}

static Cpattn__V1__Run *build_run(struct build *b, const struct wire_request *r)
{
    const struct cp_case *c = &r->run;
    if (r->is_job)
        return build_job(b, &r->job);
    Cpattn__V1__Run *run = build_message(b, &cpattn__v1__run__descriptor);
    Cpattn__V1__Case *spec = build_message(b, &cpattn__v1__case__descriptor);
    if (!run || !spec)
        return NULL;
    run->spec = spec;
    b->status = spec_encode(c, &spec->base, &b->scratch, b->error);
    if (r->attends)
        run->attend = build_message(b, &cpattn__v1__attend__descriptor);
    if (run->attend)
        b->status = attend_encode(c, &r->places, &run->attend->base, &b->scratch, b->error);
    return b->status == STATUS_OK ? run : NULL;
}

static Cpattn__V1__Cancel *build_cancel(struct build *b, const struct request_id *id)
{
    Cpattn__V1__Cancel *cancel = build_message(b, &cpattn__v1__cancel__descriptor);
    if (cancel)
        cancel->id = build_id(b, id);
    return cancel;
}

static Cpattn__V1__Order *build_order(struct build *b, const struct wire_order *order)
{
    Cpattn__V1__Order *message = build_message(b, &cpattn__v1__order__descriptor);
    if (message) {
        message->kind = (Cpattn__V1__OrderKind)order->kind;
        message->device = order->device;
        message->host = order->host;
    }
    return message;
}

static Cpattn__V1__Watch *build_watch(struct build *b, const struct wire_watch *watch)
{
    return build_record(b, &cpattn__v1__watch__descriptor, schema_watch, watch);
}

static Cpattn__V1__Done *build_done(struct build *b, uint64_t count)
{
    Cpattn__V1__Done *message = build_message(b, &cpattn__v1__done__descriptor);
    if (message)
        message->count = count;
    return message;
}

static void build_request(struct build *b, const struct wire_request *r,
                          Cpattn__V1__Request *message)
{
    cpattn__v1__request__init(message);
    message->version = r->version;
    message->id = build_id(b, &r->id);
    message->token = build_bytes(b, r->token.text, strlen(r->token.text));
    message->timeout_ns = r->timeout_ns;
    message->run_timeout_ns = r->run_timeout_ns;
    message->cancel_on_disconnect = r->cancel_on_disconnect;
    if (r->patience_ns != PATIENCE_ENDLESS) {
        message->patience_ns_given_case = CPATTN__V1__REQUEST__PATIENCE_NS_GIVEN_PATIENCE_NS;
        message->patience_ns = r->patience_ns;
    }
    switch (r->method) {
    case METHOD_RUN:
        message->method_case = CPATTN__V1__REQUEST__METHOD_RUN;
        message->run = build_run(b, r);
        return;
    case METHOD_DESCRIBE:
        message->method_case = CPATTN__V1__REQUEST__METHOD_DESCRIBE;
        message->describe = build_message(b, &cpattn__v1__describe__descriptor);
        return;
    case METHOD_STATUS:
        message->method_case = CPATTN__V1__REQUEST__METHOD_STATUS;
        message->status = build_message(b, &cpattn__v1__status__descriptor);
        return;
    case METHOD_CANCEL:
        message->method_case = CPATTN__V1__REQUEST__METHOD_CANCEL;
        message->cancel = build_cancel(b, &r->cancel);
        return;
    case METHOD_ORDER:
        message->method_case = CPATTN__V1__REQUEST__METHOD_ORDER;
        message->order = build_order(b, &r->order);
        return;
    case METHOD_WATCH:
        message->method_case = CPATTN__V1__REQUEST__METHOD_WATCH;
        message->watch = build_watch(b, &r->watch);
        return;
    }
    b->status = error_set(b->error, STATUS_INTERNAL, "a request has the method %d", (int)r->method);
}

enum status wire_encode_request(const struct wire_request *r, void **data, size_t *size,
                                struct error *error)
{
    struct build b = {.error = error, .status = STATUS_OK};
    Cpattn__V1__Request message;
    scratch_init(&b.scratch, DECODE_BYTES_MAX);
    build_request(&b, r, &message);
    if (b.status == STATUS_OK)
        b.status = pack(&message.base, REQUEST_BYTES_MAX, data, size, error);
    scratch_fini(&b.scratch);
    return b.status;
}

// ---- replies ------------------------------------------------------------------------------------

static Cpattn__V1__Figures *build_figures(struct build *b, const struct figures *f)
{
    Cpattn__V1__Figures *message =
        build_record(b, &cpattn__v1__figures__descriptor, schema_figures, f);
    if (!message)
        return NULL;
    message->worst_row =
        build_record(b, &cpattn__v1__element__descriptor, schema_element, &f->worst_row);
    message->first_bad =
        build_record(b, &cpattn__v1__element__descriptor, schema_element, &f->first_bad);
    message->tensor = (Cpattn__V1__Tensor)f->tensor;
    message->name = build_text(b, f->tensor == 0 ? f->name : "");
    return message;
}

static Cpattn__V1__Diagnosis *build_diagnosis(struct build *b, const struct diagnosis *d)
{
    if (d->text[0] == '\0')
        return NULL;
    Cpattn__V1__Diagnosis *message =
        build_record(b, &cpattn__v1__diagnosis__descriptor, schema_diagnosis, d);
    if (!message)
        return NULL;
    message->tensor = (Cpattn__V1__Tensor)d->tensor;
    message->name = build_text(b, d->tensor == 0 ? d->name : "");
    return message;
}

static Cpattn__V1__OperationTimes *build_op_times(struct build *b, const struct op_times *times)
{
    Cpattn__V1__OperationTimes *message =
        build_record(b, &cpattn__v1__operation_times__descriptor, schema_op_times, times);
    if (!message)
        return NULL;
    size_t count = (size_t)times->count;
    uint64_t *values = scratch_alloc(&b->scratch, 2 * count * sizeof(*values));
    if (!values) {
        b->status = scratch_refusal(&b->scratch, "operation times", b->error);
        return NULL;
    }
    message->start_ns = values;
    message->end_ns = values + count;
    message->n_start_ns = message->n_end_ns = count;
    for (size_t i = 0; i < count; i++) {
        message->start_ns[i] = times->list[i].start_ns;
        message->end_ns[i] = times->list[i].end_ns;
    }
    return message;
}

static Cpattn__V1__Rank *build_rank(struct build *b, const struct rank_report *report)
{
    Cpattn__V1__Rank *message = build_record(b, &cpattn__v1__rank__descriptor, schema_rank, report);
    if (!message)
        return NULL;
    message->timings =
        build_record(b, &cpattn__v1__timings__descriptor, schema_timings, &report->timings);
    message->diagnosis = build_diagnosis(b, &report->diagnosis);
    message->use = build_record(b, &cpattn__v1__provider_use__descriptor, schema_use, &report->use);
    if (report->op_times.count > 0)
        message->operation_times = build_op_times(b, &report->op_times);
    message->n_figures = (size_t)report->figures_count;
    message->figures = build_list(b, message->n_figures);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_figures; i++)
        message->figures[i] = build_figures(b, &report->figures[i]);
    return message;
}

static Cpattn__V1__Result *build_result(struct build *b, const struct wire_result *r)
{
    Cpattn__V1__Result *message =
        build_record(b, &cpattn__v1__result__descriptor, schema_result, r);
    if (!message)
        return NULL;
    message->n_ranks = (size_t)r->world_size;
    message->ranks = build_list(b, message->n_ranks);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_ranks; i++)
        message->ranks[i] = build_rank(b, &r->ranks[i]);
    return message;
}

static Cpattn__V1__Description *build_description(struct build *b, const struct wire_description *d)
{
    Cpattn__V1__Description *message =
        build_record(b, &cpattn__v1__description__descriptor, schema_description, d);
    if (!message)
        return NULL;
    message->n_gpus = (size_t)d->gpu_count;
    message->gpus = build_list(b, message->n_gpus);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_gpus; i++)
        message->gpus[i] =
            build_record(b, &cpattn__v1__device__descriptor, schema_device, &d->gpus[i]);
    message->n_providers = (size_t)d->provider_count;
    message->providers = build_list(b, message->n_providers);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_providers; i++)
        message->providers[i] =
            build_record(b, &cpattn__v1__provider__descriptor, schema_provider, &d->providers[i]);
    message->n_guests = (size_t)d->guest_count;
    message->guests = build_list(b, message->n_guests);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_guests; i++)
        message->guests[i] =
            build_record(b, &cpattn__v1__guest__descriptor, schema_guest, &d->guests[i]);
    return message;
}

static Cpattn__V1__OpenRequest *build_open(struct build *b, const struct wire_open_request *open)
{
    int32_t phases[WORLD_SIZE_MAX];
    Cpattn__V1__OpenRequest *message =
        build_record(b, &cpattn__v1__open_request__descriptor, schema_open, open);
    if (!message)
        return NULL;
    for (int rank = 0; rank < open->rank_count; rank++)
        phases[rank] = open->rank_phases[rank] + 1;
    b->status = map_encode_list(&message->base, &schema_rank_phases, phases, open->rank_count,
                                &b->scratch, b->error);
    if (b->status == STATUS_OK)
        b->status = map_encode_list(&message->base, &schema_rank_steps, open->rank_steps,
                                    open->rank_count, &b->scratch, b->error);
    return message;
}

static Cpattn__V1__DaemonStatus *build_status(struct build *b, const struct wire_status *s)
{
    Cpattn__V1__DaemonStatus *message =
        build_record(b, &cpattn__v1__daemon_status__descriptor, schema_status, s);
    if (!message)
        return NULL;
    message->n_pools = (size_t)s->pool_count;
    message->pools = build_list(b, message->n_pools);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_pools; i++)
        message->pools[i] =
            build_record(b, &cpattn__v1__pool__descriptor, schema_pool, &s->pools[i]);
    message->n_hosts = (size_t)s->host_count;
    message->hosts = build_list(b, message->n_hosts);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_hosts; i++)
        message->hosts[i] =
            build_record(b, &cpattn__v1__host__descriptor, schema_host, &s->hosts[i]);
    message->n_requests = (size_t)s->open_count;
    message->requests = build_list(b, message->n_requests);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_requests; i++)
        message->requests[i] = build_open(b, &s->open[i]);
    return message;
}

static Cpattn__V1__Events *build_events(struct build *b, const struct wire_events *e)
{
    Cpattn__V1__Events *message =
        build_record(b, &cpattn__v1__events__descriptor, schema_events, e);
    if (!message)
        return NULL;
    message->n_events = (size_t)e->count;
    message->events = build_list(b, message->n_events);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_events; i++)
        message->events[i] =
            build_record(b, &cpattn__v1__event__descriptor, schema_event, &e->list[i]);
    return message;
}

static const struct map_field error_message[] = {
    {.name = "message", .kind = MAP_TEXT, .size = ERROR_TEXT_MAX}, {.name = NULL}};

static Cpattn__V1__Error *build_error(struct build *b, const struct wire_reply *r)
{
    Cpattn__V1__Error *message =
        build_record(b, &cpattn__v1__error__descriptor, error_message, r->message);
    if (!message)
        return NULL;
    message->code = (Cpattn__V1__Code)r->status;
    message->n_ranks = (size_t)r->failure.world_size;
    message->ranks = build_list(b, message->n_ranks);
    for (size_t i = 0; b->status == STATUS_OK && i < message->n_ranks; i++)
        message->ranks[i] = build_record(b, &cpattn__v1__rank_state__descriptor, schema_rank_state,
                                         &r->failure.ranks[i]);
    return message;
}

static void build_answer(struct build *b, const struct wire_reply *r, Cpattn__V1__Reply *message)
{
    switch (r->method) {
    case METHOD_RUN:
        message->answer_case = CPATTN__V1__REPLY__ANSWER_RESULT;
        message->result = build_result(b, &r->result);
        return;
    case METHOD_DESCRIBE:
        message->answer_case = CPATTN__V1__REPLY__ANSWER_DESCRIPTION;
        message->description = build_description(b, &r->description);
        return;
    case METHOD_STATUS:
        message->answer_case = CPATTN__V1__REPLY__ANSWER_STATUS;
        message->status = build_status(b, &r->pools);
        return;
    case METHOD_CANCEL:
        message->answer_case = CPATTN__V1__REPLY__ANSWER_CANCELLED;
        message->cancelled = build_message(b, &cpattn__v1__cancelled__descriptor);
        return;
    case METHOD_ORDER:
        message->answer_case = CPATTN__V1__REPLY__ANSWER_DONE;
        message->done = build_done(b, r->done);
        return;
    case METHOD_WATCH:
        message->answer_case = CPATTN__V1__REPLY__ANSWER_EVENTS;
        message->events = build_events(b, &r->events);
        return;
    }
    b->status =
        error_set(b->error, STATUS_INTERNAL, "a good reply has the method %d", (int)r->method);
}

static bool report_counts_fit(const struct rank_report *report)
{
    return report->figures_count >= 0 && report->figures_count <= REPORT_FIGURES_MAX &&
           report->op_times.count >= 0 && report->op_times.count <= OP_TIMES_MAX;
}

// Checks the lengths of lists, so that no loop runs past an array.
static enum status check_counts(const struct wire_reply *r, struct error *error)
{
    bool good = r->failure.world_size >= 0 && r->failure.world_size <= WORLD_SIZE_MAX &&
                r->pools.pool_count >= 0 && r->pools.pool_count <= POOLS_MAX &&
                r->pools.host_count >= 0 && r->pools.host_count <= HOSTS_MAX &&
                r->pools.open_count >= 0 && r->pools.open_count <= OPEN_LISTED_MAX &&
                r->description.gpu_count >= 0 && r->description.gpu_count <= DEVICES_MAX &&
                r->description.provider_count >= 0 &&
                r->description.provider_count <= PROVIDERS_MAX && r->description.guest_count >= 0 &&
                r->description.guest_count <= GUESTS_MAX && r->result.world_size >= 0 &&
                r->result.world_size <= WORLD_SIZE_MAX && r->events.count >= 0 &&
                r->events.count <= EVENTS_REPLY_MAX;
    for (int i = 0; good && i < r->pools.open_count; i++)
        good = r->pools.open[i].rank_count >= 0 && r->pools.open[i].rank_count <= WORLD_SIZE_MAX;
    for (int rank = 0; good && rank < r->result.world_size; rank++)
        good = report_counts_fit(&r->result.ranks[rank]);
    return good ? STATUS_OK
                : error_set(error, STATUS_INTERNAL, "a reply has a list longer than allowed");
}

enum status wire_encode_reply(const struct wire_reply *r, void **data, size_t *size,
                              struct error *error)
{
    Cpattn__V1__Reply message = CPATTN__V1__REPLY__INIT;
    struct build b = {.error = error, .status = check_counts(r, error)};
    scratch_init(&b.scratch, DECODE_REPLY_MAX);
    message.version = r->version;
    message.id = build_id(&b, &r->id);
    if (r->status != STATUS_OK) {
        message.answer_case = CPATTN__V1__REPLY__ANSWER_ERROR;
        message.error = build_error(&b, r);
    } else if (b.status == STATUS_OK) {
        build_answer(&b, r, &message);
    }
    if (b.status == STATUS_OK)
        b.status = pack(&message.base, REPLY_BYTES_MAX, data, size, error);
    scratch_fini(&b.scratch);
    return b.status;
}
