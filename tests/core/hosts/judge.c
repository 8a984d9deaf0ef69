// SPDX-License-Identifier: Apache-2.0
// The daemon's knowledge, and the promises of core.h about hosts.
#include "tests/core/hosts/sim_hosts.h"

static uint64_t all_of(int count)
{
    return count == 64 ? UINT64_MAX : bit(count) - 1;
}

static int ranks_there(const struct crew *c, uint64_t ranks, int host)
{
    int count = 0;
    for (int rank = 0; rank < c->world_size; rank++)
        count += ranks >> rank & 1 && c->seats[rank].host == host;
    return count;
}

// True if the crew starts for a job or works. A killed crew does so until it is reaped.
static bool crew_leases(const struct crew *c)
{
    bool starts = c->ready != all_of(c->world_size) && !c->spare;
    return c->up && !c->stuck && (starts || c->working);
}

static bool crews_meet(const struct crew *c, const struct crew *other, bool of_living)
{
    for (int i = 0; i < c->world_size; i++)
        for (int j = 0; j < other->world_size; j++)
            if (c->seats[i].host == other->seats[j].host &&
                c->seats[i].device == other->seats[j].device &&
                (!of_living || other->alive >> j & 1))
                return true;
    return false;
}

// No other pool may lease the devices of the crew, and no rank may be stuck on them.
static void check_exclusive(const struct sim *s, const struct crew *c, const char *what)
{
    for (const struct crew *other = s->crews; other < s->crews + POOLS_MAX; other++) {
        bool twin = other->world_size == c->world_size && other->nodes == c->nodes &&
                    other->instance == c->instance && s->config.spares;
        if (other == c || !other->up || (twin && other->killed))
            continue;
        // Of a killed crew only ranks that are alive count. Those on a lost host are forgotten.
        SIM_CHECK(s, !crew_leases(other) || !crews_meet(c, other, other->killed),
                  "%s on devices of generation %u", what, other->generation);
        SIM_CHECK(s, !other->stuck || !crews_meet(c, other, true), "%s on devices that are stuck",
                  what);
    }
}

static void check_hosts(const struct sim *s, const struct crew *c, const char *what)
{
    for (uint64_t left = c->hosts; left; left &= left - 1)
        SIM_CHECK(s, !core_host_is_lost(s->core, __builtin_ctzll(left)),
                  "%s on host %d, which is lost", what, __builtin_ctzll(left));
}

bool judge_can_serve(const struct sim *s, int world_size, int nodes, int ranks_per_node, bool now)
{
    if (ranks_per_node)
        nodes = world_size / ranks_per_node;
    for (int n = nodes ? nodes : 1; n <= (nodes ? nodes : s->config.host_count); n++) {
        int fit = 0, there = 0, all = 0;
        if (world_size % n != 0)
            continue;
        for (int host = 0; host < s->config.host_count; host++) {
            bool fits = s->config.hosts[host].device_count >= world_size / n;
            all += fits;
            fit += fits && !(now && core_host_is_lost(s->core, host));
            there +=
                s->config.hosts[host].device_count * s->config.ranks_per_device >= world_size / n &&
                !(now && core_host_is_lost(s->core, host));
        }
        // Devices are shared only if too few hosts, lost or not, have enough.
        if (fit >= n || (all < n && there >= n))
            return true;
    }
    return false;
}

// ---- actions --------------------------------------------------------------------------------

