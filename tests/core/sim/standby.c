// SPDX-License-Identifier: Apache-2.0
// The promises about spares. Each pool that is up has a standby pool if the limits permit. The
// standby pool leads when the other is lost. Until then it delays no job.
#include "tests/core/sim/record.h"

// Counts ranks and pools as if every world size with a waiting job and without a pool had one pool.
static int alive_after_starts(const struct sim *s, int *pools)
{
    int alive = record_alive(s);
    *pools = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        *pools += c->up;
    for (int w = 1; w <= WORLD_SIZE_MAX; w++) {
        bool up = false;
        for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
            up = up || (c->up && !c->killed && c->world_size == w);
        if (up || record_waiting(s, w) == 0)
            continue;
        alive += w;
        ++*pools;
    }
    return alive;
}

static bool room_for_spare(const struct sim *s, int world_size)
{
    int pools;
    int alive = alive_after_starts(s, &pools);
    return pools < POOLS_MAX && alive + world_size <= s->config.ranks_max;
}

static bool spare_rests(const struct sim *s, const struct crew *leader)
{
    const struct berth *berth = &s->berths[leader->world_size][leader->instance];
    const uint64_t *rests_ns = berth->spare_rests_ns;
    uint64_t delay_ns = s->config.spare_delay_ns;
    if (berth->was_lost && leader->started_ns >= berth->lost_ns &&
        leader->started_ns < berth->lost_ns + delay_ns)
        delay_ns = 0;
    return rests_ns[0] > s->now_ns || rests_ns[1] > s->now_ns ||
           s->now_ns < leader->ready_ns + delay_ns;
}

// Devices on which a pool starts.
static uint64_t devices_of_starts(const struct sim *s)
{
    uint64_t devices = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        devices |= c->up && !c->killed && !c->is_ready ? c->devices : 0;
    return devices;
}

// Devices of pools that can be started for a waiting job whose world size has no pool.
static uint64_t devices_awaited(const struct sim *s)
{
    uint64_t devices = 0;
    for (int w = 1; w <= WORLD_SIZE_MAX; w++) {
        bool up = false;
        for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
            up = up || (c->up && !c->killed && c->world_size == w);
        if (up || record_waiting(s, w) == 0)
            continue;
        for (int i = 0; i < record_instances(s, w); i++)
            if (record_startable(s, w, i, s->now_ns) > 0 &&
                !(record_devices(s, w, i) & record_unusable(s)))
                devices |= record_devices(s, w, i);
    }
    return devices;
}

void judge_spare_start(struct sim *s, const struct action *a)
{
    const struct crew *leader = record_leader(s, a->world_size, a->instance);
    SIM_CHECK(s, s->config.spares, "a spare is started, and there are to be none");
    SIM_CHECK(s, !s->draining, "a spare is started while draining");
    SIM_CHECK(s, leader && leader->is_ready, "a spare is started for nobody");
    SIM_CHECK(s, record_crews(s, a->world_size, a->instance) == 1, "one spare too many");
    SIM_CHECK(s, !spare_rests(s, leader), "a spare is started too soon after the last");
    SIM_CHECK(s, room_for_spare(s, a->world_size), "a spare takes the room of others");
    SIM_CHECK(s, !(devices_of_starts(s) & a->devices), "a spare starts beside another pool");
    SIM_CHECK(s, s->interrupted || !(devices_awaited(s) & a->devices),
              "a spare starts before a pool for a job");
}

// True if the first job in turn is the only one that waits for this world size, and a starting
// spare that has lost its twin can run it.
static bool awaits_spare(struct sim *s, int world_size)
{
    int first = turns_first(s);
    if (first < 0 || s->jobs[first].world_size != world_size || record_waiting(s, world_size) > 1)
        return false;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        if (c->up && c->spare && !c->is_ready && !c->killed && !c->doomed &&
            c->world_size == world_size && !record_stands_by(s, c) &&
            !(c->devices & (record_leased(s) | record_unusable(s))))
            return true;
    return false;
}

