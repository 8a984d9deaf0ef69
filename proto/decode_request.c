// SPDX-License-Identifier: Apache-2.0
// Decodes a request. The input may be hostile.
#include <string.h>

#include "proto/attend.h"
#include "proto/cpattn.pb-c.h"
#include "proto/schema.h"
#include "proto/spec.h"
#include "proto/wire.h"

static enum status decode_id(const ProtobufCBinaryData *bytes, const char *name,
                             struct request_id *id, struct error *error)
{
    static const struct request_id zero;
    if (bytes->len != sizeof id->bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s has %zu bytes; accepted are %zu", name,
                         bytes->len, sizeof id->bytes);
    if (memcmp(bytes->data, zero.bytes, sizeof zero.bytes) == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s is all zeros; accepted are random bytes", name);
    memcpy(id->bytes, bytes->data, sizeof id->bytes);
    return STATUS_OK;
}

static const struct map_field kind_field[] = {
    {.name = "kind", .kind = MAP_TEXT, .size = KIND_NAME_MAX}, {.name = NULL}};
static const struct map_field job_fields[] = {{.name = "name",
                                               .kind = MAP_TEXT,
                                               .offset = offsetof(struct job_field, name),
                                               .size = JOB_FIELD_NAME_MAX},
                                              {.name = "value",
                                               .kind = MAP_TEXT,
                                               .offset = offsetof(struct job_field, value),
                                               .size = JOB_FIELD_VALUE_MAX},
                                              {.name = NULL}};

static enum status decode_job(const Cpattn__V1__Run *run, struct job_text *job, struct error *error)
{
    static const struct map_path path = {.name = "job", .index = -1};
    const Cpattn__V1__Job *message = run->job;
    if (run->spec || run->attend)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "job is given beside a case or tensors; accepted is one of the two");
    enum status status = map_refuse_unknown(&message->base, "job", error);
    if (status == STATUS_OK)
        status = map_decode(&message->base, kind_field, &path, job->kind, error);
    if (status == STATUS_OK && message->n_fields > JOB_FIELDS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "job.fields has %zu entries; accepted are up to %d", message->n_fields,
                         JOB_FIELDS_MAX);
    for (size_t i = 0; status == STATUS_OK && i < message->n_fields; i++) {
        struct map_path entry = {.parent = &path, .name = "fields", .index = (int)i};
        status = map_refuse_unknown(&message->fields[i]->base, "job.fields", error);
        if (status == STATUS_OK)
            status =
                map_decode(&message->fields[i]->base, job_fields, &entry, &job->fields[i], error);
    }
    job->field_count = status == STATUS_OK ? (int32_t)message->n_fields : 0;
    return status;
}

static enum status decode_run(const Cpattn__V1__Run *run, struct wire_request *request,
                              struct error *error)
{
    enum status status = map_refuse_unknown(&run->base, "run", error);
    if (status != STATUS_OK)
        return status;
    request->method = METHOD_RUN;
    request->is_job = run->job;
    if (run->job)
        return decode_job(run, &request->job, error);
    if (!run->spec)
        return error_set(error, STATUS_INVALID_ARGUMENT, "case is missing");
    status = spec_decode(&run->spec->base, &request->run, error);
    if (status != STATUS_OK || !run->attend)
        return status;
    request->attends = true;
    return attend_decode(&request->run, &run->attend->base, &request->places, error);
}

static enum status decode_order(const Cpattn__V1__Order *message, struct wire_order *order,
                                struct error *error)
{
    if (message->kind < CPATTN__V1__ORDER_KIND__ORDER_KIND_DRAIN_DEVICE ||
        message->kind > CPATTN__V1__ORDER_KIND__ORDER_KIND_RELOAD)
        return error_set(error, STATUS_INVALID_ARGUMENT, "order.kind is %d; accepted is %d to %d",
                         (int)message->kind, ORDER_DRAIN_DEVICE, ORDER_RELOAD);
    if (message->device < 0 || message->device > DEVICE_NUMBER_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "order.device is %lld; accepted is 0 to %d", (long long)message->device,
                         DEVICE_NUMBER_MAX);
    if (message->host < 0 || message->host >= HOSTS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "order.host is %lld; accepted is 0 to %d",
                         (long long)message->host, HOSTS_MAX - 1);
    order->kind = (enum wire_order_kind)message->kind;
    order->host = (int32_t)message->host;
    order->device = (int32_t)message->device;
    return STATUS_OK;
}