static void judge_start(struct sim *s, const struct action *a)
{
    struct crew *c = &s->crews[a->pool];
    int nodes = __builtin_popcountll(a->hosts), per = nodes ? a->world_size / nodes : 0;
    SIM_CHECK(s, a->pool >= 0 && a->pool < POOLS_MAX && !c->up, "START of a pool that is up");
    SIM_CHECK(s, nodes > 0 && a->world_size % nodes == 0 && !(a->hosts >> s->config.host_count),
              "%d ranks on hosts %#llx", a->world_size, (unsigned long long)a->hosts);
    s->totals->moved += nodes > 1 && __builtin_ctzll(a->hosts) % nodes != 0;
    *c = (struct crew){.up = true,
                       .spare = a->spare,
                       .generation = a->generation,
                       .world_size = a->world_size,
                       .instance = a->instance,
                       .nodes = nodes,
                       .slot = -1,
                       .hosts = a->hosts,
                       .alive = all_of(a->world_size)};
    for (int rank = 0, host = -1; rank < a->world_size; rank++) {
        struct core_seat seat = core_seat(s->core, a->pool, rank);
        if (rank % per == 0)
            host = __builtin_ctzll(a->hosts >> (host + 1)) + host + 1;
        int devices = s->config.hosts[host].device_count;
        SIM_CHECK(s, seat.host == host && seat.device >= 0 && seat.device < devices,
                  "rank %d is on device %d of host %d", rank, seat.device, seat.host);
        SIM_CHECK(s, a->devices >> seat.device & 1, "rank %d is on another device", rank);
        c->seats[rank] = seat;
        int mates = 0;
        for (int i = 0; i < rank; i++)
            mates += c->seats[i].host == seat.host && c->seats[i].device == seat.device;
        SIM_CHECK(s, mates < (per > devices ? s->config.ranks_per_device : 1),
                  "rank %d and %d others share a device", rank, mates);
    }
    check_hosts(s, c, "START");
    if (!a->spare)
        check_exclusive(s, c, "START");
    s->totals->starts++;
    s->totals->spread += nodes > 1;
    agents_order(s, NEWS_START, a->pool, 0);
}

static struct crew *crew_of(const struct sim *s, const struct action *a)
{
    const struct crew *c = &s->crews[a->pool];
    SIM_CHECK(s, a->pool >= 0 && a->pool < POOLS_MAX && c->up && c->generation == a->generation,
              "an action %d for generation %u", a->kind, a->generation);
    return (struct crew *)c;
}

static void judge_run(struct sim *s, const struct action *a)
{
    struct crew *c = crew_of(s, a);
    struct sim_job *job = &s->jobs[a->slot];
    SIM_CHECK(s, job->waits, "slot %d runs a second time", a->slot);
    SIM_CHECK(s, !c->killed && c->alive == all_of(c->world_size) && c->ready == c->alive,
              "RUN in a pool that is not whole");
    SIM_CHECK(s, !c->working, "RUN in a pool that runs");
    SIM_CHECK(s,
              c->world_size == job->world_size && (job->nodes == 0 || job->nodes == c->nodes) &&
                  (job->ranks_per_node == 0 || job->ranks_per_node * c->nodes == job->world_size),
              "%d ranks over %d hosts are not what was asked for", c->world_size, c->nodes);
    check_hosts(s, c, "RUN");
    check_exclusive(s, c, "RUN");
    for (const struct crew *other = s->crews; other < s->crews + POOLS_MAX; other++)
        s->totals->beside +=
            other->up && other->working && !other->killed && (other->nodes > 1) != (c->nodes > 1);
    c->working = true;
    c->reported = 0;
    c->slot = a->slot;
    job->waits = false;
    job->runs = true;
    job->crew = a->pool;
    job->number = a->job;
    s->totals->runs++;
    agents_order(s, NEWS_RUN, a->pool, a->job);
}

static void judge_answer(struct sim *s, const struct action *a)
{
    SIM_CHECK(s, a->slot >= 0 && a->slot < s->config.queue_max, "slot %d", a->slot);
    struct sim_job *job = &s->jobs[a->slot];
    SIM_CHECK(s, job->waits || job->runs, "slot %d is answered twice", a->slot);
    struct crew *c = job->runs ? &s->crews[job->crew] : NULL;
    bool by_host = a->cause == CAUSE_NODE_LOST;
    SIM_CHECK(s, by_host == (a->host >= 0), "cause %d and host %d", a->cause, a->host);
    SIM_CHECK(s,
              !by_host || (c && a->status == STATUS_ABORTED && a->host == s->lost_now &&
                           c->hosts >> a->host & 1),
              "slot %d is said to be lost with host %d", a->slot, a->host);
    SIM_CHECK(s,
              by_host || !c || s->lost_now < 0 || !(c->hosts >> s->lost_now & 1) ||
                  s->now_ns >= job->deadline_ns,
              "slot %d is lost with host %d, and the cause is %d", a->slot, s->lost_now, a->cause);
    SIM_CHECK(s, a->cause != CAUSE_NONE || (c && c->reported == all_of(c->world_size)),
              "slot %d is done, and not all ranks have reported", a->slot);
    if (c) {
        c->working = a->cause != CAUSE_NONE;
        c->doomed = c->doomed || c->working;
        c->slot = -1;
    }
    s->totals->causes[a->cause]++;
    s->live--;
    s->lost_slots &= ~bit(a->slot);
    *job = (struct sim_job){.number = a->job};
}

