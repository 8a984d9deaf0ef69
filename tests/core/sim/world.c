// SPDX-License-Identifier: Apache-2.0
// The fake world: clock, clients, and the loop of the service.
#include "tests/core/sim/record.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM_STEPS_MIN    60
#define SIM_STEPS_MAX    220
#define SIM_STEPS_QUIET  20000     // a calm world comes to rest within these steps
#define SIM_QUIET_NS_MAX (600 * S) // and answers its last job within this time
#define SIM_FOREVER_NS   (UINT64_C(100000) * S)

// ---- events ------------------------------------------------------------------------------------

struct news *sim_post(struct sim *s, uint64_t delay_ns, enum news_kind kind)
{
    SIM_CHECK(s, s->news_count < SIM_NEWS_MAX, "the simulator has too much news");
    struct news *n = &s->news[s->news_count++];
    *n = (struct news){
        .at_ns = s->now_ns + delay_ns, .kind = kind, .slot = -1, .rank = -1, .peer = -1};
    return n;
}

struct news sim_rank_news(const struct sim *s, enum news_kind kind, int slot, int rank)
{
    return (struct news){.at_ns = s->now_ns,
                         .kind = kind,
                         .slot = slot,
                         .generation = s->crews[slot].generation,
                         .rank = rank,
                         .peer = -1};
}

struct news *sim_post_rank(struct sim *s, uint64_t delay_ns, enum news_kind kind, int slot,
                           int rank)
{
    struct news *n = sim_post(s, 0, kind);
    *n = sim_rank_news(s, kind, slot, rank);
    n->at_ns += delay_ns;
    return n;
}

static int news_earliest(const struct sim *s)
{
    int first = -1;
    for (int i = 0; i < s->news_count; i++)
        if (first < 0 || s->news[i].at_ns < s->news[first].at_ns)
            first = i;
    return first;
}

// ---- clients -----------------------------------------------------------------------------------

static uint64_t draw_timeout(struct sim *s)
{
    if (sim_chance(s, s->habits.short_timeout))
        return 1 + sim_draw_ns(s, 60 * MS);
    if (sim_chance(s, s->habits.long_timeout))
        return SIM_FOREVER_NS;
    return 100 * MS + sim_draw_ns(s, 3 * S);
}

static uint64_t draw_run_timeout(struct sim *s)
{
    if (s->habits.run_timeout == 0 || !sim_chance(s, s->habits.run_timeout))
        return 0;
    return 1 + sim_draw_ns(s, 2 * s->habits.run_ns_max);
}

// Computed from the request's id. A draw would change the lives in tests/core/sim/seeds.
static uint64_t cost_of(const struct sim *s, uint64_t id)
{
    uint64_t size = id >> 60, part = id >> 40 & 0xffff;
    if (!s->habits.costs)
        return 0;
    return (size == 0 ? S : size < 8 ? 100 * MS : 10 * MS) * part >> 16;
}

// Computed, too.
static uint64_t patience_of(uint64_t id)
{
    static const uint64_t patience_ns[] = {0, 300 * MS, 10 * S, UINT64_MAX};
    return patience_ns[id >> 20 & 3];
}

static int draw_world_size(struct sim *s)
{
    static const int odd[] = {0, -1, 65, 64, 9};
    return sim_chance(s, 990) ? s->habits.world_sizes[sim_draw(s, 4)] : odd[sim_draw(s, 5)];
}

static void client_follow_up(struct sim *s, int job)
{
    if (sim_chance(s, s->habits.cancel))
        sim_post(s, sim_draw_ns(s, 2 * s->habits.run_ns_max), NEWS_CANCEL)->subject =
            sim_chance(s, 900) ? job : -1;
    if (sim_chance(s, s->habits.gone))
        sim_post(s, sim_draw_ns(s, 2 * s->habits.run_ns_max), NEWS_CLIENT_GONE)->subject =
            sim_draw(s, SIM_CLIENTS);
}