static enum status decode_watch(const Cpattn__V1__Watch *message, struct wire_watch *watch,
                                struct error *error)
{
    static const struct map_path path = {.name = "watch", .index = -1};
    enum status status = map_decode(&message->base, schema_watch, &path, watch, error);
    if (status != STATUS_OK || watch->wait_ns <= WATCH_WAIT_MAX_NS)
        return status;
    return error_set(error, STATUS_INVALID_ARGUMENT, "watch.wait_ns is %llu; accepted is 0 to %llu",
                     (unsigned long long)watch->wait_ns, (unsigned long long)WATCH_WAIT_MAX_NS);
}

static enum status decode_method(const Cpattn__V1__Request *message, struct wire_request *request,
                                 struct error *error)
{
    switch (message->method_case) {
    case CPATTN__V1__REQUEST__METHOD_RUN:
        return decode_run(message->run, request, error);
    case CPATTN__V1__REQUEST__METHOD_DESCRIBE:
        request->method = METHOD_DESCRIBE;
        return STATUS_OK;
    case CPATTN__V1__REQUEST__METHOD_STATUS:
        request->method = METHOD_STATUS;
        return STATUS_OK;
    case CPATTN__V1__REQUEST__METHOD_CANCEL:
        request->method = METHOD_CANCEL;
        return decode_id(&message->cancel->id, "cancel.id", &request->cancel, error);
    case CPATTN__V1__REQUEST__METHOD_ORDER:
        request->method = METHOD_ORDER;
        return decode_order(message->order, &request->order, error);
    case CPATTN__V1__REQUEST__METHOD_WATCH:
        request->method = METHOD_WATCH;
        return decode_watch(message->watch, &request->watch, error);
    case CPATTN__V1__REQUEST__METHOD__NOT_SET:
    default:
        break;
    }
    if (message->base.n_unknown_fields > 0)
        return map_refuse_unknown(&message->base, "request", error);
    return error_set(
        error, STATUS_INVALID_ARGUMENT,
        "method is missing; accepted is run, describe, status, cancel, order or watch");
}

static enum status decode_time(const char *name, uint64_t ns, uint64_t *time_ns,
                               struct error *error)
{
    if (ns > TIMEOUT_MAX_NS)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %llu; accepted is 0 to %llu", name,
                         (unsigned long long)ns, (unsigned long long)TIMEOUT_MAX_NS);
    *time_ns = ns;
    return STATUS_OK;
}

static enum status decode_token(const ProtobufCBinaryData *bytes, struct token *token,
                                struct error *error)
{
    if (bytes->len == 0)
        return STATUS_OK;
    if (!token_is_valid(bytes->data, bytes->len))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "token has %zu bytes, or others than printable ASCII; accepted are %d to "
                         "%d, or none",
                         bytes->len, TOKEN_BYTES_MIN, TOKEN_BYTES_MAX);
    token_set(token, bytes->data, bytes->len);
    explicit_bzero(bytes->data, bytes->len);
    return STATUS_OK;
}

static enum status decode_envelope(const Cpattn__V1__Request *message, struct wire_request *request,
                                   struct error *error)
{
    enum status status = decode_id(&message->id, "id", &request->id, error);
    enum status of_token = decode_token(&message->token, &request->token, error);
    status = status == STATUS_OK ? of_token : status;
    request->version = message->version;
    if (message->version != WIRE_VERSION)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the client speaks version %u of the protocol, this daemon version %d",
                         message->version, WIRE_VERSION);
    if (status != STATUS_OK)
        return status;
    status = decode_time("timeout_ns", message->timeout_ns, &request->timeout_ns, error);
    if (status == STATUS_OK)
        status =
            decode_time("run_timeout_ns", message->run_timeout_ns, &request->run_timeout_ns, error);
    request->cancel_on_disconnect = message->cancel_on_disconnect;
    request->patience_ns = PATIENCE_ENDLESS;
    if (status == STATUS_OK && message->patience_ns_given_case)
        status = decode_time("patience_ns", message->patience_ns, &request->patience_ns, error);
    return status == STATUS_OK ? decode_method(message, request, error) : status;
}

enum status wire_decode_request(const void *data, size_t size, struct wire_request *request,
                                struct error *error)
{
    struct scratch scratch;
    memset(request, 0, sizeof *request);
    if (size > REQUEST_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the request has %zu bytes; accepted are up to %d", size,
                         REQUEST_BYTES_MAX);
    scratch_init(&scratch, DECODE_BYTES_MAX);
    Cpattn__V1__Request *message =
        cpattn__v1__request__unpack(&scratch.allocator, size, size > 0 ? data : (const void *)"");
    enum status status;
    if (message)
        status = decode_envelope(message, request, error);
    else if (scratch.refused)
        status = scratch_refusal(&scratch, "the request", error);
    else
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "the request is no message of this protocol (%zu bytes)", size);
    scratch_fini(&scratch);
    return status;
}
