// SPDX-License-Identifier: Apache-2.0
// Decodes a reply. Every value is checked as in a request; unknown fields are ignored.
#include <stdlib.h>
#include <string.h>

#include "proto/cpattn.pb-c.h"
#include "proto/schema.h"
#include "proto/wire.h"

static enum status check_count(size_t count, size_t min, size_t max, const struct map_path *path,
                               const char *list, struct error *error)
{
    char text[MAP_PATH_MAX];
    if (count >= min && count <= max)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s has %zu entries; accepted are %zu to %zu",
                     map_path_text(path, list, text), count, min, max);
}

// Allocates a zeroed list of the reply, at least one entry. RESOURCE_EXHAUSTED: out of memory.
static enum status list_alloc(size_t count, size_t size, void **list, struct error *error)
{
    *list = calloc(count > 0 ? count : 1, size);
    return *list ? STATUS_OK
                 : error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for the reply");
}

static enum status refuse_missing(const struct map_path *path, const char *name,
                                  struct error *error)
{
    char text[MAP_PATH_MAX];
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is missing",
                     map_path_text(path, name, text));
}

static enum status check_rank(int32_t rank, const struct map_path *path, struct error *error)
{
    char text[MAP_PATH_MAX];
    if (rank == path->index)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %d; accepted is %d",
                     map_path_text(path, "rank", text), rank, path->index);
}

// ---- results ------------------------------------------------------------------------------------

static enum status decode_element(const Cpattn__V1__Element *message, const char *name,
                                  const struct map_path *parent, struct element *e,
                                  struct error *error)
{
    struct map_path path = {.parent = parent, .name = name, .index = -1};
    if (!message)
        return refuse_missing(parent, name, error);
    return map_decode(&message->base, schema_element, &path, e, error);
}

static enum status check_judged(const struct figures *f, const struct map_path *path,
                                struct error *error)
{
    char text[MAP_PATH_MAX];
    if (f->judged <= f->elements)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %lld; accepted is 0 to %lld",
                     map_path_text(path, "judged", text), (long long)f->judged,
                     (long long)f->elements);
}

// Refuses an invalid name of a tensor.
static enum status check_name(const struct map_path *path, const char *name, struct error *error)
{
    char text[MAP_PATH_MAX];
    if (report_name_is_valid(name))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s is '%s'; accepted are letters, digits and underscores",
                     map_path_text(path, "name", text), name);
}

// A tensor of attention has a number; a tensor of another kind of job has a name.
static enum status decode_tensor(const Cpattn__V1__Figures *message, const struct map_path *path,
                                 struct figures *f, struct error *error)
{
    if (message->tensor != CPATTN__V1__TENSOR__TENSOR_UNSPECIFIED || message->name.len == 0)
        return map_decode(&message->base, schema_tensor, path, f, error);
    enum status status = map_decode(&message->base, schema_tensor_name, path, f, error);
    return status == STATUS_OK ? check_name(path, f->name, error) : status;
}

static enum status decode_diagnosed(const Cpattn__V1__Diagnosis *message,
                                    const struct map_path *path, struct diagnosis *d,
                                    struct error *error)
{
    if (message->tensor != CPATTN__V1__TENSOR__TENSOR_UNSPECIFIED || message->name.len == 0)
        return map_decode(&message->base, schema_diagnosis_tensor, path, d, error);
    enum status status = map_decode(&message->base, schema_diagnosis_name, path, d, error);
    return status == STATUS_OK ? check_name(path, d->name, error) : status;
}

static enum status decode_figures(const Cpattn__V1__Figures *message, const struct map_path *path,
                                  struct figures *f, struct error *error)
{
    enum status status = decode_tensor(message, path, f, error);
    if (status == STATUS_OK)
        status = map_decode(&message->base, schema_figures, path, f, error);
    if (status == STATUS_OK)
        status = check_judged(f, path, error);
    if (status == STATUS_OK)
        status = decode_element(message->worst_row, "worst_row", path, &f->worst_row, error);
    if (status == STATUS_OK)
        status = decode_element(message->first_bad, "first_bad", path, &f->first_bad, error);
    return status;
}