static void id_make(struct request_id *id, uint64_t number)
{
    memset(id, 0, sizeof(*id));
    memcpy(id->bytes, &number, sizeof(number));
}

// The last job with this id.
static struct sim_job *job_by_id(struct sim *s, uint64_t id)
{
    for (int i = s->job_count - 1; i >= 0; i--)
        if (s->jobs[i].id == id)
            return &s->jobs[i];
    return NULL;
}

static void client_admitted(struct sim *s, const struct core_request *request, uint64_t id,
                            int slot)
{
    SIM_CHECK(s, slot >= 0 && slot < s->config.queue_max && s->by_slot[slot] < 0,
              "slot %d is not free", slot);
    turns_admitted(s, request->user);
    SIM_CHECK(s, s->job_count < SIM_JOBS_MAX, "the simulator has too many jobs");
    s->by_slot[slot] = s->job_count;
    s->jobs[s->job_count++] =
        (struct sim_job){.place = PLACE_QUEUED,
                         .id = id,
                         .hash = request->case_hash,
                         .admitted_ns = s->now_ns,
                         .deadline_ns = s->now_ns + request->timeout_ns,
                         .run_timeout_ns = request->run_timeout_ns,
                         .patience_ns = request->patience_ns,
                         .cancel_on_disconnect = request->cancel_on_disconnect,
                         .cost_ns = request->cost_ns,
                         .bytes = request->memory,
                         .slot = slot,
                         .world_size = request->world_size,
                         .user = request->user,
                         .crew = -1,
                         .answer_index = -1};
}

// A new request, or a repeated one, mostly with the same content.
static struct core_request draw_request(struct sim *s, int world_size, uint64_t timeout_ns,
                                        uint64_t hash, uint64_t *id)
{
    struct core_request request = {
        .user = (uint32_t)sim_draw(s, 3),
        .world_size = world_size,
        .timeout_ns = timeout_ns,
        .run_timeout_ns = draw_run_timeout(s),
        .case_hash = hash,
    };
    *id = sim_random(s);
    if (s->job_count > 0 && sim_chance(s, s->habits.duplicate)) {
        const struct sim_job *job = &s->jobs[sim_draw(s, s->job_count)];
        *id = job->id;
        request.case_hash = sim_chance(s, 800) ? job->hash : hash;
        request.user = sim_chance(s, 900) ? job->user : (job->user + 1) % SIM_USERS;
    }
    id_make(&request.id, *id);
    request.cost_ns = cost_of(s, *id);
    request.memory = *id >> 16 & 0xf;
    request.patience_ns = patience_of(*id);
    request.cancel_on_disconnect = *id >> 24 & 1;
    return request;
}

static void client_submit(struct sim *s, int world_size, uint64_t timeout_ns, uint64_t hash)
{
    uint64_t id;
    struct core_request request = draw_request(s, world_size, timeout_ns, hash, &id);
    struct sim_job *job = job_by_id(s, id);
    struct admission admission = {.index = -1};
    struct error error = {0};
    enum status status = core_submit(s->core, s->now_ns, &request, &admission, &error);
    trace_submission(s, &request, status, &admission, &error);
    SIM_CHECK(s, status == STATUS_OK || (error.status == status && error.text[0]),
              "a refusal without a reason");
    judge_submission(s, &request, status, &admission, job);
    if (status != STATUS_OK || admission.kind == ADMISSION_ANSWERED)
        return;
    if (admission.kind == ADMISSION_NEW) {
        client_admitted(s, &request, id, admission.index);
        job = &s->jobs[s->job_count - 1];
        client_follow_up(s, s->job_count - 1);
    }
    job->clients |= 1U << sim_draw(s, SIM_CLIENTS);
}

