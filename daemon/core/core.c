// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/core.h"

#include <assert.h>

#include "common/plural.h"
#include "daemon/core/deadline.h"
#include "daemon/core/failures.h"
#include "daemon/core/hosts.h"
#include "daemon/core/job.h"
#include "daemon/core/pool.h"
#include "daemon/core/pool_view.h"
#include "daemon/core/settle.h"
#include "daemon/core/state.h"
#include "daemon/core/stuck.h"
#include "daemon/core/twin.h"

#define NS_PER_S UINT64_C(1000000000)

// ---- events of clients ----------------------------------------------------------------------

// A request with a known id: a repetition, or a conflict.
static enum status core_admit_again(const struct core_request *request, enum ids_state state,
                                    const struct ids_claim *claim, int index,
                                    struct admission *admission, struct error *error)
{
    if (claim->user != request->user || claim->case_hash != request->case_hash)
        return error_set(error, STATUS_ALREADY_EXISTS,
                         "this request id is that of another %s; a new request needs a new id",
                         claim->user != request->user ? "user's request" : "case");
    admission->kind = state == IDS_LIVING ? ADMISSION_ATTACHED : ADMISSION_ANSWERED;
    admission->index = index;
    return STATUS_OK;
}

// Refuses a world size whose ranks do not fit on the devices of the only host.
static enum status core_refuse_size(const struct core *core, int world_size, struct error *error)
{
    int devices = core->device_count, each = core->config.ranks_per_device;
    if (each > 1)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "world_size: %d ranks do not fit on %d device%s with at most %d ranks on "
                         "each",
                         world_size, devices, plural(devices), each);
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "world_size: %d ranks need as many devices, and the daemon has %d; its "
                     "setting ranks-per-gpu lets ranks share them",
                     world_size, devices);
}

// Refuses a placement that is impossible with the hosts and devices of this daemon.
static enum status core_refuse_hosts(const struct core *core, const struct core_request *request,
                                     struct error *error)
{
    int w = request->world_size, nodes = request->nodes, ranks = request->ranks_per_node;
    if (nodes < 0 || nodes > HOSTS_MAX || (nodes > 0 && w % nodes != 0))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "nodes: %d does not divide the %d ranks evenly", nodes, w);
    if (ranks < 0 || ranks > w || (ranks > 0 && w % ranks != 0) ||
        (ranks > 0 && nodes > 0 && ranks * nodes != w))
        return error_set(
            error, STATUS_INVALID_ARGUMENT,
            "ranks_per_node: %d does not fit world_size %d and nodes %d; accepted is 0 or "
            "world_size / nodes, and any divisor of world_size if nodes is 0",
            ranks, w, nodes);
    const struct size *size = hosts_size(core, request);
    if (size && size->pool_count > 0)
        return STATUS_OK;
    if (core->config.host_count == 1 && nodes <= 1 && (ranks == 0 || ranks == w))
        return core_refuse_size(core, w, error);
    if (request->implementation > 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "world_size: %d ranks of a guest with nodes %d do not fit on %s, and the "
                         "programs of guests run on no other host; accepted is nodes 0 or 1, and "
                         "at most as many ranks as it has devices",
                         w, nodes, core->config.hosts[0].name);
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "world_size: %d cannot be spread evenly with nodes %d and ranks_per_node %d "
                     "(0: any) over the %d host%s with %d device%s of this daemon; cpattn-submit "
                     "status lists them",
                     w, nodes, ranks, core->config.host_count, plural(core->config.host_count),
                     core->device_count, plural(core->device_count));
}

