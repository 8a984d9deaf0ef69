// SPDX-License-Identifier: Apache-2.0
// Orders of an administrator, and other settings.
#include "tests/core/sim/record.h"

void orders_draw_limits(struct sim *s)
{
    struct core_config *config = &s->config;
    config->user_queue_max = sim_chance(s, 500) ? 0 : 1 + sim_draw(s, config->queue_max);
    config->idle_timeout_ns = sim_chance(s, 500) ? 0 : 1 + sim_draw_ns(s, 500 * MS);
}

// The settings change.
void orders_limit(struct sim *s)
{
    orders_draw_limits(s);
    bool lifted = s->config.user.running_max > 0 || s->config.user.time_ns > 0;
    const struct user_limits none = {0};
    s->config.user = lifted ? none : s->user_limits;
    const struct core_limits limits = {
        .user_queue_max = s->config.user_queue_max,
        .idle_timeout_ns = s->config.idle_timeout_ns,
        .user = s->config.user,
        .timeout_max_ns = s->config.timeout_max_ns,
        .memory_max = s->config.memory_max,
    };
    core_limit(s->core, s->now_ns, &limits);
    s->totals->limited++;
    for (struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        c->idle_ns = s->now_ns;
    if (!s->quiet)
        sim_post(s, sim_draw_ns(s, S), NEWS_LIMIT);
}

// Computed from the seed. A draw would change all other lives.
void orders_begin(struct sim *s)
{
    if (s->habits.calm)
        return;
    if (s->seed / 8 % 4 == 3)
        sim_post(s, s->seed % 97 * 5 * MS, NEWS_DEVICE);
    if (s->seed / 32 % 4 == 3)
        sim_post(s, s->seed % 89 * 10 * MS, NEWS_UNPOISON);
}

void orders_device(struct sim *s)
{
    uint64_t turned = UINT64_C(1) << (s->now_ns / MS % (uint64_t)s->config.hosts[0].device_count);
    s->devices_out = s->quiet ? 0 : s->devices_out ^ turned;
    core_set_devices_out(s->core, s->now_ns, 0, s->devices_out);
    SIM_CHECK(s, core_devices_out(s->core, 0) == s->devices_out, "other devices are out of use");
    if (!s->quiet || s->devices_out)
        sim_post(s, 20 * MS + s->seed % 31 * 7 * MS, NEWS_DEVICE);
}

void orders_unpoison(struct sim *s)
{
    int lifted = 0;
    for (uint64_t hash = 0; hash < SIM_HASH_MAX; hash++) {
        lifted += record_poison(s, hash);
        s->kills[hash] = 0;
    }
    int told = core_unpoison(s->core, s->now_ns);
    SIM_CHECK(s, told == lifted, "%d cases may run again instead of %d", told, lifted);
    s->totals->lifted += (uint64_t)lifted;
    if (!s->quiet)
        sim_post(s, 300 * MS, NEWS_UNPOISON);
}
