// SPDX-License-Identifier: Apache-2.0
// Implements clients, and queries of the daemon's description and status.
#include "client/client.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/cpattn_watch.h"
#include "client/link_tls.h"
#include "client/target.h"

#define SECOND_NS          UINT64_C(1000000000)
#define CONNECT_DEFAULT_NS (5 * SECOND_NS)
#define GRACE_DEFAULT_NS   (5 * SECOND_NS)
#define QUERY_DEFAULT_NS   (5 * SECOND_NS)
#define REQUESTS_DEFAULT   64
// Each request uses a connection; the daemon accepts CLIENTS_MAX of all clients together.
#define REQUESTS_MAX       (CLIENTS_MAX / 2)

// ---- creating -----------------------------------------------------------------------------------

// Converts options of any version of the header to this version.
static enum status options_read(const struct cpattn_options *given, struct cpattn_options *options,
                                struct error *error)
{
    *options = (struct cpattn_options){.size = sizeof *options};
    if (!given)
        return STATUS_OK;
    if (given->size < offsetof(struct cpattn_options, socket) + sizeof given->socket)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "options.size is %zu; begin with CPATTN_OPTIONS_INIT", given->size);
    for (size_t i = sizeof *options; i < given->size; i++)
        if (((const char *)given)[i] != 0)
            return error_set(error, STATUS_UNIMPLEMENTED,
                             "an option is set that this version of the library does not know");
    memcpy(options, given, given->size < sizeof *options ? given->size : sizeof *options);
    return STATUS_OK;
}

static enum status time_read(const char *name, uint64_t ns, uint64_t otherwise, uint64_t *read,
                             struct error *error)
{
    if (ns > TIMEOUT_MAX_NS)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %llu; accepted is 0 to %llu", name,
                         (unsigned long long)ns, (unsigned long long)TIMEOUT_MAX_NS);
    *read = ns ? ns : otherwise;
    return STATUS_OK;
}

static enum status config_read(const struct cpattn_options *given, struct rpc_config *config,
                               uint64_t *grace_ns, struct client_wishes *wishes,
                               struct error *error)
{
    struct cpattn_options options;
    enum status status = options_read(given, &options, error);
    if (status == STATUS_OK)
        status = target_address(options.socket, &config->target, error);
    if (status == STATUS_OK)
        status = time_read("options.connect_timeout_ns", options.connect_timeout_ns,
                           CONNECT_DEFAULT_NS, &config->connect_ns, error);
    if (status == STATUS_OK)
        status = time_read("options.grace_ns", options.grace_ns, GRACE_DEFAULT_NS, grace_ns, error);
    if (status == STATUS_OK)
        status = time_read("options.patience_ns", options.patience_ns, PATIENCE_ENDLESS,
                           &wishes->patience_ns, error);
    wishes->cancel_on_disconnect = options.cancel_on_disconnect;
    if (status != STATUS_OK)
        return status;
    if (options.requests_max < 0 || options.requests_max > REQUESTS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "options.requests_max is %d; accepted is 0 to %d", options.requests_max,
                         REQUESTS_MAX);
    config->calls_max = options.requests_max ? options.requests_max : REQUESTS_DEFAULT;
    return target_secrets(&options, &config->target, &config->token, error);
}

static enum status client_open(const struct cpattn_options *options, struct cpattn_client **client,
                               struct error *error)
{
    struct rpc_config config = {.calls_max = 0};
    struct client_wishes wishes;
    uint64_t grace_ns = 0;
    enum status status = config_read(options, &config, &grace_ns, &wishes, error);
    if (status != STATUS_OK)
        return status;
    struct cpattn_client *created = calloc(1, sizeof *created);
    if (created)
        status = rpc_create(&config, &created->rpc, error);
    else
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a client");
    token_wipe(&config.token);
    if (status != STATUS_OK) {
        link_tls_destroy(config.target.tls);
        free(created);
        return status;
    }
    created->pid = getpid();
    created->grace_ns = grace_ns;
    created->wishes = wishes;
    memcpy(created->socket, config.target.address, sizeof created->socket);
    *client = created;
    return STATUS_OK;
}

enum cpattn_status cpattn_client_create(const struct cpattn_options *options,
                                        struct cpattn_client **client, struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    return client_status(client_open(options, client, &inner), &inner, error);
}

