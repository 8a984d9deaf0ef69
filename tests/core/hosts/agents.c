// SPDX-License-Identifier: Apache-2.0
// The simulated agents, rank processes and connections.
#include <string.h>

#include "tests/core/hosts/sim_hosts.h"

#define START_NS_MAX (20 * MS)
#define RUN_NS_MAX   (300 * MS)
#define KILL_NS_MAX  (20 * MS)
#define DELAY_NS_MAX (2 * MS)

// ---- connections ----------------------------------------------------------------------------

static bool line_is_open(const struct host *h, uint32_t line)
{
    return h->line == line && line % 2 == 1;
}

// Messages of a connection keep their order in each direction.
static struct news *post_message(struct sim *s, int host, enum news_kind kind)
{
    struct host *h = &s->hosts[host];
    bool up = kind < NEWS_START;
    uint64_t *last_ns = up ? &h->up_ns : &h->down_ns;
    uint64_t at_ns = s->now_ns + sim_draw_ns(s, DELAY_NS_MAX);
    if (*last_ns < at_ns)
        *last_ns = at_ns;
    struct news *n = sim_post(s, *last_ns - s->now_ns, kind);
    n->host = host;
    n->line = up ? h->agent_line : h->line;
    return n;
}

void agents_order(struct sim *s, enum news_kind kind, int crew, uint64_t job)
{
    struct crew *c = &s->crews[crew];
    for (uint64_t left = c->hosts; left; left &= left - 1) {
        int host = __builtin_ctzll(left);
        if (!line_is_open(&s->hosts[host], s->hosts[host].line))
            continue;
        struct news *n = post_message(s, host, kind);
        n->crew = crew;
        n->generation = c->generation;
        n->job = job;
    }
}

static void backlog_add(struct sim *s, struct backlog *backlog, const struct news *n)
{
    SIM_CHECK(s, backlog->count < SIM_BACKLOG, "too many messages wait");
    backlog->news[backlog->count++] = *n;
}

static void backlog_flush(struct sim *s, struct backlog *backlog, uint64_t *last_ns)
{
    for (int i = 0; i < backlog->count; i++) {
        struct news *n = sim_post(s, 0, NEWS_TIME);
        *n = backlog->news[i]; // keeps its order among events of the same time
        n->at_ns = s->now_ns;
    }
    if (*last_ns < s->now_ns)
        *last_ns = s->now_ns;
    backlog->count = 0;
}

// ---- processes ------------------------------------------------------------------------------

static struct news *post_process(struct sim *s, uint64_t delay_ns, enum news_kind kind, int process)
{
    struct news *n = sim_post(s, delay_ns, kind);
    n->process = process;
    n->host = s->processes[process].host;
    n->generation = s->processes[process].generation;
    n->rank = s->processes[process].rank;
    return n;
}

static void process_kill(struct sim *s, int process)
{
    struct process *p = &s->processes[process];
    if (!p->alive || p->killed)
        return;
    p->killed = true;
    uint64_t delay_ns = sim_draw_ns(s, sim_chance(s, 20) && !s->quiet ? 5 * S : KILL_NS_MAX);
    post_process(s, delay_ns, NEWS_IS_GONE, process);
}

static int process_new(struct sim *s)
{
    for (int i = 0; i < s->process_count; i++)
        if (!s->processes[i].alive)
            return i;
    SIM_CHECK(s, s->process_count < SIM_PROCESSES, "too many processes");
    return s->process_count++;
}

static void host_start(struct sim *s, const struct news *order)
{
    const struct crew *c = &s->crews[order->crew];
    if (!c->up || c->generation != order->generation)
        return; // the daemon has forgotten these ranks
    if (sim_chance(s, s->start_fault / 4)) {
        struct news *n = post_message(s, order->host, NEWS_NOT_STARTED);
        n->crew = order->crew;
        n->generation = order->generation;
        return;
    }
    bool late = sim_chance(s, s->start_fault);
    for (int rank = 0; rank < c->world_size; rank++) {
        if (c->seats[rank].host != order->host)
            continue;
        int i = process_new(s);
        s->processes[i] = (struct process){.alive = true,
                                           .host = order->host,
                                           .device = c->seats[rank].device,
                                           .crew = order->crew,
                                           .rank = rank,
                                           .generation = order->generation};
        bool dies = late && sim_chance(s, 500);
        post_process(s, sim_draw_ns(s, START_NS_MAX), dies ? NEWS_DIES : NEWS_IS_READY, i);
    }
}