// The service knows the clients of each job.
static void client_go(struct sim *s, int client)
{
    int slots[SIM_QUEUE_MAX], count = 0;
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        struct sim_job *job = s->by_slot[slot] >= 0 ? &s->jobs[s->by_slot[slot]] : NULL;
        if (!job || !(job->clients >> client & 1))
            continue;
        job->clients &= ~(1U << client);
        if (job->clients)
            continue;
        job->abandoned = job->place == PLACE_QUEUED;
        job->ended = job->place == PLACE_RUNNING && job->cancel_on_disconnect;
        slots[count++] = slot;
    }
    core_abandon(s->core, s->now_ns, slots, count);
}

static void client_cancel(struct sim *s, int job)
{
    struct request_id id;
    struct error error;
    id_make(&id, job >= 0 ? s->jobs[job].id : sim_random(s));
    // A later job may have the same id.
    const struct sim_job *meant = job >= 0 ? job_by_id(s, s->jobs[job].id) : NULL;
    bool lives = meant && meant->place != PLACE_ANSWERED;
    enum status status =
        core_cancel(s->core, s->now_ns, &id, lives ? meant->user : CORE_ANY_USER, &error);
    SIM_CHECK(s, status == (lives ? STATUS_OK : STATUS_NOT_FOUND), "cancel says %s",
              status_name(status));
}

// ---- telling the core --------------------------------------------------------------------------

static void tell_core(struct sim *s, const struct news *n)
{
    struct core *core = s->core;
    const struct rank_end end = sim_end(n->generation, n->rank);
    switch (n->kind) {
    case NEWS_READY:
        core_rank_ready(core, s->now_ns, n->slot, n->generation, n->rank);
        break;
    case NEWS_REPORT:
        core_rank_reported(core, s->now_ns, n->slot, n->generation, n->rank, n->job);
        break;
    case NEWS_FAILED:
    case NEWS_PEER_LOST:
        core_rank_failed(core, s->now_ns, n->slot, n->generation, n->rank,
                         n->kind == NEWS_FAILED ? FAILURE_OWN : FAILURE_PEER_LOST, n->peer);
        break;
    case NEWS_ENDING:
        core_rank_ending(core, s->now_ns, n->slot, n->generation, n->rank, &end);
        break;
    case NEWS_EXIT:
        core_rank_exited(core, s->now_ns, n->slot, n->generation, n->rank, &end);
        break;
    case NEWS_START_FAILED:
        core_start_failed(core, s->now_ns, n->slot, n->generation);
        break;
    case NEWS_SUBMIT:
        client_submit(s, draw_world_size(s), draw_timeout(s),
                      (uint64_t)sim_draw(s, SIM_HASH_MAX - 1));
        break;
    case NEWS_CANCEL:
        client_cancel(s, n->subject);
        break;
    case NEWS_CLIENT_GONE:
        client_go(s, n->subject);
        break;
    case NEWS_DRAIN:
        core_drain(core, s->now_ns);
        break;
    case NEWS_LIMIT:
        orders_limit(s);
        break;
    case NEWS_DEVICE:
        orders_device(s);
        break;
    case NEWS_UNPOISON:
        orders_unpoison(s);
        break;
    default:
        core_time(core, s->now_ns);
    }
}

// Events that a service would not report: a second exit, a failed start of ended ranks.
static bool news_is_void(struct sim *s, struct news *n)
{
    if (n->slot < 0)
        return false;
    const struct crew *crew = &s->crews[n->slot];
    n->stale = !crew->up || crew->generation != n->generation ||
               (n->rank >= 0 && !(crew->alive >> n->rank & 1));
    s->totals->stale += n->stale;
    return n->stale && (n->kind == NEWS_EXIT || n->kind == NEWS_START_FAILED);
}

// The end of a rank may be reported before it is reaped.
static void news_come_early(struct sim *s, struct news *n)
{
    if (n->kind != NEWS_EXIT || s->habits.early_end == 0 || s->crews[n->slot].killed ||
        !sim_chance(s, s->habits.early_end))
        return;
    s->totals->early_ends++;
    n->kind = NEWS_ENDING;
    sim_post_rank(s, sim_draw_ns(s, s->habits.kill_ns_max + 2), NEWS_EXIT, n->slot, n->rank);
}