void judge_leader_start(struct sim *s, const struct action *a)
{
    SIM_CHECK(s, !record_leader(s, a->world_size, a->instance), "it is up already");
    SIM_CHECK(s, !(record_leased(s) & a->devices), "START on devices that are at work");
    SIM_CHECK(s, !record_rests(&s->berths[a->world_size][a->instance], s->now_ns),
              "START during the back-off");
    SIM_CHECK(s, record_startable(s, a->world_size, a->instance, s->now_ns) > 0,
              "START of a pool that is being reaped, or rests");
    int starting = 0;
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        starting += c->up && c->world_size == a->world_size && !c->is_ready && !c->doomed &&
                    !c->killed && !c->spare && !(c->devices & record_unusable(s));
    SIM_CHECK(s, starting < record_waiting(s, a->world_size),
              "START without a job that waits for it");
    SIM_CHECK(s, s->interrupted || !awaits_spare(s, a->world_size),
              "START while a spare is about to be ready");
}

static bool room_is_needed(const struct sim *s)
{
    int alive = record_alive(s);
    for (int w = 1; w <= WORLD_SIZE_MAX; w++)
        if (alive + w > s->config.ranks_max && record_waiting(s, w) > 0)
            return true;
    return false;
}

static bool idles_out(const struct sim *s, const struct crew *crew)
{
    uint64_t timeout_ns = s->config.idle_timeout_ns;
    return timeout_ns > 0 && crew->is_ready && !crew->working &&
           s->now_ns >= crew->idle_ns + timeout_ns && record_waiting(s, crew->world_size) == 0;
}

void judge_kill_standby(struct sim *s, const struct crew *crew)
{
    const struct crew *leader = record_leader(s, crew->world_size, crew->instance);
    SIM_CHECK(s,
              crew->doomed || s->draining || s->interrupted || crew->devices & s->devices_out ||
                  room_is_needed(s) || idles_out(s, leader),
              "KILL of a spare without need");
}

// True if the crew starts for no job that still waits, and a job of another world size may need its
// devices.
static bool is_unawaited(const struct sim *s, const struct crew *crew)
{
    if (crew->is_ready || crew->spare || record_waiting(s, crew->world_size) > 0)
        return false;
    for (int w = 1; w <= WORLD_SIZE_MAX; w++)
        for (int i = 0; record_waiting(s, w) > 0 && i < record_instances(s, w); i++)
            if (record_devices(s, w, i) & crew->devices)
                return true;
    return false;
}

void judge_kill_leader(struct sim *s, const struct crew *crew)
{
    bool lost = crew->doomed || s->draining || s->interrupted || crew->devices & s->devices_out ||
                is_unawaited(s, crew);
    SIM_CHECK(s, crew->is_ready || lost, "KILL of a pool that starts as it should");
    if (!lost && !idles_out(s, crew)) {
        SIM_CHECK(s, room_is_needed(s), "KILL of a pool without need");
        for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
            SIM_CHECK(s, !record_stands_by(s, c), "KILL of an idle pool, and a spare stays");
    }
    for (struct crew *c = s->crews; c < s->crews + s->crew_count; c++) {
        if (c == crew || !c->up || c->killed || c->world_size != crew->world_size ||
            c->instance != crew->instance)
            continue;
        SIM_CHECK(s, lost, "an idle pool goes, and its spare stays");
        c->idle_ns = s->now_ns;
    }
}

// If no job waits, each pool that is up must have a spare, as far as limits and pauses permit,
// unless another pool starts on its devices.
void judge_standby_settled(struct sim *s)
{
    if (!s->config.spares || s->draining || s->queued > 0)
        return;
    uint64_t busy = record_unusable(s) | devices_of_starts(s);
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        SIM_CHECK(s,
                  !c->up || c->killed || !c->is_ready ||
                      record_crews(s, c->world_size, c->instance) > 1 || c->devices & busy ||
                      spare_rests(s, c) || !room_for_spare(s, c->world_size),
                  "pool %d has no spare", (int)(c - s->crews));
}
