// SPDX-License-Identifier: Apache-2.0
// The fake ranks, and the part of the service that starts and kills them.
#include "tests/core/sim/sim.h"

#define SIM_HANG_NS_MAX (100 * S) // a job hangs only if its deadline is near

static void post_report(struct sim *s, uint64_t delay_ns, const struct action *run, int rank)
{
    sim_post_rank(s, delay_ns, NEWS_REPORT, run->pool, rank)->job = run->job;
}

// A rank is gone or silent, and the others notice after a time.
static void ranks_mourn(struct sim *s, int slot, int lost, uint64_t at_ns)
{
    int world_size = s->crews[slot].world_size;
    uint64_t grace_ns = s->config.peer_grace_ns;
    for (int rank = 0; rank < world_size; rank++) {
        if (rank == lost || sim_chance(s, 400))
            continue;
        int peer = sim_chance(s, 700)
                       ? lost
                       : sim_draw(s, world_size); // possibly itself: a protocol error
        uint64_t delay_ns = at_ns + sim_draw_ns(s, 2 * grace_ns + MS);
        sim_post_rank(s, delay_ns, NEWS_PEER_LOST, slot, rank)->peer = peer;
        if (sim_chance(s, 400))
            sim_post_rank(s, delay_ns + sim_draw_ns(s, grace_ns + MS), NEWS_EXIT, slot, rank);
        if (sim_chance(s, 50))
            sim_post_rank(s, delay_ns + sim_draw_ns(s, grace_ns + MS), NEWS_FAILED, slot, rank);
    }
}

static void ranks_get_ready(struct sim *s, int slot, int except)
{
    for (int rank = 0; rank < s->crews[slot].world_size; rank++)
        if (rank != except)
            sim_post_rank(s, sim_draw_ns(s, s->habits.start_ns_max), NEWS_READY, slot, rank);
}

static void ranks_start_badly(struct sim *s, int slot)
{
    int bad = sim_draw(s, s->crews[slot].world_size);
    uint64_t at_ns = sim_draw_ns(s, s->habits.start_ns_max);
    ranks_get_ready(s, slot, sim_chance(s, 800) ? bad : -1);
    switch (sim_draw(s, 6)) {
    case 0:
        sim_post_rank(s, at_ns, NEWS_EXIT, slot, bad);
        ranks_mourn(s, slot, bad, at_ns);
        break;
    case 1:
        sim_post_rank(s, at_ns, NEWS_FAILED, slot, bad);
        break;
    case 2:
        ranks_mourn(s, slot, bad, at_ns);
        break;
    case 3:
        sim_post_rank(s, at_ns, NEWS_REPORT, slot, bad)->job = (uint64_t)sim_draw(s, 20);
        break;
    case 4:
        sim_post_rank(s, at_ns, NEWS_READY, slot, bad);
        sim_post_rank(s, at_ns, NEWS_READY, slot, bad);
        break;
    default: // silence
        break;
    }
}

static void ranks_work(struct sim *s, const struct action *run, int except, int per_mille)
{
    for (int rank = 0; rank < run->world_size; rank++)
        if (rank != except && sim_chance(s, per_mille))
            post_report(s, sim_draw_ns(s, s->habits.run_ns_max), run, rank);
}

static void rank_breaks_protocol(struct sim *s, const struct action *run, int bad, uint64_t at_ns)
{
    switch (sim_draw(s, 3)) {
    case 0:
        post_report(s, at_ns, run, bad);
        post_report(s, at_ns + sim_draw_ns(s, MS), run, bad);
        break;
    case 1:
        sim_post_rank(s, at_ns, NEWS_REPORT, run->pool, bad)->job = run->job + 1;
        break;
    default:
        sim_post_rank(s, at_ns, NEWS_READY, run->pool, bad);
    }
}

// Every rank reports another one as lost, and exits.
static void ranks_lose_each_other(struct sim *s, const struct action *run)
{
    for (int rank = 0; rank < run->world_size; rank++) {
        sim_post_rank(s, 0, NEWS_PEER_LOST, run->pool, rank)->peer = (rank + 1) % run->world_size;
        sim_post_rank(s, MS, NEWS_EXIT, run->pool, rank);
    }
}