bool sim_tell(struct sim *s, struct news *n)
{
    if (news_is_void(s, n))
        return false;
    news_come_early(s, n);
    s->totals->events++;
    trace_news(s, n);
    record_news(s, n);
    tell_core(s, n);
    return true;
}

static void shell_take_actions(struct sim *s)
{
    struct action action;
    while (core_next_action(s->core, &action)) {
        s->totals->actions++;
        trace_action(s, &action);
        judge_action(s, &action);
        ranks_act(s, &action);
    }
}

static void happen(struct sim *s, struct news n)
{
    if (n.at_ns > s->now_ns)
        s->now_ns = n.at_ns;
    if (!sim_tell(s, &n))
        return;
    shell_take_actions(s);
    judge_settled(s);
    core_assert(s->core);
    s->told_ns = s->now_ns;
    s->interrupted = false;
    if (n.kind == NEWS_SUBMIT && !s->quiet && !s->exited)
        sim_post(s, sim_chance(s, 300) ? 0 : sim_draw_ns(s, s->habits.gap_ns_max), NEWS_SUBMIT);
}

// Runs the next event; false if there is none.
static bool step(struct sim *s)
{
    int first = news_earliest(s);
    uint64_t time_ns = core_next_time(s->core);
    if (first < 0 && time_ns == UINT64_MAX)
        return false;
    if (time_ns != UINT64_MAX)
        time_ns += sim_draw_ns(s, s->habits.late_ns_max);
    if (first < 0 || time_ns < s->news[first].at_ns) {
        happen(s, (struct news){.at_ns = time_ns, .kind = NEWS_TIME, .slot = -1, .rank = -1});
    } else {
        struct news n = s->news[first];
        s->news[first] = s->news[--s->news_count];
        happen(s, n);
    }
    return true;
}

// ---- a life ------------------------------------------------------------------------------------

static void life_draw_config(struct sim *s)
{
    static const uint64_t graces_ns[] = {0, MS, 20 * MS, 100 * MS};
    s->config = (struct core_config){
        .host_count = 1,
        .hosts = {{.device_count = 1 + sim_draw(s, 8)}},
        .ranks_per_device = sim_chance(s, 500) ? 2 + sim_draw(s, 3) : 1,
        .queue_max = 1 + sim_draw(s, sim_chance(s, 500) ? 4 : SIM_QUEUE_MAX),
        .ranks_max = 1 + sim_draw(s, sim_chance(s, 500) ? 8 : 24),
        .start_timeout_ns = 60 * MS + sim_draw_ns(s, S),
        .peer_grace_ns = graces_ns[sim_draw(s, 4)],
        .kill_timeout_ns = 100 * S,
    };
}

static void life_draw_habits(struct sim *s)
{
    static const uint64_t gaps_ns[] = {5 * MS, 30 * MS, 100 * MS, 300 * MS};
    struct habits *h = &s->habits;
    int fault = sim_chance(s, 500) ? 100 : 400;
    *h = (struct habits){
        .start_fault = sim_chance(s, 500)   ? fault
                       : sim_chance(s, 100) ? 1000
                                            : 20,
        .run_fault = sim_chance(s, 500) ? fault : 20,
        .idle_fault = sim_chance(s, 500) ? 200 : 0,
        .slow_kill = sim_chance(s, 300) ? 300 : 0,
        .cancel = sim_chance(s, 500) ? 200 : 0,
        .gone = sim_chance(s, 500) ? 50 : 0,
        .duplicate = 50,
        .drain = sim_chance(s, 200) ? 1000 : 0,
        .limit = sim_chance(s, 200) ? 1000 : 0,
        .short_timeout = sim_chance(s, 500) ? 200 : 0,
        .long_timeout = sim_draw(s, 1000),
        .killer = sim_chance(s, 300) ? 900 : 0,
        .gap_ns_max = gaps_ns[sim_draw(s, 4)],
        .start_ns_max = 50 * MS,
        .run_ns_max = sim_chance(s, 500) ? 10 * MS : 100 * MS,
        .kill_ns_max = 20 * MS,
        .late_ns_max = sim_chance(s, 300) ? 5 * MS : 0,
    };
    for (int i = 0; i < 4; i++)
        h->world_sizes[i] = 1 + sim_draw(s, s->config.hosts[0].device_count +
                                                (s->config.ranks_per_device > 1 ? 3 : 1));
}

