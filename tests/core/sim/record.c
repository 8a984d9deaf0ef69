// SPDX-License-Identifier: Apache-2.0
// The record: the core's events, and the state that follows from them.
#include "tests/core/sim/record.h"

#define DOWN_FAILURES 10 // in halves
#define POISON_KILLS  2
#define POISON_NS     (3600 * S)

// ---- records -----------------------------------------------------------------------------------

int record_instances(const struct sim *s, int world_size)
{
    if (world_size < 1 || world_size > WORLD_SIZE_MAX)
        return 0;
    if (world_size > s->config.hosts[0].device_count)
        return world_size <= s->config.hosts[0].device_count * s->config.ranks_per_device;
    return s->config.hosts[0].device_count / world_size;
}

uint64_t record_all(int world_size)
{
    return world_size == 64 ? UINT64_MAX : (UINT64_C(1) << world_size) - 1;
}

uint64_t record_devices(const struct sim *s, int world_size, int instance)
{
    int count =
        world_size < s->config.hosts[0].device_count ? world_size : s->config.hosts[0].device_count;
    int first = count * instance;
    return first < DEVICES_MAX ? record_all(count) << first : 0;
}

static struct berth *berth_of(struct sim *s, const struct crew *crew)
{
    return &s->berths[crew->world_size][crew->instance];
}

// True if a pool without ranks may not be started yet.
bool record_rests(const struct berth *berth, uint64_t now_ns)
{
    return now_ns < berth->rests_ns;
}

// True if the crew uses its devices. A killed crew uses them until it is reaped.
bool record_leases(const struct crew *crew)
{
    return crew->up && !crew->stuck && ((!crew->is_ready && !crew->spare) || crew->working);
}

static bool crew_is(const struct crew *crew, int world_size, int instance)
{
    return crew->up && crew->world_size == world_size && crew->instance == instance;
}

struct crew *record_leader(const struct sim *s, int world_size, int instance)
{
    const struct crew *leader = NULL;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        if (crew_is(c, world_size, instance) && !c->killed &&
            (!leader || c->generation < leader->generation))
            leader = c;
    return (struct crew *)leader;
}

bool record_stands_by(const struct sim *s, const struct crew *crew)
{
    return crew->up && !crew->killed && record_leader(s, crew->world_size, crew->instance) != crew;
}

int record_crews(const struct sim *s, int world_size, int instance)
{
    int crews = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        crews += crew_is(c, world_size, instance);
    return crews;
}

int record_killed(const struct sim *s, int world_size, int instance)
{
    int killed = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        killed += crew_is(c, world_size, instance) && c->killed;
    return killed;
}

static int berth_resting_spares(const struct berth *berth, uint64_t now_ns)
{
    return (berth->spare_rests_ns[0] > now_ns) + (berth->spare_rests_ns[1] > now_ns);
}

bool record_may_start(const struct sim *s, int world_size, int instance, uint64_t now_ns)
{
    const struct berth *berth = &s->berths[world_size][instance];
    return !record_rests(berth, now_ns) &&
           berth_resting_spares(berth, now_ns) < (s->config.spares ? 2 : 1);
}

int record_startable(const struct sim *s, int world_size, int instance, uint64_t now_ns)
{
    const struct berth *berth = &s->berths[world_size][instance];
    if (record_leader(s, world_size, instance) || record_rests(berth, now_ns))
        return 0;
    return (s->config.spares ? 2 : 1) - record_killed(s, world_size, instance) -
           berth_resting_spares(berth, now_ns);
}

int record_device(const struct sim *s, const struct crew *crew, int rank)
{
    return (crew->world_size * crew->instance + rank) % s->config.hosts[0].device_count;
}

uint64_t record_devices_alive(const struct sim *s, const struct crew *crew)
{
    uint64_t devices = 0;
    for (int rank = 0; rank < crew->world_size; rank++)
        if (crew->alive >> rank & 1)
            devices |= UINT64_C(1) << record_device(s, crew, rank);
    return devices;
}