static enum status core_refuse_case(const struct core *core, const struct core_request *request,
                                    struct error *error)
{
    int w = request->world_size;
    if (w < 1 || w > WORLD_SIZE_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "world_size: %d is not in 1..%d", w,
                         WORLD_SIZE_MAX);
    if (request->timeout_ns == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "timeout: must be more than 0");
    if (core->config.timeout_max_ns > 0 && request->timeout_ns > core->config.timeout_max_ns)
        return deadline_refuse_long(request, core->config.timeout_max_ns, error);
    int guest = request->implementation - 1;
    assert(guest < core->config.guest_count);
    if (guest >= 0 && !(core->config.guests[guest].world_sizes & bit_of(w - 1)))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "world_size: the guest does not take %d rank%s", w, plural(w));
    enum status status = core_refuse_hosts(core, request, error);
    if (status != STATUS_OK)
        return status;
    uint64_t left_ns = poison_left_ns(&core->poison, core->now_ns, request->case_hash);
    if (left_ns > 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "POISON: this case has killed %d pools in a row; it is refused for "
                         "another %d s, or until an administrator runs cpattn-submit unpoison",
                         POISON_KILLS, (int)((left_ns + NS_PER_S - 1) / NS_PER_S));
    return deadline_check_job(core, request, error);
}

// If all pools have been DOWN for at least patience_ns and none is starting: returns the time of
// the next start of one of them. Else TIMERS_NEVER.
static uint64_t core_next_try_ns(const struct core *core, const struct size *size,
                                 uint64_t patience_ns)
{
    uint64_t next_ns = TIMERS_NEVER, down_ns = failures_down_ns(core, size);
    if (down_ns == TIMERS_NEVER || core->now_ns - down_ns < patience_ns)
        return TIMERS_NEVER;
    for (const struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++) {
        uint64_t at_ns = core->timers.at_ns[core->config.queue_max + pool->index];
        if (devices_meet(&core->unusable, &pool->place))
            continue;
        if (!twin_rests(pool))
            return TIMERS_NEVER;
        if (pool->mode == MODE_BACKOFF && !pool->as_spare && at_ns < next_ns)
            next_ns = at_ns;
    }
    return next_ns;
}

static enum status core_refuse_down(const struct core *core, const struct size *size,
                                    uint64_t next_ns, struct error *error)
{
    uint64_t left_ns = next_ns > core->now_ns ? next_ns - core->now_ns : 0;
    struct error loss;
    pool_loss_text(core, failures_culprit(size), &loss);
    return error_set(error, STATUS_UNAVAILABLE,
                     "the pool of world size %d is DOWN after %d failed starts in a row (%s); it "
                     "is tried again in %d s",
                     size->world_size, FAILURES_MAX, loss.text,
                     (int)((left_ns + NS_PER_S - 1) / NS_PER_S));
}

static enum status core_refuse_stuck(const struct core *core, int world_size,
                                     const struct core_stuck *stuck, struct error *error)
{
    const struct pool *pool = core->crews[stuck->pool];
    return error_set(error, STATUS_UNAVAILABLE,
                     "no pool of %d rank%s is available: rank %d of a pool of %d rank%s was "
                     "killed and does not end, so device %d is out of use",
                     world_size, plural(world_size), stuck->rank, pool->world_size,
                     plural(pool->world_size), stuck->device);
}

// True if every pool of the size needs an unusable device, and at least one of these devices was
// taken out of use by an administrator or is on a lost host.
static bool size_is_out(const struct core *core, const struct size *size)
{
    return !hosts_can_serve(core, size) &&
           (core->hosts_lost || devices_any(&core->devices_out, core->config.host_count));
}