// As many small jobs as the devices can run, and sometimes a larger one that must not starve.
static void life_make_stream(struct sim *s)
{
    struct habits *h = &s->habits;
    s->config.hosts[0].device_count = 2 + sim_draw(s, 5);
    s->config.queue_max = SIM_QUEUE_MAX;
    h->gap_ns_max = 30 * MS;
    h->run_ns_max = 100 * MS;
    h->duplicate = 0;
    h->world_sizes[0] = 2 + sim_draw(s, s->config.hosts[0].device_count - 1);
    h->world_sizes[1] = h->world_sizes[2] = h->world_sizes[3] = 1;
}

static void life_make_calm(struct sim *s)
{
    struct habits *h = &s->habits;
    h->start_fault = h->run_fault = h->idle_fault = h->slow_kill = h->killer = h->stuck = 0;
    h->cancel = h->gone = h->short_timeout = h->run_timeout = 0;
    h->long_timeout = 1000;
    h->late_ns_max = 0;
}

// Computed from the seed where possible. A draw would change the lives in tests/core/sim/seeds.
static void life_draw_later(struct sim *s)
{
    int kind = (int)(s->seed % 16);
    if (kind % 8 == 5 || kind % 8 == 7)
        s->habits.run_timeout = 500;
    s->habits.costs = s->seed / 16 % 8 == 4 || s->seed / 16 % 8 == 6;
    turns_draw_limits(s);
    s->config.memory_max = s->seed / 64 % 8 < 3 ? 8 + s->seed % 16 : 0;
    s->config.timeout_max_ns = s->seed / 4096 % 4 == 1 ? 2 * S : 0;
    s->habits.early_end = 0xb0 >> s->seed / 128 % 8 & 1 ? 500 : 0; // 4, 5, 7
    s->config.spares = 0x64ae >> kind & 1;                         // 1, 2, 3, 5, 7, 10, 13, 14
    s->config.spare_delay_ns = s->seed / 32 % 4 == 1 ? s->seed % 64 * 10 * MS : 0;
    if (!(0x8425 >> kind & 1)) // 0, 2, 5, 10, 15
        return;
    s->habits.stuck = sim_chance(s, 500) ? 50 : 300;
    s->config.kill_timeout_ns = 30 * MS + sim_draw_ns(s, S);
}

static void life_begin(struct sim *s, uint64_t seed, bool trace, struct sim_totals *totals)
{
    memset(s, 0, sizeof(*s));
    s->seed = seed;
    s->random = seed * UINT64_C(0xd1342543de82ef95) + 1;
    s->trace = trace;
    s->totals = totals;
    s->first = s->kept = -1;
    memset(s->by_slot, -1, sizeof(s->by_slot));
    life_draw_config(s);
    orders_draw_limits(s);
    life_draw_habits(s);
    life_draw_later(s);
    s->habits.calm = sim_chance(s, 200);
    if (s->habits.calm)
        life_make_calm(s);
    if (s->habits.calm && sim_chance(s, 600))
        life_make_stream(s);
    if (!s->habits.calm)
        s->config.user = s->user_limits;
    else
        s->user_limits = (struct user_limits){0};
    s->core = core_create(&s->config);
    SIM_CHECK(s, s->core, "no memory");
    s->now_ns = sim_draw_ns(s, S);
    sim_post(s, 0, NEWS_SUBMIT);
    if (sim_chance(s, s->habits.limit))
        sim_post(s, sim_draw_ns(s, S), NEWS_LIMIT);
    if (sim_chance(s, s->habits.drain))
        sim_post(s, sim_draw_ns(s, S), NEWS_DRAIN);
    orders_begin(s);
    trace_life(s);
}