static enum status decode_timings(const Cpattn__V1__Timings *message, const struct map_path *parent,
                                  struct timings *t, struct error *error)
{
    struct map_path path = {.parent = parent, .name = "timings", .index = -1};
    if (!message)
        return refuse_missing(parent, "timings", error);
    return map_decode(&message->base, schema_timings, &path, t, error);
}

static enum status decode_diagnosis(const Cpattn__V1__Diagnosis *message,
                                    const struct map_path *parent, struct diagnosis *d,
                                    struct error *error)
{
    struct map_path path = {.parent = parent, .name = "diagnosis", .index = -1};
    char text[MAP_PATH_MAX];
    if (!message)
        return STATUS_OK;
    enum status status = decode_diagnosed(message, &path, d, error);
    if (status == STATUS_OK)
        status = map_decode(&message->base, schema_diagnosis, &path, d, error);
    if (status != STATUS_OK || (d->explained >= 0 && d->explained <= 1))
        return status;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %g; accepted is 0 to 1",
                     map_path_text(&path, "explained", text), d->explained);
}

static enum status decode_op_times(const Cpattn__V1__OperationTimes *message,
                                   const struct map_path *parent, struct op_times *times,
                                   struct error *error)
{
    struct map_path path = {.parent = parent, .name = "operation_times", .index = -1};
    char text[MAP_PATH_MAX];
    if (!message)
        return STATUS_OK;
    enum status status = map_decode(&message->base, schema_op_times, &path, times, error);
    if (status == STATUS_OK)
        status = check_count(message->n_start_ns, 0, OP_TIMES_MAX, &path, "start_ns", error);
    if (status == STATUS_OK)
        status = check_count(message->n_end_ns, (int)message->n_start_ns, (int)message->n_start_ns,
                             &path, "end_ns", error);
    for (size_t i = 0; status == STATUS_OK && i < message->n_start_ns; i++)
        times->list[i] = (struct op_time){message->start_ns[i], message->end_ns[i]};
    if (status != STATUS_OK)
        return status;
    times->count = (int32_t)message->n_start_ns;
    if (op_times_plausible(times))
        return STATUS_OK;
    times->count = 0;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s has an end before its start, or after 24 hours",
                     map_path_text(&path, NULL, text));
}

static enum status decode_rank(const Cpattn__V1__Rank *message, const struct map_path *path,
                               struct rank_report *report, struct error *error)
{
    enum status status = map_decode(&message->base, schema_rank, path, report, error);
    if (status == STATUS_OK)
        status = check_rank(report->rank, path, error);
    if (status == STATUS_OK)
        status = check_count(message->n_figures, 0, REPORT_FIGURES_MAX, path, "figures", error);
    if (status == STATUS_OK)
        status = decode_timings(message->timings, path, &report->timings, error);
    if (status == STATUS_OK)
        status = decode_diagnosis(message->diagnosis, path, &report->diagnosis, error);
    if (status == STATUS_OK && message->use) {
        struct map_path use = {.parent = path, .name = "use", .index = -1};
        status = map_decode(&message->use->base, schema_use, &use, &report->use, error);
    }
    if (status == STATUS_OK)
        status = decode_op_times(message->operation_times, path, &report->op_times, error);
    for (size_t i = 0; status == STATUS_OK && i < message->n_figures; i++) {
        struct map_path entry = {.parent = path, .name = "figures", .index = (int)i};
        status = decode_figures(message->figures[i], &entry, &report->figures[i], error);
    }
    report->figures_count = status == STATUS_OK ? (int32_t)message->n_figures : 0;
    return status;
}

static enum status decode_result(const Cpattn__V1__Result *message, struct wire_result *r,
                                 struct error *error)
{
    static const struct map_path path = {.name = "result", .index = -1};
    void *ranks;
    enum status status = map_decode(&message->base, schema_result, &path, r, error);
    if (status == STATUS_OK)
        status = check_count(message->n_ranks, 1, WORLD_SIZE_MAX, &path, "ranks", error);
    if (status == STATUS_OK)
        status = list_alloc(message->n_ranks, sizeof *r->ranks, &ranks, error);
    if (status != STATUS_OK)
        return status;
    r->ranks = ranks;
    r->world_size = (int32_t)message->n_ranks;
    for (size_t i = 0; status == STATUS_OK && i < message->n_ranks; i++) {
        struct map_path entry = {.parent = &path, .name = "ranks", .index = (int)i};
        status = decode_rank(message->ranks[i], &entry, &r->ranks[i], error);
    }
    return status;
}