static enum status core_refuse_load(const struct core *core, const struct core_request *request,
                                    struct error *error)
{
    const struct size *size = hosts_size(core, request);
    struct core_stuck stuck;
    if (core->draining)
        return error_set(error, STATUS_UNAVAILABLE,
                         "the daemon is draining and takes no new requests");
    uint64_t next_try_ns = core_next_try_ns(core, size, request->patience_ns);
    if (next_try_ns != TIMERS_NEVER)
        return core_refuse_down(core, size, next_try_ns, error);
    if (core_is_stuck(core, request, &stuck))
        return core_refuse_stuck(core, request->world_size, &stuck, error);
    if (size_is_out(core, size) && hosts_missing(core, size))
        return error_set(
            error, STATUS_UNAVAILABLE,
            "no pool of %d rank%s is available: host %s is lost, and is used again when "
            "its agent is back",
            size->world_size, plural(size->world_size), hosts_missing(core, size));
    if (size_is_out(core, size))
        return error_set(error, STATUS_UNAVAILABLE,
                         "no pool of %d rank%s is available: an administrator has taken "
                         "devices out of use (cpattn-submit enable uses them again)",
                         size->world_size, plural(size->world_size));
    if (list_empty(&core->jobs_free))
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "the queue is full: at most %d request%s may wait or run (queue-max)",
                         core->config.queue_max, plural(core->config.queue_max));
    if (users_jobs(&core->users, request->user) >= core->config.user_queue_max)
        return error_set(
            error, STATUS_RESOURCE_EXHAUSTED,
            "the limit is %d request%s of one user, waiting or running (user-queue-max)",
            core->config.user_queue_max, plural(core->config.user_queue_max));
    return STATUS_OK;
}

static enum status core_admit_new(struct core *core, const struct core_request *request,
                                  struct admission *admission, struct error *error)
{
    enum status status = core_refuse_case(core, request, error);
    if (status == STATUS_OK)
        status = core_refuse_load(core, request, error);
    if (status == STATUS_OK)
        status = deadline_check_share(core, request, error);
    if (status == STATUS_OK)
        status = deadline_check_queue(core, request, error);
    if (status == STATUS_OK)
        *admission = (struct admission){ADMISSION_NEW, job_admit(core, request)->slot};
    return status;
}

enum status core_submit(struct core *core, uint64_t now_ns, const struct core_request *request,
                        struct admission *admission, struct error *error)
{
    const struct ids_claim *claim;
    int index;
    // The service must take an ANSWER before its slot is used again.
    assert(core->actions.count == 0);
    settle_begin(core, now_ns);
    assert(request->cost_ns <= CORE_COST_MAX_NS && request->memory <= CORE_MEMORY_MAX);
    enum ids_state known = ids_find(&core->ids, &request->id, &index, &claim);
    enum status status = known == IDS_UNKNOWN
                             ? core_admit_new(core, request, admission, error)
                             : core_admit_again(request, known, claim, index, admission, error);
    core->refused += status != STATUS_OK;
    settle_end(core);
    return status;
}

bool core_knows(const struct core *core, const struct request_id *id)
{
    const struct ids_claim *claim;
    int index;
    return ids_find(&core->ids, id, &index, &claim) != IDS_UNKNOWN;
}

bool core_is_poison(const struct core *core, uint64_t case_hash)
{
    return poison_left_ns(&core->poison, core->now_ns, case_hash) > 0;
}

bool core_is_stuck(const struct core *core, const struct core_request *request,
                   struct core_stuck *stuck)
{
    const struct size *size = hosts_size(core, request);
    return !core->draining && size && stuck_find(core, size, stuck);
}

enum status core_cancel(struct core *core, uint64_t now_ns, const struct request_id *id,
                        uint32_t user, struct error *error)
{
    settle_begin(core, now_ns);
    const struct ids_claim *claim;
    enum status status = STATUS_OK;
    int slot;
    enum ids_state known = ids_find(&core->ids, id, &slot, &claim);
    if (known == IDS_ANSWERED)
        status = error_set(error, STATUS_NOT_FOUND, "this request has been answered already");
    else if (known == IDS_UNKNOWN)
        status = error_set(error, STATUS_NOT_FOUND, "there is no request with this id");
    else if (user != CORE_ANY_USER && user != claim->user)
        status = error_set(error, STATUS_PERMISSION_DENIED, "this request is another user's");
    else
        pool_end_job(core, &core->jobs[slot], JOB_CANCEL);
    settle_end(core);
    return status;
}

