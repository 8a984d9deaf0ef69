// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/gate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/plural.h"
#include "common/size.h"
#include "daemon/pool/mesh.h"

bool gate_is_ruler(const struct service_config *config, const struct peer *peer)
{
    return !peer_is_remote(peer) && (peer->uid == 0 || peer->uid == geteuid() ||
                                     user_list_has(&config->administrators, peer->uid));
}

enum status gate_check_ruler(const struct service_config *config, const struct peer *peer,
                             struct error *error)
{
    char who[PEER_TEXT_MAX];
    if (gate_is_ruler(config, peer))
        return STATUS_OK;
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "%s is not an administrator: root, the user that the daemon runs as, or one "
                     "of admin-users, through the unix socket",
                     peer_describe_user(peer, who));
}

enum status gate_check_token(const struct service_config *config, const struct peer *peer,
                             const void *data, size_t size, struct request_id *id,
                             struct error *error)
{
    struct token token;
    if (!peer_is_remote(peer) || !config->token.text[0])
        return STATUS_OK;
    wire_peek_request(data, size, id, &token);
    bool shown = token_equal(&config->token, &token), presented = token.text[0];
    token_wipe(&token);
    if (shown)
        return STATUS_OK;
    return error_set(error, STATUS_UNAUTHENTICATED,
                     presented ? "the token is wrong; ask the administrator of this daemon "
                                 "for its token file"
                               : "this daemon requires its token from network clients; name "
                                 "the file with --token-file or CPATTN_TOKEN_FILE");
}

enum status gate_check_peer(const struct service_config *config, const struct peer *peer,
                            struct error *error)
{
    const struct user_list *allowed = &config->allowed;
    if (peer_is_remote(peer) && config->subjects.count > 0 &&
        !subject_list_has(&config->subjects, peer->subject))
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "the subject of the certificate, '%s', is not among those that this "
                         "daemon serves (allow-subjects)",
                         peer->subject);
    if (allowed->count == 0 || peer_is_remote(peer) || gate_is_ruler(config, peer) ||
        user_list_has(allowed, peer->uid))
        return STATUS_OK;
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "user %u is not among those that this daemon serves (allow-users)",
                     (unsigned)peer->uid);
}

// Bytes over all ranks; INT64_MAX on overflow.
static int64_t memory_over_ranks(int world_size, int64_t rank_bytes)
{
    int64_t bytes;
    return __builtin_mul_overflow(rank_bytes, (int64_t)world_size, &bytes) ? INT64_MAX : bytes;
}

static uint64_t memory_of(const struct job_spec *spec, int world_size)
{
    int64_t rank_bytes;
    struct error error;
    if (job_spec_memory(spec, &rank_bytes, &error) != STATUS_OK)
        return 0; // gate_check_job() refuses the job
    uint64_t bytes = (uint64_t)memory_over_ranks(world_size, rank_bytes);
    return bytes < CORE_MEMORY_MAX ? bytes : CORE_MEMORY_MAX;
}

static enum status memory_check(const struct service_config *config, const struct job_spec *spec,
                                int world_size, struct error *error)
{
    char needed[SIZE_TEXT_MAX], granted[SIZE_TEXT_MAX];
    int64_t rank_bytes, limit = config->description.memory_bytes_max;
    enum status status = job_spec_memory(spec, &rank_bytes, error);
    if (status != STATUS_OK)
        return status;
    int64_t bytes = memory_over_ranks(world_size, rank_bytes);
    if (bytes > limit)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "the case needs %s over %d rank%s, this daemon grants %s; make the case "
                         "smaller, or start the daemon with a larger --memory",
                         size_format(bytes, needed), world_size, plural(world_size),
                         size_format(limit, granted));
    limit = config->confinement.memory_bytes - CONFINE_LIBRARIES_BYTES;
    if (config->confinement.memory_bytes > 0 && rank_bytes > limit)
        return error_set(
            error, STATUS_RESOURCE_EXHAUSTED,
            "the case needs %s on each rank, --rank-memory leaves it %s; use more ranks, make the "
            "case smaller, or start the daemon with a larger one",
            size_format(rank_bytes, needed), size_format(limit, granted));
    return STATUS_OK;
}

static enum status descriptors_check(const struct service_config *config, int world_size,
                                     struct error *error)
{
    int needed = mesh_descriptors(world_size);
    if (needed > config->descriptors_max)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "starting %d rank%s takes %d file descriptors at once, the daemon has %d "
                         "for them; raise its limit (LimitNOFILE=, ulimit -n)",
                         world_size, plural(world_size), needed, config->descriptors_max);
    return STATUS_OK;
}

// Writes the names of the providers: "mine, cudnn".
static void providers_name(const struct wire_description *d, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < d->provider_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "",
                                 d->providers[i].name);
}

static enum status provider_check(const struct service_config *config, const char *provider,
                                  struct error *error)
{
    const struct wire_description *d = &config->description;
    char names[PROVIDERS_MAX * (PROVIDER_NAME_MAX + 2)];
    for (int i = 0; i < d->provider_count; i++)
        if (strcmp(d->providers[i].name, provider) == 0)
            return STATUS_OK;
    if (!provider[0])
        return STATUS_OK;
    providers_name(d, names, sizeof(names));
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "provider is '%s'; this daemon has %s; its setting `provider` adds one",
                     provider, names[0] ? names : "none but its own kernels");
}