uint64_t record_unusable(const struct sim *s)
{
    return record_stuck(s) | s->devices_out;
}

uint64_t record_stuck(const struct sim *s)
{
    uint64_t devices = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        devices |= c->up && c->stuck ? record_devices_alive(s, c) : 0;
    return devices;
}

uint64_t record_leased(const struct sim *s)
{
    uint64_t leased = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        leased |= record_leases(c) ? c->devices : 0;
    return leased;
}

uint64_t record_leased_for(const struct sim *s, int world_size, int instance)
{
    uint64_t leased = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        if (record_leases(c) && !(c->killed && crew_is(c, world_size, instance)))
            leased |= c->devices;
    return leased;
}

bool record_memory_fits(const struct sim *s, const struct sim_job *job)
{
    uint64_t taken = 0;
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        const struct sim_job *other = s->by_slot[slot] >= 0 ? &s->jobs[s->by_slot[slot]] : NULL;
        taken += other && other->place == PLACE_RUNNING ? other->bytes : 0;
    }
    return s->config.memory_max == 0 || taken == 0 || taken + job->bytes <= s->config.memory_max;
}

int record_alive(const struct sim *s)
{
    int alive = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        alive += c->up && !c->stuck ? __builtin_popcountll(c->alive) : 0;
    return alive;
}

// The pool that is free first.
static uint64_t *first_free(uint64_t *free_ns, int pools)
{
    uint64_t *first = free_ns;
    for (int i = 1; i < pools; i++)
        first = free_ns[i] < *first ? &free_ns[i] : first;
    return first;
}

uint64_t record_best_begin(const struct sim *s, int world_size, uint32_t user, uint64_t *sum_ns,
                           uint64_t *longest_ns)
{
    uint64_t free_ns[DEVICES_MAX] = {0};
    int pools = record_instances(s, world_size);
    *sum_ns = *longest_ns = 0;
    for (const struct sim_job *job = s->jobs; job < s->jobs + s->job_count; job++) {
        if (job->place != PLACE_QUEUED || job->world_size != world_size || job->user != user)
            continue;
        uint64_t left_ns = job->deadline_ns > s->now_ns ? job->deadline_ns - s->now_ns : 0;
        uint64_t held_ns = job->cost_ns < left_ns ? job->cost_ns : left_ns;
        *first_free(free_ns, pools) += held_ns;
        *sum_ns += held_ns;
        *longest_ns = held_ns > *longest_ns ? held_ns : *longest_ns;
    }
    return *first_free(free_ns, pools);
}

int record_waiting(const struct sim *s, int world_size)
{
    int waiting = 0;
    for (int slot = 0; slot < s->config.queue_max; slot++)
        waiting += s->by_slot[slot] >= 0 && s->jobs[s->by_slot[slot]].place == PLACE_QUEUED &&
                   s->jobs[s->by_slot[slot]].world_size == world_size;
    return waiting;
}

// Counts the starting pools that can run a job as soon as they are ready.
int record_starting(const struct sim *s, int world_size)
{
    int starting = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        starting += c->up && !c->killed && c->world_size == world_size && !c->is_ready &&
                    !c->doomed && !record_stands_by(s, c) && !(c->devices & record_unusable(s));
    return starting;
}

bool record_down(const struct sim *s, int world_size, uint64_t *since_ns)
{
    bool any = false;
    *since_ns = 0;
    for (int i = 0; i < record_instances(s, world_size); i++) {
        const struct berth *berth = &s->berths[world_size][i];
        if (record_devices(s, world_size, i) & record_unusable(s))
            continue;
        if (berth->failures < DOWN_FAILURES)
            return false;
        any = true;
        *since_ns = *since_ns > berth->down_ns ? *since_ns : berth->down_ns;
    }
    return any;
}