void cpattn_client_destroy(struct cpattn_client *client)
{
    if (!client || client->pid != getpid())
        return;
    rpc_destroy(client->rpc);
    free(client);
}

const char *cpattn_client_socket(const struct cpattn_client *client)
{
    return client->socket;
}

// ---- requests and replies -----------------------------------------------------------------------

enum status client_check_pid(pid_t pid, struct error *error)
{
    if (pid == getpid())
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "the client was created by process %d and cannot be used in its child %d",
                     (int)pid, (int)getpid());
}

enum status client_request_init(struct wire_request *request, enum wire_method method,
                                struct error *error)
{
    memset(request, 0, sizeof *request);
    request->version = WIRE_VERSION;
    request->method = method;
    if (getrandom(request->id.bytes, sizeof request->id.bytes, 0) ==
        (ssize_t)sizeof request->id.bytes)
        return STATUS_OK;
    return error_set(error, STATUS_INTERNAL, "the kernel gave no random numbers");
}

enum status client_start(struct rpc *rpc, struct wire_request *request, uint64_t limit_ns,
                         enum rpc_kind kind, void *owner, struct rpc_call **call,
                         struct error *error)
{
    void *data;
    size_t size;
    request->token = *rpc_token(rpc);
    enum status status = wire_encode_request(request, &data, &size, error);
    token_wipe(&request->token);
    if (status != STATUS_OK)
        return status;
    status = rpc_start(rpc, data, size, limit_ns, kind, owner, call, error);
    explicit_bzero(data, size);
    free(data);
    return status;
}

// The id of a refusal is zero if the daemon could not read the request's.
static bool id_fits(const struct wire_reply *reply, const struct request_id *id)
{
    static const struct request_id zero;
    return memcmp(&reply->id, id, sizeof *id) == 0 ||
           (reply->status != STATUS_OK && memcmp(&reply->id, &zero, sizeof zero) == 0);
}

enum status client_answer(struct rpc_call *call, const struct request_id *id,
                          enum wire_method method, struct wire_reply *reply, struct error *error)
{
    const void *data;
    size_t size;
    memset(reply, 0, sizeof *reply);
    enum status status = rpc_take(call, &data, &size, error);
    if (status == STATUS_OK)
        status = wire_decode_reply(data, size, reply, error);
    if (status != STATUS_OK)
        return status;
    if (reply->status == STATUS_UNAUTHENTICATED)
        rpc_retire(call);
    if (!id_fits(reply, id))
        status = error_set(error, STATUS_DATA_LOSS, "the daemon answered another request");
    else if (reply->status != STATUS_OK)
        return error_set(error, reply->status, "%s",
                         reply->message[0] ? reply->message : status_text(reply->status));
    else if (reply->method != method)
        status = error_set(error, STATUS_DATA_LOSS, "the daemon's answer is of another kind");
    if (status != STATUS_OK)
        wire_reply_fini(reply);
    return status;
}

// ---- queries ------------------------------------------------------------------------------------

enum status client_ask(struct cpattn_client *client, struct wire_request *request,
                       uint64_t timeout_ns, struct wire_reply *reply, struct error *error)
{
    struct rpc_call *call;
    enum status status = client_check_pid(client->pid, error);
    if (status == STATUS_OK)
        status = time_read("timeout_ns", timeout_ns, QUERY_DEFAULT_NS, &request->timeout_ns, error);
    if (status == STATUS_OK)
        status =
            client_start(client->rpc, request, request->timeout_ns, RPC_FREE, NULL, &call, error);
    if (status != STATUS_OK)
        return status;
    rpc_wait(call, UINT64_MAX);
    status = client_answer(call, &request->id, request->method, reply, error);
    rpc_drop(call);
    if (status != STATUS_OK)
        wire_reply_fini(reply);
    return status;
}

// Sends a request without a body and waits for its reply.
static enum status client_query(struct cpattn_client *client, enum wire_method method,
                                uint64_t timeout_ns, struct wire_reply *reply, struct error *error)
{
    struct wire_request request;
    enum status status = client_request_init(&request, method, error);
    return status == STATUS_OK ? client_ask(client, &request, timeout_ns, reply, error) : status;
}

// A description and the memory that it points into. The public struct must be the first member.
struct description {
    struct cpattn_description face;
    struct wire_description wire; // holds the texts
    struct cpattn_gpu gpus[DEVICES_MAX];
    struct cpattn_provider_entry providers[PROVIDERS_MAX];
    struct cpattn_implementation guests[GUESTS_MAX];
};

