// SPDX-License-Identifier: Apache-2.0
// Turns of users: the user with the least used device time is first. Among jobs of one user, or of
// users with the same used time, the oldest job is first. The first job may wait although devices
// are idle. It then stays first while a pool for it is possible.
#include "tests/core/sim/record.h"

static uint64_t window_ns(const struct sim *s)
{
    return 60 * S * (uint64_t)s->config.hosts[0].device_count;
}

// Computed from the seed.
void turns_draw_limits(struct sim *s)
{
    if (s->seed / 1024 % 4 == 1)
        s->user_limits.running_max = 1 + (int)(s->seed / 4096 % 3);
    if (s->seed / 1024 % 4 > 1)
        s->user_limits = (struct user_limits){.running_max = s->seed / 1024 % 4 == 3 ? 2 : 0,
                                              .time_ns = 50 * MS + s->seed % 7 * 30 * MS,
                                              .window_ns = 200 * MS};
}

static int user_queued(const struct sim *s, uint32_t user)
{
    int queued = 0;
    for (int slot = 0; slot < s->config.queue_max; slot++)
        queued += s->by_slot[slot] >= 0 && s->jobs[s->by_slot[slot]].place == PLACE_QUEUED &&
                  s->jobs[s->by_slot[slot]].user == user;
    return queued;
}

static int user_running(const struct sim *s, uint32_t user)
{
    int running = 0;
    for (int slot = 0; slot < s->config.queue_max; slot++)
        running += s->by_slot[slot] >= 0 && s->jobs[s->by_slot[slot]].place == PLACE_RUNNING &&
                   s->jobs[s->by_slot[slot]].user == user;
    return running;
}

uint64_t turns_wait_ns(const struct sim *s, uint32_t user)
{
    uint64_t full_ns = s->charged_ns + s->config.user.window_ns,
             lapsed_ns = s->users[user].lapsed_ns;
    return s->config.user.time_ns > 0 && lapsed_ns >= full_ns ? lapsed_ns - full_ns + 1 : 0;
}

bool turns_may_run(const struct sim *s, uint32_t user)
{
    int most = s->config.user.running_max;
    return (most == 0 || user_running(s, user) < most) && turns_wait_ns(s, user) == 0;
}

// Used device time lapses at the average rate that the limit permits.
static void lapse_later(const struct sim *s, struct sim_user *user, uint64_t device_ns)
{
    const struct user_limits *limits = &s->config.user;
    if (limits->time_ns == 0)
        return;
    uint64_t since_ns = user->lapsed_ns > s->now_ns ? user->lapsed_ns : s->now_ns;
    user->lapsed_ns =
        since_ns + (uint64_t)((__uint128_t)device_ns * limits->window_ns / limits->time_ns);
}

static bool keeps(const struct sim *s, int job)
{
    return job == s->kept && s->jobs[job].place == PLACE_QUEUED;
}

// True if a pool of the world size was possible before this event.
static bool is_served(const struct sim *s, int world_size)
{
    for (int i = 0; i < record_instances(s, world_size); i++)
        if (!(record_devices(s, world_size, i) & record_unusable(s)) &&
            (record_leader(s, world_size, i) || record_may_start(s, world_size, i, s->charged_ns)))
            return true;
    return false;
}

static int first_of(const struct sim *s, bool served)
{
    int first = -1;
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        int job = s->by_slot[slot];
        if (job >= 0 && s->jobs[job].place == PLACE_QUEUED && turns_may_run(s, s->jobs[job].user) &&
            (!served || is_served(s, s->jobs[job].world_size)) &&
            (first < 0 || turns_before(s, job, first)))
            first = job;
    }
    return first;
}

int turns_first(const struct sim *s)
{
    return first_of(s, false);
}

// If devices are idle, the first job with a possible pool keeps its turn.
static void turns_keep(struct sim *s)
{
    uint64_t all = record_all(s->config.hosts[0].device_count);
    if (s->kept >= 0 && (!keeps(s, s->kept) || !is_served(s, s->jobs[s->kept].world_size))) {
        s->totals->unpinned += keeps(s, s->kept);
        s->kept = -1;
    }
    if (s->kept < 0 && (record_leased(s) | record_unusable(s)) != all)
        s->kept = first_of(s, true);
}

void turns_charge(struct sim *s)
{
    uint64_t elapsed_ns = s->now_ns - s->charged_ns;
    if (elapsed_ns == 0)
        return;
    turns_keep(s);
    s->charged_ns = s->now_ns;
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        const struct sim_job *job = s->by_slot[slot] >= 0 ? &s->jobs[s->by_slot[slot]] : NULL;
        if (!job || job->place != PLACE_RUNNING)
            continue;
        uint64_t devices = (uint64_t)__builtin_popcountll(s->crews[job->crew].devices);
        uint64_t *used_ns = &s->users[job->user].used_ns;
        *used_ns += elapsed_ns * devices;
        lapse_later(s, &s->users[job->user], elapsed_ns * devices);
        if (*used_ns > s->level_ns + window_ns(s))
            *used_ns = s->level_ns + window_ns(s);
    }
}

void turns_admitted(struct sim *s, uint32_t user)
{
    struct sim_user *u = &s->users[user];
    if (user_queued(s, user) > 0)
        return;
    u->waited_ns = s->now_ns;
    if (u->used_ns < s->level_ns)
        u->used_ns = s->level_ns;
}

void turns_run(struct sim *s, const struct sim_job *job)
{
    struct sim_user *u = &s->users[job->user];
    if (u->used_ns + window_ns(s) < s->level_ns)
        u->used_ns = s->level_ns - window_ns(s);
    if (s->level_ns < u->used_ns)
        s->level_ns = u->used_ns;
    u->waited_ns = s->now_ns;
    s->totals->held += s->config.user.running_max > 0 &&
                       user_running(s, job->user) + 1 == s->config.user.running_max;
}

bool turns_before(const struct sim *s, int job, int other)
{
    uint64_t mine_ns = s->users[s->jobs[job].user].used_ns;
    uint64_t theirs_ns = s->users[s->jobs[other].user].used_ns;
    if (job == other || keeps(s, job) || keeps(s, other))
        return job != other && keeps(s, job);
    return mine_ns != theirs_ns ? mine_ns < theirs_ns : job < other;
}

// In a calm world each user has at most four turns before a waiting job.
static uint64_t turn_wait_ns_max(const struct sim *s)
{
    const struct habits *h = &s->habits;
    return 4 * SIM_USERS * (h->run_ns_max + h->start_ns_max + h->kill_ns_max);
}

void judge_turns_settled(struct sim *s)
{
    for (uint32_t user = 0; user < SIM_USERS; user++) {
        uint64_t wait_ns = turns_wait_ns(s, user);
        SIM_CHECK(s,
                  wait_ns == 0 || user_queued(s, user) == 0 ||
                      core_next_time(s->core) <= s->now_ns + wait_ns,
                  "nobody will wake for user %u", user);
        SIM_CHECK(s,
                  !s->habits.calm || user_queued(s, user) == 0 ||
                      s->now_ns - s->users[user].waited_ns <= turn_wait_ns_max(s),
                  "user %u has waited %.0f ms for a turn", user,
                  (double)(s->now_ns - s->users[user].waited_ns) / 1e6);
    }
}