// ---- errors -------------------------------------------------------------------------------------

static const struct map_field error_fields[] = {
    {.name = "message",
     .kind = MAP_TEXT,
     .offset = offsetof(struct wire_reply, message),
     .size = ERROR_TEXT_MAX},
    {.name = "code",
     .kind = MAP_ENUM,
     .offset = offsetof(struct wire_reply, status),
     .size = sizeof(enum status),
     .min = STATUS_CANCELLED,
     .max = STATUS_COUNT - 1},
    {.name = NULL},
};

static enum status decode_error(const Cpattn__V1__Error *message, struct wire_reply *reply,
                                struct error *error)
{
    static const struct map_path path = {.name = "error", .index = -1};
    struct wire_failure *failure = &reply->failure;
    void *ranks;
    enum status status = map_decode(&message->base, error_fields, &path, reply, error);
    if (status == STATUS_OK)
        status = check_count(message->n_ranks, 0, WORLD_SIZE_MAX, &path, "ranks", error);
    if (status != STATUS_OK || message->n_ranks == 0)
        return status;
    status = list_alloc(message->n_ranks, sizeof *failure->ranks, &ranks, error);
    if (status != STATUS_OK)
        return status;
    failure->ranks = ranks;
    failure->world_size = (int32_t)message->n_ranks;
    reply->method = METHOD_RUN;
    for (size_t i = 0; status == STATUS_OK && i < message->n_ranks; i++) {
        struct map_path entry = {.parent = &path, .name = "ranks", .index = (int)i};
        struct wire_rank_state *state = &failure->ranks[i];
        status = map_decode(&message->ranks[i]->base, schema_rank_state, &entry, state, error);
        if (status == STATUS_OK)
            status = check_rank(state->rank, &entry, error);
    }
    return status;
}

// ---- the daemon's status ------------------------------------------------------------------------

static enum status decode_places(const ProtobufCMessage *message, const struct map_path *path,
                                 struct wire_open_request *open, struct error *error)
{
    int32_t steps;
    char text[MAP_PATH_MAX];
    enum status status = map_decode_list(message, &schema_rank_phases, path, open->rank_phases,
                                         WORLD_SIZE_MAX, &open->rank_count, error);
    if (status == STATUS_OK)
        status = map_decode_list(message, &schema_rank_steps, path, open->rank_steps,
                                 WORLD_SIZE_MAX, &steps, error);
    if (status != STATUS_OK)
        return status;
    for (int rank = 0; rank < open->rank_count; rank++)
        open->rank_phases[rank]--;
    if (steps == open->rank_count)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s has %d entries; accepted are %d",
                     map_path_text(path, "rank_steps", text), steps, open->rank_count);
}

static enum status decode_open(const Cpattn__V1__DaemonStatus *message, const struct map_path *path,
                               struct wire_status *s, struct error *error)
{
    void *open;
    enum status status =
        check_count(message->n_requests, 0, OPEN_LISTED_MAX, path, "requests", error);
    if (status == STATUS_OK)
        status = list_alloc(message->n_requests, sizeof *s->open, &open, error);
    if (status != STATUS_OK)
        return status;
    s->open = open;
    s->open_count = (int32_t)message->n_requests;
    for (size_t i = 0; status == STATUS_OK && i < message->n_requests; i++) {
        struct map_path entry = {.parent = path, .name = "requests", .index = (int)i};
        status = map_decode(&message->requests[i]->base, schema_open, &entry, &s->open[i], error);
        if (status == STATUS_OK)
            status = decode_places(&message->requests[i]->base, &entry, &s->open[i], error);
    }
    return status;
}