bool record_down_rests(const struct sim *s, int world_size, uint64_t now_ns)
{
    uint64_t since_ns;
    if (!record_down(s, world_size, &since_ns))
        return false;
    for (int i = 0; i < record_instances(s, world_size); i++)
        if (!(record_devices(s, world_size, i) & record_unusable(s)) &&
            !record_rests(&s->berths[world_size][i], now_ns))
            return false;
    return true;
}

bool record_unserved(const struct sim *s, int world_size)
{
    uint64_t stuck = record_stuck(s);
    for (int i = 0; i < record_instances(s, world_size); i++)
        if (!(record_devices(s, world_size, i) & stuck))
            return false;
    return record_instances(s, world_size) > 0;
}

bool record_poison(const struct sim *s, uint64_t hash)
{
    return s->kills[hash] >= POISON_KILLS && s->now_ns < s->kill_ns[hash] + POISON_NS;
}

void record_kill(struct sim *s, uint64_t hash)
{
    if (s->now_ns >= s->kill_ns[hash] + POISON_NS)
        s->kills[hash] = 0;
    s->kills[hash]++;
    s->kill_ns[hash] = s->now_ns;
}

// ---- what the core hears -----------------------------------------------------------------------

// The running job must be answered and the ranks killed in this event.
static void crew_doom(struct crew *crew, enum cause cause, int rank)
{
    if (!crew->doomed)
        crew->outside =
            cause == CAUSE_RANK_EXITED && sim_kills_from_outside(crew->generation, rank);
    crew->doomed = true;
    if (crew->job >= 0 && !crew->expected) {
        crew->expected = true;
        crew->cause = cause;
        crew->rank = rank;
    }
}

void record_start_failure(struct sim *s, const struct crew *crew)
{
    struct berth *berth = berth_of(s, crew);
    int *failures = crew->spare ? &berth->spare_failures : &berth->failures;
    int weight = crew->outside ? 1 : 2;
    if (*failures == 0)
        *(crew->spare ? &berth->spare_since_ns : &berth->since_ns) = s->now_ns;
    if (!crew->spare && *failures < DOWN_FAILURES && *failures + weight >= DOWN_FAILURES)
        berth->down_ns = s->now_ns;
    *failures += weight;
}

void record_loss(struct sim *s, const struct crew *crew)
{
    struct berth *berth = berth_of(s, crew);
    if (!crew->doomed || crew->cancelled)
        return;
    berth->was_lost = true;
    berth->lost_ns = s->now_ns;
}

// The pause is an eighth of the time for which starts have failed, least_ns to 30 s.
static uint64_t pause_ns(uint64_t failing_ns, uint64_t least_ns)
{
    uint64_t pause = failing_ns / 8 < least_ns ? least_ns : failing_ns / 8;
    return pause < 30 * S ? pause : 30 * S;
}

// A spare that was lost before its first job pauses for at least a second.
static void spare_reaped(struct sim *s, struct berth *berth, const struct crew *crew, bool failed)
{
    uint64_t *rests_ns = berth->spare_rests_ns;
    if (crew->used || !crew->doomed)
        return;
    *(rests_ns[0] < rests_ns[1] ? &rests_ns[0] : &rests_ns[1]) =
        s->now_ns + pause_ns(failed ? s->now_ns - berth->spare_since_ns : 0, S);
}

static void crew_reaped(struct sim *s, struct crew *crew)
{
    struct berth *berth = berth_of(s, crew);
    bool failed = !crew->is_ready && crew->doomed;
    crew->up = false;
    s->totals->left_stuck += crew->stuck;
    if (failed && !crew->killed)
        record_start_failure(s, crew);
    if (!crew->killed)
        record_loss(s, crew);
    s->failed_size = failed ? crew->world_size : 0;
    if (crew->spare)
        spare_reaped(s, berth, crew, failed);
    else if (failed && berth->failures > 2)
        berth->rests_ns = s->now_ns + pause_ns(s->now_ns - berth->since_ns, 250 * MS);
}