static void judge_kill(struct sim *s, const struct action *a)
{
    struct crew *c = crew_of(s, a);
    SIM_CHECK(s, !c->killed && c->alive && c->slot < 0, "KILL twice, or before the answer");
    SIM_CHECK(s,
              (a->host >= 0) == (s->lost_now >= 0 && c->hosts >> s->lost_now & 1 && a->host >= 0),
              "KILL because of host %d", a->host);
    c->killed = true;
    agents_order(s, NEWS_KILL, a->pool, 0);
}

void judge_action(struct sim *s, const struct action *a)
{
    SIM_CHECK(s, !s->exited, "an action after EXIT");
    switch (a->kind) {
    case ACTION_START:
        judge_start(s, a);
        break;
    case ACTION_RUN:
        judge_run(s, a);
        break;
    case ACTION_ANSWER:
        judge_answer(s, a);
        break;
    case ACTION_KILL:
        judge_kill(s, a);
        break;
    case ACTION_STUCK:
        SIM_CHECK(s, crew_of(s, a)->killed, "STUCK, and not killed");
        crew_of(s, a)->stuck = true;
        break;
    default:
        SIM_CHECK(s, s->draining && s->live == 0, "EXIT too early");
        s->exited = true;
    }
}

// ---- events ---------------------------------------------------------------------------------

static void crew_forget(struct crew *c, uint64_t ranks)
{
    c->alive &= ~ranks;
    c->up = c->alive != 0;
}

static uint64_t ranks_on(const struct crew *c, int host)
{
    uint64_t ranks = 0;
    for (int rank = 0; rank < c->world_size; rank++)
        ranks |= c->seats[rank].host == host ? bit(rank) : 0;
    return ranks;
}

// Forgets the ranks on a lost host. Jobs with ranks there must be answered.
static void forget_host(struct sim *s, int host)
{
    for (struct crew *c = s->crews; c < s->crews + POOLS_MAX; c++) {
        if (!c->up || !(c->hosts >> host & 1))
            continue;
        s->lost_slots |= c->slot >= 0 ? bit(c->slot) : 0;
        crew_forget(c, ranks_on(c, host));
    }
}

void judge_news(struct sim *s, const struct news *n)
{
    s->lost_now = -1;
    if (n->kind == NEWS_END || n->kind == NEWS_SILENCE) {
        s->lost_now = n->host;
        s->totals->lost++;
        forget_host(s, n->host);
        return;
    }
    s->totals->back += n->kind == NEWS_HELLO;
    if (n->kind > NEWS_NOT_STARTED)
        return;
    struct crew *c = &s->crews[n->crew];
    if (!c->up || c->generation != n->generation || core_host_is_lost(s->core, n->host))
        return;
    if (n->kind == NEWS_READY)
        c->ready |= bit(n->rank);
    else if (n->kind == NEWS_REPORT)
        c->reported |= bit(n->rank);
    else if (n->kind == NEWS_EXIT)
        crew_forget(c, bit(n->rank));
    else if (n->kind == NEWS_NOT_STARTED)
        crew_forget(c, ranks_on(c, n->host));
    s->totals->not_started += n->kind == NEWS_NOT_STARTED;
}