// Returns the number of an implementation: 0: the daemon's own; i + 1: guest i; -1: there is none
// of this name.
static int implementation_find(const struct service_config *config, const char *name)
{
    const struct guests *guests = config->guests;
    if (!name[0])
        return 0;
    for (int i = 0; i < guests->count; i++)
        if (strcmp(guests->list[i].name, name) == 0)
            return i + 1;
    return -1;
}

// Writes world sizes: "1 to 4", "1, 2, 4 or 8".
static void sizes_write(uint64_t sizes, char *text, size_t size)
{
    int last = 64 - __builtin_clzll(sizes), first = __builtin_ctzll(sizes) + 1;
    size_t used = 0;
    if (last - first + 1 == __builtin_popcountll(sizes) && last > first) {
        snprintf(text, size, "%d to %d", first, last);
        return;
    }
    for (int w = first; w <= last && used < size; w++)
        if (sizes >> (w - 1) & 1)
            used += (size_t)snprintf(text + used, size - used, "%s%d",
                                     w == first  ? ""
                                     : w == last ? " or "
                                                 : ", ",
                                     w);
}

static enum status implementation_check(const struct service_config *config,
                                        const struct job_needs *needs, struct error *error)
{
    const struct guests *guests = config->guests;
    int implementation = implementation_find(config, needs->implementation);
    char text[ERROR_TEXT_MAX / 2] = "";
    size_t used = 0;
    if (implementation == 0)
        return STATUS_OK;
    for (int i = 0; i < guests->count && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
                                 i + 1 < guests->count ? ", " : " or ", guests->list[i].name);
    if (implementation < 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "implementation is '%s'; accepted here is cpattn%s%s",
                         needs->implementation, text,
                         guests->count > 0 ? "" : ": this daemon has no guests (--guest)");
    const struct guest *guest = &guests->list[implementation - 1];
    sizes_write(guest->world_sizes, text, sizeof(text));
    if (!(guest->world_sizes >> (needs->world_size - 1) & 1))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "world_size is %d with implementation %s; accepted is %s there",
                         needs->world_size, guest->name, text);
    return STATUS_OK;
}

enum status gate_check_job(const struct service_config *config, const struct job_spec *spec,
                           struct error *error)
{
    struct job_needs needs = job_spec_needs(spec);
    enum status status = implementation_check(config, &needs, error);
    if (status == STATUS_OK)
        status = provider_check(config, needs.provider, error);
    if (status == STATUS_OK)
        status = memory_check(config, spec, needs.world_size, error);
    return status == STATUS_OK ? descriptors_check(config, needs.world_size, error) : status;
}

enum status gate_read_job(const struct wire_request *request, struct job_spec *spec,
                          struct error *error)
{
    if (request->is_job)
        return job_spec_parse(spec, &request->job, error);
    job_spec_of_case(spec, &request->run);
    return STATUS_OK;
}

struct core_request gate_core_request(const struct service_config *config,
                                      const struct wire_request *request,
                                      const struct job_spec *spec, const struct peer *peer)
{
    struct job_needs needs = job_spec_needs(spec);
    return (struct core_request){
        .id = request->id,
        .user = peer->uid,
        .implementation = implementation_find(config, needs.implementation),
        .world_size = needs.world_size,
        .nodes = needs.nodes,
        .ranks_per_node = needs.ranks_per_node,
        .timeout_ns =
            request->timeout_ns ? request->timeout_ns : config->description.timeout_default_ns,
        .run_timeout_ns = request->run_timeout_ns,
        .patience_ns = request->patience_ns,
        .cancel_on_disconnect = request->cancel_on_disconnect,
        .case_hash = job_spec_hash(spec),
        .memory = memory_of(spec, needs.world_size),
        .cost_ns = time_bounds_ns(&config->rates, needs.world_size, &needs.cost),
    };
}

enum status gate_check_tensors(const struct service_config *config, const struct job_spec *spec,
                               int64_t bytes, struct error *error)
{
    char needed[SIZE_TEXT_MAX], tensors[SIZE_TEXT_MAX], granted[SIZE_TEXT_MAX];
    int64_t rank_bytes, limit = config->confinement.memory_bytes - CONFINE_LIBRARIES_BYTES;
    if (config->host_count > 1)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "this daemon has ranks on %d hosts (setting `hosts`); tensors of a client "
                         "are available on one host only",
                         config->host_count);
    enum status status = job_spec_memory(spec, &rank_bytes, error);
    if (status != STATUS_OK || config->confinement.memory_bytes == 0 || rank_bytes + bytes <= limit)
        return status;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "the case needs %s on each rank and %s of tensors, --rank-memory leaves it "
                     "%s; make the case smaller, or start the daemon with a larger one",
                     size_format(rank_bytes, needed), size_format(bytes, tensors),
                     size_format(limit, granted));
}