static void news_forget(struct sim *s, enum news_kind kind)
{
    for (int i = s->news_count - 1; i >= 0; i--)
        if (s->news[i].kind == kind)
            s->news[i] = s->news[--s->news_count];
}

// No more faults: the world must come to rest with every job answered.
static void life_come_to_rest(struct sim *s)
{
    s->quiet = true;
    life_make_calm(s);
    news_forget(s, NEWS_SUBMIT);
    uint64_t since_ns = s->now_ns;
    for (int steps = 0; s->live > 0; steps++) {
        SIM_CHECK(s, steps < SIM_STEPS_QUIET, "%d jobs live, and events without end", s->live);
        SIM_CHECK(s, step(s), "%d jobs live, and nothing will happen", s->live);
        SIM_CHECK(s, s->now_ns - since_ns < SIM_QUIET_NS_MAX, "%d jobs wait for ever", s->live);
    }
    for (int steps = 0; step(s); steps++)
        SIM_CHECK(s, steps < SIM_STEPS_QUIET, "events without end");
}

// Stuck ranks end.
static void life_unstick(struct sim *s)
{
    for (int slot = 0; slot < s->crew_count; slot++)
        for (int rank = 0; rank < s->crews[slot].world_size; rank++)
            if (s->crews[slot].up && s->crews[slot].stuck && s->crews[slot].alive >> rank & 1)
                sim_post_rank(s, 0, NEWS_EXIT, slot, rank);
    life_come_to_rest(s);
}

// After the end of faults a job of any world size completes.
static void life_recover(struct sim *s)
{
    life_unstick(s);
    s->habits.duplicate = 0;
    for (int i = 0; i < 4; i++) {
        int world_size = s->habits.world_sizes[i];
        if (record_instances(s, world_size) == 0)
            continue;
        s->current = (struct news){.kind = NEWS_SUBMIT, .slot = -1, .rank = -1};
        turns_charge(s);
        client_submit(s, world_size, SIM_FOREVER_NS, SIM_HASH_MAX - 1);
        shell_take_actions(s);
        judge_settled(s);
        s->told_ns = s->now_ns;
        s->interrupted = false;
        uint64_t finished = s->totals->causes[CAUSE_NONE];
        life_come_to_rest(s);
        SIM_CHECK(s, s->totals->causes[CAUSE_NONE] == finished + 1,
                  "world size %d does not recover", world_size);
    }
}

static void life_end(struct sim *s)
{
    if (!s->draining)
        happen(s, (struct news){.at_ns = s->now_ns, .kind = NEWS_DRAIN, .slot = -1, .rank = -1});
    life_come_to_rest(s);
    judge_end(s);
    core_destroy(s->core);
    s->totals->lives++;
}

// An assertion of the core may also call abort().
static char seed_line[128];

static void say_seed(int signal_number)
{
    (void)signal_number;
    ssize_t written = write(STDERR_FILENO, seed_line, strlen(seed_line));
    (void)written;
}

void sim_play(uint64_t seed, bool trace, struct sim_totals *totals)
{
    static struct sim life;
    struct sim *s = &life;
    snprintf(seed_line, sizeof(seed_line),
             "# the simulator fails with seed %llu; replay: tests/core/test_sim --seed %llu\n",
             (unsigned long long)seed, (unsigned long long)seed);
    signal(SIGABRT, say_seed);
    life_begin(s, seed, trace, totals);
    int steps = SIM_STEPS_MIN + sim_draw(s, SIM_STEPS_MAX - SIM_STEPS_MIN);
    steps *= s->habits.calm ? 3 : 1; // starvation takes time to show
    while (steps-- > 0 && step(s)) {
    }
    life_come_to_rest(s);
    if (!s->draining && sim_chance(s, 250) && s->config.timeout_max_ns == 0)
        life_recover(s);
    life_end(s);
    signal(SIGABRT, SIG_DFL);
}