static enum status decode_hosts(const Cpattn__V1__DaemonStatus *message,
                                const struct map_path *path, struct wire_status *s,
                                struct error *error)
{
    enum status status = check_count(message->n_hosts, 0, HOSTS_MAX, path, "hosts", error);
    if (status == STATUS_OK)
        s->host_count = (int32_t)message->n_hosts;
    for (size_t i = 0; status == STATUS_OK && i < message->n_hosts; i++) {
        struct map_path entry = {.parent = path, .name = "hosts", .index = (int)i};
        status = map_decode(&message->hosts[i]->base, schema_host, &entry, &s->hosts[i], error);
    }
    return status;
}

static enum status decode_status(const Cpattn__V1__DaemonStatus *message, struct wire_status *s,
                                 struct error *error)
{
    static const struct map_path path = {.name = "status", .index = -1};
    void *pools;
    enum status status = map_decode(&message->base, schema_status, &path, s, error);
    if (status == STATUS_OK)
        status = check_count(message->n_pools, 0, POOLS_MAX, &path, "pools", error);
    if (status == STATUS_OK)
        status = list_alloc(message->n_pools, sizeof *s->pools, &pools, error);
    if (status != STATUS_OK)
        return status;
    s->pools = pools;
    s->pool_count = (int32_t)message->n_pools;
    for (size_t i = 0; status == STATUS_OK && i < message->n_pools; i++) {
        struct map_path entry = {.parent = &path, .name = "pools", .index = (int)i};
        status = map_decode(&message->pools[i]->base, schema_pool, &entry, &s->pools[i], error);
    }
    if (status == STATUS_OK)
        status = decode_hosts(message, &path, s, error);
    return status == STATUS_OK ? decode_open(message, &path, s, error) : status;
}

// ---- events -------------------------------------------------------------------------------------

static enum status decode_events(const Cpattn__V1__Events *message, struct wire_events *e,
                                 struct error *error)
{
    static const struct map_path path = {.name = "events", .index = -1};
    void *list;
    enum status status = map_decode(&message->base, schema_events, &path, e, error);
    if (status == STATUS_OK)
        status = check_count(message->n_events, 0, EVENTS_REPLY_MAX, &path, "events", error);
    if (status == STATUS_OK)
        status = list_alloc(message->n_events, sizeof *e->list, &list, error);
    if (status != STATUS_OK)
        return status;
    e->list = list;
    e->count = (int32_t)message->n_events;
    for (size_t i = 0; status == STATUS_OK && i < message->n_events; i++) {
        struct map_path entry = {.parent = &path, .name = "events", .index = (int)i};
        status = map_decode(&message->events[i]->base, schema_event, &entry, &e->list[i], error);
    }
    return status;
}

// ---- the envelope -------------------------------------------------------------------------------

static enum status decode_providers(const Cpattn__V1__Description *message,
                                    const struct map_path *path,
                                    struct wire_description *description, struct error *error)
{
    enum status status =
        check_count(message->n_providers, 0, PROVIDERS_MAX, path, "providers", error);
    if (status == STATUS_OK)
        description->provider_count = (int32_t)message->n_providers;
    for (int i = 0; status == STATUS_OK && i < description->provider_count; i++) {
        struct map_path entry = {.parent = path, .name = "providers", .index = i};
        status = map_decode(&message->providers[i]->base, schema_provider, &entry,
                            &description->providers[i], error);
    }
    return status;
}

static enum status decode_guests(const Cpattn__V1__Description *message,
                                 const struct map_path *path, struct wire_description *description,
                                 struct error *error)
{
    enum status status = check_count(message->n_guests, 0, GUESTS_MAX, path, "guests", error);
    if (status == STATUS_OK)
        description->guest_count = (int32_t)message->n_guests;
    for (int i = 0; status == STATUS_OK && i < description->guest_count; i++) {
        struct map_path entry = {.parent = path, .name = "guests", .index = i};
        status = map_decode(&message->guests[i]->base, schema_guest, &entry,
                            &description->guests[i], error);
    }
    return status;
}