// No other process may run a job on the device, unless it is a rank of the same pool or a killed
// rank that a spare replaces.
static void process_begin(struct sim *s, int process, uint64_t job)
{
    struct process *p = &s->processes[process];
    for (int i = 0; i < s->process_count; i++) {
        const struct process *other = &s->processes[i];
        bool same = other->generation == p->generation;
        bool handed = s->config.spares && other->killed;
        SIM_CHECK(s,
                  !other->alive || other->host != p->host || other->device != p->device || same ||
                      handed || other->job == 0,
                  "device %d of host %d has two jobs", p->device, p->host);
    }
    p->job = job;
    bool fails = sim_chance(s, s->run_fault);
    post_process(s, sim_draw_ns(s, RUN_NS_MAX), fails ? NEWS_DIES : NEWS_IS_DONE, process);
}

static void host_order(struct sim *s, const struct news *n)
{
    if (n->kind == NEWS_START) {
        host_start(s, n);
        return;
    }
    for (int i = 0; i < s->process_count; i++) {
        const struct process *p = &s->processes[i];
        if (!p->alive || p->host != n->host || p->generation != n->generation)
            continue;
        if (n->kind == NEWS_RUN && !p->killed)
            process_begin(s, i, n->job);
        else if (n->kind == NEWS_KILL && s->breach != BREACH_KEPT_RANKS)
            process_kill(s, i);
    }
}

static struct news *process_says(struct sim *s, int process, enum news_kind kind)
{
    const struct process *p = &s->processes[process];
    struct news *n = post_message(s, p->host, kind);
    n->crew = p->crew;
    n->generation = p->generation;
    n->rank = p->rank;
    n->job = p->job;
    return n;
}

// Ranks of the same pool may notice the loss.
static void peers_notice(struct sim *s, const struct process *lost)
{
    for (int i = 0; i < s->process_count; i++) {
        const struct process *p = &s->processes[i];
        if (p->alive && !p->killed && p != lost && p->generation == lost->generation && p->job &&
            s->hosts[p->host].suffers != DEAD && sim_chance(s, 300))
            process_says(s, i, NEWS_PEER_LOST)->peer = lost->rank;
    }
}

// ---- hosts ----------------------------------------------------------------------------------

static int host_alive(const struct sim *s, int host)
{
    int alive = 0;
    for (int i = 0; i < s->process_count; i++)
        alive += s->processes[i].alive && s->processes[i].host == host;
    return alive;
}

static void host_purge(struct sim *s, int host)
{
    for (int i = 0; i < s->process_count; i++)
        if (s->processes[i].host == host)
            process_kill(s, i);
}

// An agent without its connection kills its ranks and then connects again.
static void agent_look(struct sim *s, int host)
{
    struct host *h = &s->hosts[host];
    if (h->suffers != WELL || line_is_open(h, h->agent_line) || h->hello)
        return;
    host_purge(s, host);
    if (host_alive(s, host) > 0 && s->breach != BREACH_EARLY_BACK)
        return;
    h->hello = true;
    sim_post(s, sim_draw_ns(s, 50 * MS), NEWS_HELLO)->host = host;
}

static void host_suffer(struct sim *s, int host)
{
    struct host *h = &s->hosts[host];
    if (h->suffers != WELL || s->quiet)
        return;
    h->suffers = (enum suffering)(1 + sim_draw(s, 3));
    h->since_ns = s->now_ns;
    s->totals->troubles[h->suffers]++;
    if (h->suffers == DEAD) {
        if (line_is_open(h, h->agent_line))
            post_message(s, host, NEWS_END);
        h->agent_line = 0;
        host_purge(s, host); // ranks end with their agent
    } else {
        sim_post(s, SILENCE_NS, NEWS_SILENCE)->host = host;
    }
    sim_post(s, sim_draw_ns(s, sim_chance(s, 500) ? 2 * S : 12 * S), NEWS_WAKE)->host = host;
}

static void host_recover(struct sim *s, int host)
{
    struct host *h = &s->hosts[host];
    bool open = line_is_open(h, h->agent_line);
    if (h->suffers == WELL)
        return;
    if (h->suffers == DEAD)
        h->up.count = h->down.count = 0;
    bool given_up = h->suffers == CUT && s->now_ns - h->since_ns > SILENCE_NS;
    h->suffers = WELL;
    if (open && !given_up) {
        backlog_flush(s, &h->up, &h->up_ns);
        backlog_flush(s, &h->down, &h->down_ns);
    } else {
        h->up.count = h->down.count = 0;
        agent_look(s, host);
    }
}