void judge_submission(struct sim *s, const struct core_request *r, enum status status,
                      const struct admission *admission)
{
    bool divides =
        (r->nodes == 0 || r->world_size % r->nodes == 0) &&
        (r->ranks_per_node == 0 || r->world_size % r->ranks_per_node == 0) &&
        (r->nodes == 0 || r->ranks_per_node == 0 || r->nodes * r->ranks_per_node == r->world_size);
    bool ever = divides && judge_can_serve(s, r->world_size, r->nodes, r->ranks_per_node, false);
    bool now = divides && judge_can_serve(s, r->world_size, r->nodes, r->ranks_per_node, true);
    enum status least = !divides ? STATUS_INVALID_ARGUMENT
                        : !ever  ? STATUS_FAILED_PRECONDITION
                                 : STATUS_OK;
    bool may_be_refused = s->live == s->config.queue_max || s->draining || s->start_fault > 0;
    for (const struct crew *c = s->crews; c < s->crews + POOLS_MAX; c++)
        may_be_refused = may_be_refused || (c->up && c->stuck);
    if (least != STATUS_OK)
        SIM_CHECK(s, status == least, "%d ranks over %d hosts, %d on each: %s", r->world_size,
                  r->nodes, r->ranks_per_node, status_name(status));
    else if (now && !may_be_refused)
        SIM_CHECK(s, status == STATUS_OK, "%d ranks over %d hosts are refused: %s", r->world_size,
                  r->nodes, status_name(status));
    else if (!now)
        SIM_CHECK(s, status == STATUS_UNAVAILABLE, "no host can serve %d ranks over %d: %s",
                  r->world_size, r->nodes, status_name(status));
    s->totals->refused += status != STATUS_OK;
    if (status != STATUS_OK)
        return;
    SIM_CHECK(s, admission->kind == ADMISSION_NEW && !s->jobs[admission->index].waits,
              "slot %d is taken", admission->index);
    s->jobs[admission->index] = (struct sim_job){.waits = true,
                                                 .world_size = r->world_size,
                                                 .nodes = r->nodes,
                                                 .ranks_per_node = r->ranks_per_node,
                                                 .deadline_ns = s->now_ns + r->timeout_ns,
                                                 .id = r->id};
    s->live++;
}

// ---- after each event -----------------------------------------------------------------------

// Jobs with ranks on a lost host must be answered, and their pools killed.
static void settle_loss(const struct sim *s)
{
    SIM_CHECK(s, s->lost_slots == 0, "slots %#llx are not answered, and host %d is lost",
              (unsigned long long)s->lost_slots, s->lost_now);
    for (const struct crew *c = s->crews; c < s->crews + POOLS_MAX; c++)
        SIM_CHECK(s, !c->up || s->lost_now < 0 || !(c->hosts >> s->lost_now & 1) || c->killed,
                  "ranks on other hosts are not killed when host %d is lost", s->lost_now);
}

// While no pool is up, no job may wait that could run. Failed starts and spares that are lost
// unused cause pauses, so lives with these are not judged.
static void settle_idle(const struct sim *s)
{
    if (s->start_fault > 0 || (s->config.spares && s->run_fault > 0))
        return;
    for (const struct crew *c = s->crews; c < s->crews + POOLS_MAX; c++)
        if (c->up)
            return;
    for (const struct sim_job *job = s->jobs; job < s->jobs + s->config.queue_max; job++)
        SIM_CHECK(s,
                  !job->waits ||
                      !judge_can_serve(s, job->world_size, job->nodes, job->ranks_per_node, true),
                  "slot %d waits for %d ranks over %d hosts, and nothing is up",
                  (int)(job - s->jobs), job->world_size, job->nodes);
}

void judge_settled(struct sim *s)
{
    settle_loss(s);
    for (const struct crew *c = s->crews; c < s->crews + POOLS_MAX; c++) {
        if (!c->up)
            continue;
        for (uint64_t left = c->hosts; left; left &= left - 1) {
            int host = __builtin_ctzll(left);
            const struct host *h = &s->hosts[host];
            bool lost = core_host_is_lost(s->core, host);
            SIM_CHECK(s, !lost || (c->killed && ranks_there(c, c->alive, host) == 0),
                      "generation %u stays on host %d, which is lost", c->generation, host);
            SIM_CHECK(s,
                      c->slot < 0 || h->suffers == WELL ||
                          s->now_ns - h->since_ns <= SILENCE_NS + 100 * MS,
                      "slot %d runs on host %d, which is silent", c->slot, host);
        }
    }
    for (const struct sim_job *job = s->jobs; job < s->jobs + s->config.queue_max; job++)
        SIM_CHECK(s, !(job->waits || job->runs) || job->deadline_ns > s->now_ns,
                  "slot %d is past its deadline", (int)(job - s->jobs));
    settle_idle(s);
}