static enum status decode_description(const Cpattn__V1__Description *message,
                                      struct wire_description *description, struct error *error)
{
    static const struct map_path path = {.name = "description", .index = -1};
    enum status status = map_decode(&message->base, schema_description, &path, description, error);
    if (status == STATUS_OK)
        status = check_count(message->n_gpus, 0, DEVICES_MAX, &path, "gpus", error);
    if (status == STATUS_OK)
        description->gpu_count = (int32_t)message->n_gpus;
    for (int i = 0; status == STATUS_OK && i < description->gpu_count; i++) {
        struct map_path entry = {.parent = &path, .name = "gpus", .index = i};
        status = map_decode(&message->gpus[i]->base, schema_device, &entry, &description->gpus[i],
                            error);
    }
    if (status == STATUS_OK)
        status = decode_guests(message, &path, description, error);
    return status == STATUS_OK ? decode_providers(message, &path, description, error) : status;
}

static enum status decode_answer(const Cpattn__V1__Reply *message, struct wire_reply *reply,
                                 struct error *error)
{
    switch (message->answer_case) {
    case CPATTN__V1__REPLY__ANSWER_ERROR:
        return decode_error(message->error, reply, error);
    case CPATTN__V1__REPLY__ANSWER_RESULT:
        reply->method = METHOD_RUN;
        return decode_result(message->result, &reply->result, error);
    case CPATTN__V1__REPLY__ANSWER_DESCRIPTION:
        reply->method = METHOD_DESCRIBE;
        return decode_description(message->description, &reply->description, error);
    case CPATTN__V1__REPLY__ANSWER_STATUS:
        reply->method = METHOD_STATUS;
        return decode_status(message->status, &reply->pools, error);
    case CPATTN__V1__REPLY__ANSWER_CANCELLED:
        reply->method = METHOD_CANCEL;
        return STATUS_OK;
    case CPATTN__V1__REPLY__ANSWER_DONE:
        reply->method = METHOD_ORDER;
        reply->done = message->done->count;
        return STATUS_OK;
    case CPATTN__V1__REPLY__ANSWER_EVENTS:
        reply->method = METHOD_WATCH;
        return decode_events(message->events, &reply->events, error);
    case CPATTN__V1__REPLY__ANSWER__NOT_SET:
    default:
        break;
    }
    return error_set(error, STATUS_INVALID_ARGUMENT, "the reply has no answer known here");
}

static enum status decode_envelope(const Cpattn__V1__Reply *message, struct wire_reply *reply,
                                   struct error *error)
{
    reply->version = message->version;
    if (message->version != WIRE_VERSION)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the daemon speaks version %u of the protocol, this client version %d",
                         message->version, WIRE_VERSION);
    if (message->id.len != sizeof reply->id.bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT, "id has %zu bytes; accepted are %zu",
                         message->id.len, sizeof reply->id.bytes);
    memcpy(reply->id.bytes, message->id.data, sizeof reply->id.bytes);
    return decode_answer(message, reply, error);
}

static enum status refuse_reply(struct error *error)
{
    if (error)
        error->status = STATUS_DATA_LOSS;
    return STATUS_DATA_LOSS;
}

enum status wire_decode_reply(const void *data, size_t size, struct wire_reply *reply,
                              struct error *error)
{
    struct scratch scratch;
    memset(reply, 0, sizeof *reply);
    if (size > REPLY_BYTES_MAX)
        return error_set(error, STATUS_DATA_LOSS, "the reply has %zu bytes; accepted are up to %d",
                         size, REPLY_BYTES_MAX);
    scratch_init(&scratch, DECODE_REPLY_MAX);
    Cpattn__V1__Reply *message =
        cpattn__v1__reply__unpack(&scratch.allocator, size, size > 0 ? data : (const void *)"");
    enum status status;
    if (message)
        status = decode_envelope(message, reply, error);
    else if (scratch.refused)
        status = scratch_refusal(&scratch, "the reply", error);
    else
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "the reply is no message of this protocol (%zu bytes)", size);
    scratch_fini(&scratch);
    if (status != STATUS_OK)
        wire_reply_fini(reply);
    // INVALID_ARGUMENT would blame the client's request.
    return status == STATUS_INVALID_ARGUMENT ? refuse_reply(error) : status;
}