void agents_hang_up(struct sim *s, int host)
{
    struct host *h = &s->hosts[host];
    if (h->line % 2 == 1)
        h->line++;
    agent_look(s, host);
}

// ---- events ---------------------------------------------------------------------------------

static bool message_arrives(struct sim *s, struct news *n)
{
    struct host *h = &s->hosts[n->host];
    bool up = n->kind < NEWS_START;
    if (!line_is_open(h, n->line)) {
        // Late reports of a lost host may still arrive: the core ignores them.
        bool stale = up && core_host_is_lost(s->core, n->host) && n->kind <= NEWS_EXIT;
        s->totals->stale += stale;
        return stale;
    }
    // The end of a connection arrives, and so do messages that a dead agent sent before. Other
    // messages of a host in trouble wait.
    if (n->kind == NEWS_END || (h->suffers == DEAD && up))
        return up;
    if (h->suffers != WELL) {
        backlog_add(s, up ? &h->up : &h->down, n);
        return false;
    }
    if (!up && h->agent_line == n->line) // a restarted agent has another line
        host_order(s, n);
    return up;
}

static void process_happens(struct sim *s, const struct news *n)
{
    struct process *p = &s->processes[n->process];
    bool spoken_of = p->alive && p->generation == n->generation && p->rank == n->rank;
    bool speaks = s->hosts[p->host].suffers != DEAD;
    if (!spoken_of)
        return;
    if (n->kind == NEWS_DIES || n->kind == NEWS_IS_GONE) {
        p->alive = false;
        if (speaks)
            process_says(s, n->process, NEWS_EXIT);
        if (n->kind == NEWS_DIES)
            peers_notice(s, p);
        agent_look(s, p->host);
    } else if (!p->killed && speaks) {
        process_says(s, n->process, n->kind == NEWS_IS_READY ? NEWS_READY : NEWS_REPORT);
        p->job = 0;
    }
}

bool agents_happen(struct sim *s, struct news *n)
{
    struct host *h = &s->hosts[n->host >= 0 ? n->host : 0]; // 0: not news about a host
    switch (n->kind) {
    case NEWS_IS_READY:
    case NEWS_IS_DONE:
    case NEWS_DIES:
    case NEWS_IS_GONE:
        process_happens(s, n);
        return false;
    case NEWS_TROUBLE:
        host_suffer(s, n->host);
        if (!s->quiet)
            sim_post(s, sim_draw_ns(s, 4 * S), NEWS_TROUBLE)->host =
                sim_draw(s, s->config.host_count);
        return false;
    case NEWS_WAKE:
        host_recover(s, n->host);
        return false;
    case NEWS_SILENCE: // new trouble after a recovery: a shorter silence
        return h->suffers != WELL && s->now_ns - h->since_ns >= SILENCE_NS && h->line % 2 == 1 &&
               s->breach != BREACH_SILENT_LOSS;
    case NEWS_HELLO:
        h->hello = false;
        if (h->suffers != WELL || !core_host_is_lost(s->core, n->host))
            return false;
        h->line += 1 + h->line % 2;
        h->agent_line = h->line;
        return true;
    default:
        return message_arrives(s, n);
    }
}

void agents_begin(struct sim *s)
{
    for (int host = 0; host < s->config.host_count; host++) {
        struct host *h = &s->hosts[host];
        h->line = h->agent_line = s->config.hosts[host].away ? 2 : 1;
        if (s->config.hosts[host].away) {
            h->hello = true;
            sim_post(s, sim_draw_ns(s, S), NEWS_HELLO)->host = host;
        }
    }
    if (s->trouble)
        sim_post(s, sim_draw_ns(s, 2 * S), NEWS_TROUBLE)->host = sim_draw(s, s->config.host_count);
}

void agents_heal(struct sim *s)
{
    for (int host = 0; host < s->config.host_count; host++) {
        host_recover(s, host);
        agent_look(s, host);
    }
}

bool agents_are_back(const struct sim *s)
{
    for (int host = 0; host < s->config.host_count; host++)
        if (core_host_is_lost(s->core, host) ||
            !line_is_open(&s->hosts[host], s->hosts[host].agent_line))
            return false;
    return true;
}

void agents_check_end(const struct sim *s)
{
    for (int i = 0; i < s->process_count; i++)
        SIM_CHECK(s, !s->processes[i].alive, "rank %d of generation %u is left on host %d",
                  s->processes[i].rank, s->processes[i].generation, s->processes[i].host);
}