void core_abandon(struct core *core, uint64_t now_ns, const int *slots, int count)
{
    settle_begin(core, now_ns);
    for (int i = 0; i < count; i++) {
        assert(slots[i] >= 0 && slots[i] < core->config.queue_max);
        pool_end_job(core, &core->jobs[slots[i]], JOB_ABANDON);
    }
    settle_end(core);
}

// ---- events of ranks ------------------------------------------------------------------------

// False for an event of a reaped rank or of a rank on a lost host, which the core ignores.
static bool core_rank_lives(const struct core *core, const struct pool *pool,
                            const struct pool_event *event)
{
    assert(event->rank < pool->world_size);
    if (event->rank >= 0 && core->hosts_lost & bit_of(hosts_seat(core, pool, event->rank).host))
        return false;
    bool alive = event->rank < 0 || pool->alive & bit_of(event->rank);
    assert(alive || event->kind != POOL_EXITED);
    return alive;
}

// Passes an event to the pool if its generation is the current one.
static void core_hear(struct core *core, uint64_t now_ns, int crew, uint32_t generation,
                      const struct pool_event *event)
{
    settle_begin(core, now_ns);
    assert(crew >= 0 && crew < POOLS_MAX);
    struct pool *pool = core->crews[crew];
    if (pool && pool->generation == generation && core_rank_lives(core, pool, event))
        pool_handle(core, pool, event);
    settle_end(core);
}

void core_rank_ready(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank)
{
    core_hear(core, now_ns, pool, generation,
              &(struct pool_event){.kind = POOL_READY, .rank = rank});
}

void core_rank_reported(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                        uint64_t job)
{
    core_hear(core, now_ns, pool, generation,
              &(struct pool_event){.kind = POOL_REPORTED, .rank = rank, .number = job});
}

// True if the failure is the loss of another rank. A rank that names an impossible peer has failed
// itself.
static bool core_blames_peer(const struct core *core, int crew, int rank, int kind, int peer)
{
    const struct pool *pool = crew >= 0 && crew < POOLS_MAX ? core->crews[crew] : NULL;
    return kind == FAILURE_PEER_LOST && pool && peer >= 0 && peer < pool->world_size &&
           peer != rank;
}

void core_rank_failed(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                      int kind, int peer)
{
    struct pool_event event = {.kind = POOL_FAILED, .rank = rank, .peer = peer};
    if (core_blames_peer(core, pool, rank, kind, peer))
        event.kind = POOL_PEER_LOST;
    core_hear(core, now_ns, pool, generation, &event);
}

void core_rank_ending(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                      const struct rank_end *end)
{
    core_hear(core, now_ns, pool, generation,
              &(struct pool_event){.kind = POOL_ENDING, .rank = rank, .end = *end});
}

void core_rank_exited(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                      const struct rank_end *end)
{
    core_hear(core, now_ns, pool, generation,
              &(struct pool_event){.kind = POOL_EXITED, .rank = rank, .end = *end});
}

void core_start_failed(struct core *core, uint64_t now_ns, int pool, uint32_t generation)
{
    const struct pool *p = pool >= 0 && pool < POOLS_MAX ? core->crews[pool] : NULL;
    uint64_t ranks = p ? p->alive : 0;
    if (ranks)
        core_hear(core, now_ns, pool, generation,
                  &(struct pool_event){.kind = POOL_GONE, .rank = -1, .ranks = ranks});
}

void core_start_failed_on(struct core *core, uint64_t now_ns, int pool, uint32_t generation,
                          int host)
{
    const struct pool *p = pool >= 0 && pool < POOLS_MAX ? core->crews[pool] : NULL;
    bool there = p && p->place.hosts & bit_of(host);
    uint64_t ranks = there ? p->alive & hosts_ranks_on(p, host) : 0;
    if (ranks)
        core_hear(core, now_ns, pool, generation,
                  &(struct pool_event){.kind = POOL_GONE, .rank = -1, .ranks = ranks});
}

// ---- events of hosts and administrators ----------------------------------------------------

