// SPDX-License-Identifier: Apache-2.0
// The promises about stuck ranks. They block only their own devices. Jobs that need these devices
// are answered at once.
#include "tests/core/sim/record.h"

void judge_stuck(struct sim *s, const struct action *a)
{
    SIM_CHECK(s, a->pool >= 0 && a->pool < POOLS_MAX, "STUCK for pool %d", a->pool);
    struct crew *crew = &s->crews[a->pool];
    SIM_CHECK(s, crew->up && crew->generation == a->generation && crew->killed,
              "STUCK for generation %u of pool %d, which is not being reaped", a->generation,
              a->pool);
    SIM_CHECK(s, !crew->stuck && s->now_ns >= crew->killed_ns + s->config.kill_timeout_ns,
              "STUCK for pool %d too early, or twice", a->pool);
    SIM_CHECK(s, a->devices == record_devices_alive(s, crew), "STUCK on devices %#llx",
              (unsigned long long)a->devices);
    SIM_CHECK(s, a->rank == __builtin_ctzll(crew->alive), "STUCK because of rank %d", a->rank);
    crew->stuck = true;
    s->totals->stuck++;
}

// The rank must be of this killed pool, not reaped, and on this device.
static void blame(struct sim *s, int pool, uint32_t generation, int rank, int device)
{
    SIM_CHECK(s, pool >= 0 && pool < POOLS_MAX, "pool %d is blamed", pool);
    const struct crew *crew = &s->crews[pool];
    SIM_CHECK(s, crew->up && crew->killed && crew->generation == generation,
              "generation %u of pool %d is blamed, which is not stuck", generation, pool);
    SIM_CHECK(s, rank >= 0 && rank < crew->world_size && crew->alive >> rank & 1,
              "rank %d is blamed, which is reaped", rank);
    SIM_CHECK(s, device == record_device(s, crew, rank), "rank %d is said to sit on %d", rank,
              device);
}

static bool device_is_wanted(const struct sim *s, int world_size, int device)
{
    for (int i = 0; i < record_instances(s, world_size); i++)
        if (record_devices(s, world_size, i) >> device & 1)
            return true;
    return false;
}

void judge_answer_stuck(struct sim *s, const struct sim_job *job, const struct action *a)
{
    SIM_CHECK(s, a->devices && !(a->devices & (a->devices - 1)), "STUCK on devices %#llx",
              (unsigned long long)a->devices);
    int device = __builtin_ctzll(a->devices);
    blame(s, a->pool, a->generation, a->rank, device);
    SIM_CHECK(s, s->crews[a->pool].stuck && device_is_wanted(s, job->world_size, device),
              "pool %d is blamed", a->pool);
}

void judge_refused_stuck(struct sim *s, int world_size)
{
    struct core_stuck stuck = {.pool = -1};
    SIM_CHECK(s, core_is_stuck(s->core, &(struct core_request){.world_size = world_size}, &stuck),
              "refused, and nobody is to blame");
    blame(s, stuck.pool, stuck.generation, stuck.rank, stuck.device);
    SIM_CHECK(s, device_is_wanted(s, world_size, stuck.device), "device %d is blamed",
              stuck.device);
}

void judge_stuck_settled(struct sim *s)
{
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        SIM_CHECK(s,
                  !c->up || !c->killed || c->stuck ||
                      s->now_ns < c->killed_ns + s->config.kill_timeout_ns,
                  "pool %d is stuck, and nobody says so", (int)(c - s->crews));
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        const struct sim_job *job = s->by_slot[slot] >= 0 ? &s->jobs[s->by_slot[slot]] : NULL;
        SIM_CHECK(s, !job || job->place != PLACE_QUEUED || !record_unserved(s, job->world_size),
                  "slot %d waits for pools that cannot be had", slot);
    }
}
