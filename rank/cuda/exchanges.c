// SPDX-License-Identifier: Apache-2.0
// Opens the transports of a rank, and reserves the memory of its exchanges.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rank/cuda/choice.h"
#include "rank/cuda/engine_state.h"
#include "transport/agree.h"
#include "transport/nccl.h"
#include "transport/peer.h"

// NCCL's channels if copy engines carry the plans and NCCL only the judge's messages. Each channel
// takes time to connect.
#define NCCL_CHANNELS 4

// True if the environment demands this transport: "nccl" or "peer".
static bool wants(const char *transport)
{
    const char *wanted = getenv("CPATTN_TRANSPORT");
    return wanted && strcmp(wanted, transport) == 0;
}

// Opens the transport by copy engines if all devices are on one host and can map each other's
// memory; else leaves cuda->peer NULL.
static enum status peer_open(struct cuda *cuda, struct transport *control, struct error *error)
{
    struct error reason;
    if (control->world_size == 1 || control->far != 0 || wants("nccl"))
        return STATUS_OK;
    enum status status =
        transport_peer_create(control, cuda->comm, cuda->alone, &cuda->peer, &reason);
    if (status == STATUS_OK || status == STATUS_UNAVAILABLE)
        return STATUS_OK;
    *error = reason;
    return status;
}

static enum status nccl_open(struct cuda *cuda, struct transport *control, int channels,
                             struct error *error)
{
    return transport_nccl_create(control, cuda->comm, channels, &cuda->transport, error);
}

// With both transports open, chooses the one for plans; the same on all ranks. If it is NCCL,
// closes both and opens NCCL with all channels.
static enum status peer_choose(struct cuda *cuda, struct transport *control, struct error *error)
{
    struct choice choice = {0};
    enum status status = STATUS_OK;
    if (!wants("peer"))
        status = choice_time(control, cuda->peer, cuda->transport, cuda->comm, &choice, error);
    if (status != STATUS_OK)
        return status;
    choice_describe(&choice, cuda->base.exchange, sizeof(cuda->base.exchange));
    if (!choice_is_nccl(&choice))
        return STATUS_OK;
    status = transport_peer_free(cuda->peer, error);
    cuda->peer->ops->destroy(cuda->peer);
    cuda->peer = NULL;
    cuda->transport->ops->destroy(cuda->transport);
    cuda->transport = NULL;
    return status == STATUS_OK ? nccl_open(cuda, control, 0, error) : status;
}

// ---- the memory of exchanges --------------------------------------------------------------------

enum status cuda_exchanges_reserve(struct cuda *cuda, const struct plan *plan, struct error *error)
{
    if (cuda->peer)
        return window_set(&cuda->window, plan, error);
    return device_arena_add(&cuda->device_bytes, window_staging_bytes(plan, false), 1, error);
}

char *cuda_staging_take(struct cuda *cuda, const struct plan *plan)
{
    if (!cuda->peer)
        return device_arena_take(&cuda->arena, window_staging_bytes(plan, false), 1);
    char *window = transport_peer_window(cuda->peer);
    return window ? window + cuda->window.staging : NULL;
}

// Announces the exchanges of cuda->window. Sets how large a window this rank may keep between
// cases: the rules are those of the arena, and the minimum over the ranks applies.
static enum status windows_announce(struct cuda *cuda, bool patient, bool *lacks,
                                    struct error *error)
{
    size_t held = transport_peer_window_bytes(cuda->peer), needed = cuda->window.told.window_bytes;
    cuda->window.told.keep_bytes = held > DEVICE_ARENA_KEPT || needed > DEVICE_ARENA_KEPT
                                       ? device_arena_beside(&cuda->arena, held)
                                       : DEVICE_ARENA_KEPT;
    cuda->window.told.patient = patient;
    return transport_peer_announce(cuda->peer, &cuda->window.told, lacks, error);
}

// The arenas may hold more than this case needs. If the windows lack memory, all ranks shrink their
// arenas and try again, then with patience.
enum status cuda_windows_announce(struct cuda *cuda, struct transport *control, bool *lacks,
                                  struct error *error)
{
    struct error broken;
    bool all = false;
    enum status status = windows_announce(cuda, false, lacks, error);
    if (status != STATUS_OK || !*lacks)
        return status;
    error->text[0] = '\0';
    enum status own = device_arena_shrink(&cuda->arena, cuda->device_bytes, error);
    if (own != STATUS_OK && own != STATUS_RESOURCE_EXHAUSTED)
        return own;
    status = agree_all(control, own == STATUS_OK, &all, &broken);
    if (status != STATUS_OK)
        *error = broken;
    return status == STATUS_OK && all ? windows_announce(cuda, true, lacks, error) : status;
}

bool cuda_windows_held(const struct cuda *cuda)
{
    return cuda->peer && transport_peer_window_bytes(cuda->peer) > 0;
}

enum status cuda_windows_free(struct cuda *cuda, bool *freed, struct error *error)
{
    *freed = cuda_windows_held(cuda);
    return *freed ? transport_peer_free(cuda->peer, error) : STATUS_OK;
}

enum status cuda_exchanges_open(struct cuda *cuda, const struct engine_setup *setup,
                                struct error *error)
{
    enum status status = peer_open(cuda, setup->control, error);
    if (status == STATUS_OK)
        status = nccl_open(cuda, setup->control, cuda->peer ? NCCL_CHANNELS : 0, error);
    if (status == STATUS_OK && setup->control->world_size > 1)
        snprintf(cuda->base.exchange, sizeof(cuda->base.exchange), "NCCL");
    if (status == STATUS_OK && cuda->peer)
        status = peer_choose(cuda, setup->control, error);
    if (status == STATUS_OK)
        status = cuda_executor_create(cuda->backend, cuda->peer ? cuda->peer : cuda->transport,
                                      cuda->comm, setup->progress - setup->control->rank,
                                      &cuda->executor, error);
    return status;
}

// NCCL allocates device memory, and the pool is lost if that fails. So memory kept of earlier cases
// is freed first.
enum status cuda_library_open(struct cuda *cuda, struct transport *control, struct error *error)
{
    bool freed;
    if (cuda->library || !cuda->peer)
        return STATUS_OK;
    enum status status = cuda_windows_free(cuda, &freed, error);
    device_arena_fini(&cuda->arena);
    return status == STATUS_OK
               ? transport_nccl_create(control, cuda->comm, 0, &cuda->library, error)
               : status;
}