static struct cpattn_description *description_create(const struct wire_description *wire)
{
    struct description *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->wire = *wire;
    d->face = (struct cpattn_description){
        .version = d->wire.version,
        .backend = d->wire.backend,
        .devices = wire->devices,
        .world_size_max = wire->world_size_max,
        .memory_bytes_max = wire->memory_bytes_max,
        .timeout_default_ns = wire->timeout_default_ns,
        .timeout_max_ns = wire->timeout_max_ns,
        .queue_max = wire->queue_max,
        .gpu_count = wire->gpu_count,
        .provider_count = wire->provider_count,
        .guest_count = wire->guest_count,
    };
    for (int i = 0; i < wire->provider_count; i++)
        d->providers[i] = (struct cpattn_provider_entry){.name = d->wire.providers[i].name,
                                                         .file = d->wire.providers[i].file,
                                                         .about = d->wire.providers[i].about,
                                                         .trouble = d->wire.providers[i].trouble};
    for (int i = 0; i < wire->gpu_count; i++)
        d->gpus[i] = (struct cpattn_gpu){
            .index = d->wire.gpus[i].index,
            .arch = d->wire.gpus[i].arch,
            .memory_bytes = d->wire.gpus[i].memory_bytes,
            .name = d->wire.gpus[i].name,
        };
    for (int i = 0; i < wire->guest_count; i++)
        d->guests[i] = (struct cpattn_implementation){
            .name = d->wire.guests[i].name,
            .world_sizes = d->wire.guests[i].world_sizes,
            .supports = d->wire.guests[i].supports,
        };
    return &d->face;
}

const struct cpattn_gpu *cpattn_description_gpu(const struct cpattn_description *description, int i)
{
    const struct description *d = (const struct description *)(const void *)description;
    return i >= 0 && i < description->gpu_count ? &d->gpus[i] : NULL;
}

const struct cpattn_provider_entry *
cpattn_description_provider(const struct cpattn_description *description, int i)
{
    const struct description *d = (const struct description *)(const void *)description;
    return i >= 0 && i < description->provider_count ? &d->providers[i] : NULL;
}

const struct cpattn_implementation *
cpattn_description_guest(const struct cpattn_description *description, int i)
{
    const struct description *d = (const struct description *)(const void *)description;
    return i >= 0 && i < description->guest_count ? &d->guests[i] : NULL;
}

enum cpattn_status cpattn_describe(struct cpattn_client *client, uint64_t timeout_ns,
                                   struct cpattn_description **description,
                                   struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    struct wire_reply reply;
    enum status status = client_query(client, METHOD_DESCRIBE, timeout_ns, &reply, &inner);
    if (status == STATUS_OK) {
        struct cpattn_description *created = description_create(&reply.description);
        wire_reply_fini(&reply);
        if (created)
            *description = created;
        else
            status = error_set(&inner, STATUS_RESOURCE_EXHAUSTED,
                               "not enough memory for the description");
    }
    return client_status(status, &inner, error);
}

void cpattn_description_destroy(struct cpattn_description *description)
{
    free(description); // the public struct is the first member
}

// A status and the memory that it points into. The public struct must be the first member.
struct daemon_status {
    struct cpattn_daemon_status face;
    struct wire_pool *wire;         // [face.pool_count], holds the texts
    struct wire_open_request *open; // [face.request_count], holds the texts
    struct cpattn_open_request requests[OPEN_LISTED_MAX];
    struct cpattn_rank_place places[OPEN_LISTED_MAX][WORLD_SIZE_MAX];
    struct wire_host wire_hosts[HOSTS_MAX];
    struct cpattn_host hosts[HOSTS_MAX];
    struct cpattn_pool pools[];
};

static struct cpattn_pool pool_public(const struct wire_pool *wire)
{
    return (struct cpattn_pool){
        .world_size = wire->world_size,
        .instance = wire->instance,
        .state = pool_state_name(wire->state),
        .generation = wire->generation,
        .jobs = wire->jobs,
        .deaths = wire->deaths,
        .last_failure = wire->last_failure,
        .devices = wire->devices,
        .spare = wire->spare,
        .implementation = wire->implementation,
        .hosts = wire->hosts,
        .exchange = wire->exchange,
    };
}