static void hear_ready(struct sim *s, struct crew *crew, int rank)
{
    if (crew->ready >> rank & 1) {
        crew_doom(crew, CAUSE_RANK_FAILED, rank);
        return;
    }
    crew->ready |= UINT64_C(1) << rank;
    if (crew->ready != record_all(crew->world_size))
        return;
    crew->is_ready = true;
    crew->ready_ns = s->now_ns;
    crew->idle_ns = s->now_ns;
    berth_of(s, crew)->failures = 0;
    if (crew->spare)
        berth_of(s, crew)->spare_failures = 0;
}

static void hear_report(struct sim *s, struct crew *crew, int rank, uint64_t number)
{
    if (crew->suspect)
        return;
    if (crew->job < 0 || s->jobs[crew->job].number != number || crew->reported >> rank & 1) {
        crew_doom(crew, CAUSE_RANK_FAILED, rank);
        return;
    }
    crew->reported |= UINT64_C(1) << rank;
    if (crew->reported == record_all(crew->world_size)) {
        crew->expected = true;
        crew->cause = CAUSE_NONE;
        crew->rank = -1;
    }
}

static void hear_peer_lost(struct sim *s, struct crew *crew, int rank, int peer)
{
    if (peer == rank || crew->job < 0) {
        crew_doom(crew, CAUSE_RANK_FAILED, rank);
        return;
    }
    if (!crew->suspect) {
        crew->suspect = true;
        crew->suspect_ns = s->now_ns;
        crew->victims = crew->accused = 0;
    }
    crew->victims |= UINT64_C(1) << rank;
    crew->accused |= UINT64_C(1) << peer;
}

static bool is_victim(const struct crew *crew, int rank)
{
    return crew->suspect && crew->victims >> rank & 1;
}

static void hear_exit(struct sim *s, struct crew *crew, int rank)
{
    crew->alive &= ~(UINT64_C(1) << rank);
    if (!crew->killed && !is_victim(crew, rank))
        crew_doom(crew, CAUSE_RANK_EXITED, rank);
    else if (!crew->killed && !crew->alive)
        crew_doom(crew, CAUSE_PEER_LOST, -1);
    if (!crew->alive)
        crew_reaped(s, crew);
}

static void hear_start_failed(struct sim *s, struct crew *crew)
{
    crew->alive = 0;
    if (!crew->killed)
        crew_doom(crew, CAUSE_NONE, -1);
    crew_reaped(s, crew);
}

static void hear(struct sim *s, struct crew *crew, const struct news *n)
{
    bool counts = !crew->killed && !is_victim(crew, n->rank);
    if (n->kind == NEWS_EXIT)
        hear_exit(s, crew, n->rank);
    else if (n->kind == NEWS_ENDING && counts)
        crew_doom(crew, CAUSE_RANK_EXITED, n->rank);
    else if (n->kind == NEWS_START_FAILED)
        hear_start_failed(s, crew);
    else if (n->kind == NEWS_PEER_LOST && !crew->killed && n->peer != n->rank)
        hear_peer_lost(s, crew, n->rank, n->peer);
    else if (!counts)
        return;
    else if (n->kind == NEWS_READY)
        hear_ready(s, crew, n->rank);
    else if (n->kind == NEWS_REPORT)
        hear_report(s, crew, n->rank, n->job);
    else
        crew_doom(crew, CAUSE_RANK_FAILED, n->rank);
}

void record_news(struct sim *s, const struct news *n)
{
    s->current = *n;
    s->failed_size = 0;
    turns_charge(s);
    SIM_CHECK(s, !s->exited || n->slot < 0 || n->stale || s->crews[n->slot].stuck,
              "the core left ranks behind");
    if (n->slot >= 0 && !n->stale)
        hear(s, &s->crews[n->slot], n);
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        struct sim_job *job = s->by_slot[slot] >= 0 ? &s->jobs[s->by_slot[slot]] : NULL;
        if (!job)
            continue;
        job->ended = n->kind == NEWS_CANCEL && n->subject >= 0 && s->jobs[n->subject].id == job->id;
    }
    s->draining = s->draining || n->kind == NEWS_DRAIN;
}