static void pool_lose_host(struct core *core, struct pool *pool, int host)
{
    pool_handle(core, pool,
                &(struct pool_event){.kind = POOL_HOST_LOST,
                                     .rank = -1,
                                     .host = host,
                                     .ranks = pool->alive & hosts_ranks_on(pool, host)});
}

void core_host_lost(struct core *core, uint64_t now_ns, int host)
{
    assert(host >= 0 && host < core->config.host_count);
    settle_begin(core, now_ns);
    bool news = !(core->hosts_lost & bit_of(host));
    core->hosts_lost |= bit_of(host);
    hosts_count_unusable(core);
    for (int crew = 0; news && crew < POOLS_MAX; crew++) {
        struct pool *pool = core->crews[crew];
        if (pool && pool->place.hosts & bit_of(host))
            pool_lose_host(core, pool, host);
    }
    settle_end(core);
}

void core_host_back(struct core *core, uint64_t now_ns, int host)
{
    assert(core_host_is_lost(core, host));
    settle_begin(core, now_ns);
    core->hosts_lost &= ~bit_of(host);
    hosts_count_unusable(core);
    settle_end(core);
}

bool core_host_is_lost(const struct core *core, int host)
{
    assert(host >= 0 && host < core->config.host_count);
    return core->hosts_lost & bit_of(host);
}

const char *core_host_name(const struct core *core, int host)
{
    assert(host >= 0 && host < core->config.host_count);
    return core->config.hosts[host].name;
}

void core_limit(struct core *core, uint64_t now_ns, const struct core_limits *limits)
{
    settle_begin(core, now_ns);
    core_share(core, limits->user_queue_max);
    core->config.idle_timeout_ns = limits->idle_timeout_ns;
    core->config.timeout_max_ns = limits->timeout_max_ns;
    core->config.memory_max = limits->memory_max;
    core->users.limits = limits->user;
    LIST_FOREACH (node, &core->modes[MODE_IDLE])
        pool_restart_idle_timer(core, pool_entry(node));
    settle_end(core);
}

void core_set_devices_out(struct core *core, uint64_t now_ns, int host, uint64_t devices)
{
    settle_begin(core, now_ns);
    assert(host >= 0 && host < core->config.host_count);
    assert(!(devices & ~core->devices_all.on[host]));
    core->devices_out.on[host] = devices;
    hosts_count_unusable(core);
    settle_end(core);
}

uint64_t core_devices_out(const struct core *core, int host)
{
    return core->devices_out.on[host];
}

const char *core_obstacle(const struct core *core)
{
    if (core->draining)
        return "draining";
    for (int host = 0; host < core->config.host_count; host++)
        if (core->devices_all.on[host] & ~core->unusable.on[host])
            return NULL;
    return "no device is in use";
}

int core_unpoison(struct core *core, uint64_t now_ns)
{
    settle_begin(core, now_ns);
    int lifted = poison_lift(&core->poison, core->now_ns);
    settle_end(core);
    return lifted;
}

void core_drain(struct core *core, uint64_t now_ns)
{
    settle_begin(core, now_ns);
    core->draining = true;
    LIST_FOREACH (node, &core->sizes_waiting)
        failures_refuse_waiting(core, size_entry(node));
    settle_end(core);
}

void core_time(struct core *core, uint64_t now_ns)
{
    settle_begin(core, now_ns);
    settle_end(core);
}

// ---- actions and views ----------------------------------------------------------------------

bool core_next_action(struct core *core, struct action *action)
{
    return actions_pop(&core->actions, action);
}

uint64_t core_next_time(const struct core *core)
{
    return timers_next_ns(&core->timers);
}

struct core_seat core_seat(const struct core *core, int pool, int rank)
{
    assert(pool >= 0 && pool < POOLS_MAX && core->crews[pool]);
    assert(rank >= 0 && rank < core->crews[pool]->world_size);
    return hosts_seat(core, core->crews[pool], rank);
}