static struct cpattn_open_request open_public(const struct wire_open_request *wire,
                                              struct cpattn_rank_place *places)
{
    for (int rank = 0; rank < wire->rank_count; rank++)
        places[rank] = (struct cpattn_rank_place){report_phase_name(wire->rank_phases[rank]),
                                                  wire->rank_steps[rank]};
    return (struct cpattn_open_request){
        .id = wire->id,
        .user = wire->user,
        .implementation = wire->implementation,
        .case_text = wire->case_text,
        .phase = wire->phase,
        .step = wire->step,
        .world_size = wire->world_size,
        .running = wire->running,
        .age_ns = wire->age_ns,
        .run_ns = wire->run_ns,
        .rank_count = wire->rank_count,
        .ranks = places,
    };
}

// Takes over the reply's lists of pools and requests.
static struct cpattn_daemon_status *status_create(struct wire_status *wire)
{
    size_t count = (size_t)wire->pool_count;
    struct daemon_status *s = calloc(1, sizeof *s + count * sizeof s->pools[0]);
    if (!s)
        return NULL;
    s->face = (struct cpattn_daemon_status){
        .uptime_ns = wire->uptime_ns,
        .queued = wire->queued,
        .running = wire->running,
        .admitted = wire->admitted,
        .passed = wire->passed,
        .failed = wire->failed,
        .errors = wire->errors,
        .refused = wire->refused,
        .unverified = wire->unverified,
        .devices_out = wire->devices_out,
        .loop_lag_max_ns = wire->loop_lag_max_ns,
        .loop_lag_p99_ns = wire->loop_lag_p99_ns,
        .draining = wire->draining,
        .pool_count = wire->pool_count,
        .request_count = wire->open_count,
        .host_count = wire->host_count,
    };
    s->wire = wire->pools;
    s->open = wire->open;
    wire->pools = NULL;
    wire->open = NULL;
    for (int i = 0; i < wire->open_count; i++)
        s->requests[i] = open_public(&s->open[i], s->places[i]);
    for (size_t i = 0; i < count; i++)
        s->pools[i] = pool_public(&s->wire[i]);
    memcpy(s->wire_hosts, wire->hosts, sizeof s->wire_hosts);
    for (int i = 0; i < wire->host_count; i++)
        s->hosts[i] = (struct cpattn_host){.name = s->wire_hosts[i].name,
                                           .state = wire->hosts[i].lost ? "lost" : "up",
                                           .devices = wire->hosts[i].devices,
                                           .devices_out = wire->hosts[i].devices_out,
                                           .devices_stuck = wire->hosts[i].devices_stuck};
    return &s->face;
}

static struct daemon_status *status_plain(const struct cpattn_daemon_status *face)
{
    return (struct daemon_status *)(uintptr_t)face;
}

enum cpattn_status cpattn_query_status(struct cpattn_client *client, uint64_t timeout_ns,
                                       struct cpattn_daemon_status **status,
                                       struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    struct wire_reply reply;
    enum status outcome = client_query(client, METHOD_STATUS, timeout_ns, &reply, &inner);
    if (outcome == STATUS_OK) {
        struct cpattn_daemon_status *created = status_create(&reply.pools);
        wire_reply_fini(&reply);
        if (created)
            *status = created;
        else
            outcome =
                error_set(&inner, STATUS_RESOURCE_EXHAUSTED, "memory is short for the status");
    }
    return client_status(outcome, &inner, error);
}

const struct cpattn_pool *cpattn_daemon_status_pool(const struct cpattn_daemon_status *status,
                                                    int index)
{
    return index >= 0 && index < status->pool_count ? &status_plain(status)->pools[index] : NULL;
}

const struct cpattn_host *cpattn_daemon_status_host(const struct cpattn_daemon_status *status,
                                                    int index)
{
    return index >= 0 && index < status->host_count ? &status_plain(status)->hosts[index] : NULL;
}

const struct cpattn_open_request *
cpattn_daemon_status_request(const struct cpattn_daemon_status *status, int index)
{
    return index >= 0 && index < status->request_count ? &status_plain(status)->requests[index]
                                                       : NULL;
}

void cpattn_daemon_status_destroy(struct cpattn_daemon_status *status)
{
    if (!status)
        return;
    free(status_plain(status)->wire);
    free(status_plain(status)->open);
    free(status);
}