static void ranks_work_badly(struct sim *s, const struct action *run, bool may_hang)
{
    int bad = sim_draw(s, run->world_size), kind = sim_draw(s, 7);
    uint64_t at_ns = sim_draw_ns(s, s->habits.run_ns_max);
    ranks_work(s, run, bad, kind == 5 ? 1000 : 500);
    switch (kind == 4 && !may_hang ? 0 : kind) {
    case 0:
        sim_post_rank(s, at_ns + sim_draw_ns(s, MS), NEWS_EXIT, run->pool, bad);
        ranks_mourn(s, run->pool, bad, at_ns);
        break;
    case 1:
        sim_post_rank(s, at_ns, NEWS_FAILED, run->pool, bad);
        ranks_mourn(s, run->pool, bad, at_ns);
        break;
    case 2:
        // If no rank notices the silence, the job ends at its deadline.
        ranks_mourn(s, run->pool, bad, at_ns);
        if (!may_hang)
            sim_post_rank(s, at_ns + S, NEWS_EXIT, run->pool, bad);
        break;
    case 3:
        rank_breaks_protocol(s, run, bad, at_ns);
        if (!may_hang)
            sim_post_rank(s, at_ns + S, NEWS_EXIT, run->pool, bad);
        break;
    case 4: // silence
        break;
    case 5: // dies when the work is done
        post_report(s, at_ns, run, bad);
        sim_post_rank(s, s->habits.run_ns_max, NEWS_EXIT, run->pool, bad);
        break;
    default:
        ranks_lose_each_other(s, run);
    }
}

// ---- the service --------------------------------------------------------------------------------

// Reports a failure while an action is carried out.
static void tell_at_once(struct sim *s, enum news_kind kind, int slot, int rank)
{
    struct news n = sim_rank_news(s, kind, slot, rank);
    s->interrupted = true;
    sim_tell(s, &n);
}

static void shell_start(struct sim *s, const struct action *a)
{
    if (!sim_chance(s, s->habits.start_fault)) {
        ranks_get_ready(s, a->pool, -1);
        if (sim_chance(s, s->habits.idle_fault))
            sim_post_rank(s, s->habits.start_ns_max + sim_draw_ns(s, 2 * s->habits.run_ns_max),
                          NEWS_EXIT, a->pool, sim_draw(s, a->world_size));
    } else if (sim_chance(s, 300)) {
        if (sim_chance(s, 500))
            tell_at_once(s, NEWS_START_FAILED, a->pool, -1);
        else
            sim_post_rank(s, sim_draw_ns(s, 3 * s->config.start_timeout_ns / 2), NEWS_START_FAILED,
                          a->pool, -1);
    } else {
        ranks_start_badly(s, a->pool);
    }
}

static void app_run(struct sim *s, const struct action *a)
{
    const struct sim_job *job = &s->jobs[s->by_slot[a->slot]];
    bool may_hang = job->deadline_ns - s->now_ns < SIM_HANG_NS_MAX;
    bool kills = job->hash == 0 && sim_chance(s, s->habits.killer);
    if (!kills && !sim_chance(s, s->habits.run_fault)) {
        ranks_work(s, a, -1, 1000);
    } else if (sim_chance(s, 100)) {
        tell_at_once(s, NEWS_FAILED, a->pool, sim_draw(s, a->world_size));
    } else {
        ranks_work_badly(s, a, may_hang);
    }
}

// Some killed ranks are reaped after the kill timeout, some never.
static void rank_is_killed(struct sim *s, int slot, int rank, uint64_t max_ns)
{
    bool stuck = s->habits.stuck > 0 && sim_chance(s, s->habits.stuck);
    uint64_t delay_ns = stuck ? s->config.kill_timeout_ns : 0;
    if (!stuck || sim_chance(s, 500))
        sim_post_rank(s, delay_ns + sim_draw_ns(s, max_ns), NEWS_EXIT, slot, rank);
}

static void shell_kill(struct sim *s, const struct action *a)
{
    uint64_t max_ns = sim_chance(s, s->habits.slow_kill) ? 3 * S : s->habits.kill_ns_max;
    for (int rank = 0; rank < a->world_size; rank++)
        if (s->crews[a->pool].alive >> rank & 1)
            rank_is_killed(s, a->pool, rank, max_ns);
}

void ranks_act(struct sim *s, const struct action *a)
{
    switch (a->kind) {
    case ACTION_START:
        shell_start(s, a);
        break;
    case ACTION_RUN:
        app_run(s, a);
        break;
    case ACTION_KILL:
        shell_kill(s, a);
        break;
    default:
        break;
    }
}
