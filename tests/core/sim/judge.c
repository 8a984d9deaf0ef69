// SPDX-License-Identifier: Apache-2.0
// Checks the promises of core.h against the record of the core's events.
#include "tests/core/sim/record.h"

static const enum status cause_statuses[SIM_CAUSE_MAX] = {
    STATUS_OK,
    STATUS_ABORTED,
    STATUS_INTERNAL,
    STATUS_ABORTED,
    STATUS_DEADLINE_EXCEEDED,
    STATUS_DEADLINE_EXCEEDED,
    STATUS_DEADLINE_EXCEEDED,
    STATUS_UNAVAILABLE,
    STATUS_CANCELLED,
    STATUS_FAILED_PRECONDITION,
    STATUS_UNAVAILABLE,
};

// ---- what the core answers to a submission -----------------------------------------------------

static bool user_is_at_limit(const struct sim *s, uint32_t user)
{
    int live = 0;
    for (int slot = 0; slot < s->config.queue_max; slot++)
        live += s->by_slot[slot] >= 0 && s->jobs[s->by_slot[slot]].user == user;
    return s->config.user_queue_max > 0 && live >= s->config.user_queue_max;
}

// True if the job cannot end in time by the core's formula. The best possible schedule must then be
// too late, too.
static bool is_hopeless(const struct sim *s, const struct core_request *r)
{
    uint64_t sum_ns, longest_ns, pools = (uint64_t)record_instances(s, r->world_size);
    uint64_t best_ns = record_best_begin(s, r->world_size, r->user, &sum_ns, &longest_ns);
    uint64_t others_ns = (pools - 1) * longest_ns;
    uint64_t begin_ns = sum_ns > others_ns ? (sum_ns - others_ns) / pools : 0;
    bool hopeless = begin_ns + r->cost_ns > r->timeout_ns;
    SIM_CHECK(s, !hopeless || best_ns + r->cost_ns > r->timeout_ns,
              "refused, and could be done in %.3f ms", (double)(best_ns + r->cost_ns) / 1e6);
    s->totals->late += hopeless;
    return hopeless;
}

static bool is_too_long(const struct core_request *r)
{
    return r->cost_ns > r->timeout_ns || (r->run_timeout_ns > 0 && r->cost_ns > r->run_timeout_ns);
}

// The devices out of use leave no pool of the world size.
static bool is_out(const struct sim *s, int world_size)
{
    for (int i = 0; i < record_instances(s, world_size); i++)
        if (!(record_devices(s, world_size, i) & record_unusable(s)))
            return false;
    return s->devices_out != 0;
}

static enum status submission_status(const struct sim *s, const struct core_request *r)
{
    uint64_t down_ns;
    if (r->world_size < 1 || r->world_size > WORLD_SIZE_MAX ||
        (s->config.timeout_max_ns > 0 && r->timeout_ns > s->config.timeout_max_ns))
        return STATUS_INVALID_ARGUMENT;
    if (record_instances(s, r->world_size) == 0 || record_poison(s, r->case_hash))
        return STATUS_FAILED_PRECONDITION;
    if (is_too_long(r))
        return STATUS_DEADLINE_EXCEEDED;
    if (s->draining || record_unserved(s, r->world_size) ||
        (record_down(s, r->world_size, &down_ns) && s->now_ns - down_ns >= r->patience_ns &&
         record_down_rests(s, r->world_size, s->told_ns)))
        return STATUS_UNAVAILABLE;
    if (is_out(s, r->world_size)) {
        s->totals->taken_out++;
        return STATUS_UNAVAILABLE;
    }
    if (s->live == s->config.queue_max || user_is_at_limit(s, r->user))
        return STATUS_RESOURCE_EXHAUSTED;
    uint64_t wait_ns = turns_wait_ns(s, r->user);
    s->totals->spent += wait_ns > r->timeout_ns - r->cost_ns;
    if (wait_ns > r->timeout_ns - r->cost_ns)
        return STATUS_RESOURCE_EXHAUSTED;
    return is_hopeless(s, r) ? STATUS_DEADLINE_EXCEEDED : STATUS_OK;
}

// Only the same user may repeat a request, with the same content.
static enum status repetition_status(const struct core_request *r, const struct sim_job *known)
{
    return r->user == known->user && r->case_hash == known->hash ? STATUS_OK
                                                                 : STATUS_ALREADY_EXISTS;
}

static void judge_repetition(struct sim *s, const struct admission *admission,
                             const struct sim_job *known)
{
    bool lives = known->place != PLACE_ANSWERED;
    SIM_CHECK(s,
              (int)admission->kind == (lives ? ADMISSION_ATTACHED : ADMISSION_ANSWERED) &&
                  admission->index == (lives ? known->slot : known->answer_index),
              "asked again: admission %d index %d", (int)admission->kind, admission->index);
    *(lives ? &s->totals->attached : &s->totals->repeated) += 1;
}

void judge_submission(struct sim *s, const struct core_request *request, enum status status,
                      const struct admission *admission, const struct sim_job *known)
{
    bool again = known && (known->place != PLACE_ANSWERED || known->answer_index >= 0);
    enum status expected =
        again ? repetition_status(request, known) : submission_status(s, request);
    SIM_CHECK(s, status == expected, "submitted with world size %d: %s instead of %s",
              request->world_size, status_name(status), status_name(expected));
    s->totals->refused[status]++;
    if (status == STATUS_UNAVAILABLE && !s->draining && record_unserved(s, request->world_size))
        judge_refused_stuck(s, request->world_size);
    if (status != STATUS_OK) {
        s->refused++;
    } else if (again) {
        judge_repetition(s, admission, known);
    } else {
        SIM_CHECK(s, admission->kind == ADMISSION_NEW, "admission %d of a new request",
                  (int)admission->kind);
        s->admitted++;
        s->live++;
        s->queued++;
    }
}

// ---- what the core does ------------------------------------------------------------------------

static struct crew *action_crew(struct sim *s, const struct action *a)
{
    SIM_CHECK(s, a->pool >= 0 && a->pool < POOLS_MAX, "an action for pool %d", a->pool);
    struct crew *crew = &s->crews[a->pool];
    SIM_CHECK(s, crew->up && crew->generation == a->generation && !crew->killed,
              "an action %d for generation %u of pool %d, which is gone", a->kind, a->generation,
              a->pool);
    SIM_CHECK(s,
              crew->world_size == a->world_size && crew->instance == a->instance &&
                  crew->devices == a->devices,
              "an action %d for pool %d that calls it another", a->kind, a->pool);
    return crew;
}

static struct sim_job *action_job(struct sim *s, const struct action *a)
{
    SIM_CHECK(s, a->slot >= 0 && a->slot < s->config.queue_max && s->by_slot[a->slot] >= 0,
              "an action for slot %d, which is free", a->slot);
    struct sim_job *job = &s->jobs[s->by_slot[a->slot]];
    SIM_CHECK(s, a->job > 0 && (job->number == 0 || job->number == a->job),
              "slot %d has number %llu", a->slot, (unsigned long long)a->job);
    SIM_CHECK(s, job->world_size == a->world_size, "slot %d is of another world size", a->slot);
    job->number = a->job;
    return job;
}

static void judge_start(struct sim *s, const struct action *a)
{
    SIM_CHECK(s, a->pool >= 0 && a->pool < POOLS_MAX && !s->crews[a->pool].up,
              "START of pool %d, whose ranks are not all reaped", a->pool);
    SIM_CHECK(s, a->generation > s->generation, "generation %u again", a->generation);
    SIM_CHECK(s,
              a->instance >= 0 && a->instance < record_instances(s, a->world_size) &&
                  a->devices == record_devices(s, a->world_size, a->instance),
              "instance %d of world size %d on devices %#llx", a->instance, a->world_size,
              (unsigned long long)a->devices);
    SIM_CHECK(s, !(record_unusable(s) & a->devices), "START on devices with ranks that are stuck");
    if (a->spare)
        judge_spare_start(s, a);
    else
        judge_leader_start(s, a);
    int alive = record_alive(s);
    SIM_CHECK(s, alive == 0 || alive + a->world_size <= s->config.ranks_max, "%d ranks beside %d",
              a->world_size, alive);
    s->generation = a->generation;
    s->crews[a->pool] = (struct crew){.up = true,
                                      .generation = a->generation,
                                      .world_size = a->world_size,
                                      .instance = a->instance,
                                      .devices = a->devices,
                                      .alive = record_all(a->world_size),
                                      .job = -1,
                                      .spare = a->spare,
                                      .started_ns = s->now_ns};
    if (s->crew_count <= a->pool)
        s->crew_count = a->pool + 1;
    s->totals->starts++;
    s->totals->spares += a->spare;
}

// The first job in turn must have a reserved place, unless all its pools pause.
static bool keeps_a_place(struct sim *s, const struct sim_job *waiting, uint64_t devices)
{
    bool rests = true;
    for (int i = 0; i < record_instances(s, waiting->world_size); i++) {
        if (record_devices(s, waiting->world_size, i) & record_unusable(s))
            continue;
        if (!record_leader(s, waiting->world_size, i) &&
            !record_may_start(s, waiting->world_size, i, s->now_ns))
            continue;
        rests = false;
        if (!(record_devices(s, waiting->world_size, i) & devices))
            return true;
    }
    return rests;
}

// True if the user of the job may run it beside the user's running and earlier jobs.
static bool may_go(const struct sim *s, int job)
{
    int most = s->config.user.running_max, before = 0;
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        int other = s->by_slot[slot];
        before += other >= 0 && s->jobs[other].user == s->jobs[job].user &&
                  (s->jobs[other].place == PLACE_RUNNING || turns_before(s, other, job));
    }
    return turns_may_run(s, s->jobs[job].user) && (most == 0 || before < most);
}

static void judge_order(struct sim *s, const struct action *a, int index)
{
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        int other = s->by_slot[slot];
        SIM_CHECK(s,
                  other < 0 || s->jobs[other].place != PLACE_QUEUED ||
                      s->jobs[other].world_size != a->world_size || !may_go(s, other) ||
                      !turns_before(s, other, index),
                  "slot %d overtakes slot %d of the same world size", a->slot, slot);
    }
    int first = turns_first(s);
    // A failure may be reported between two actions. Actions before it were right at their time.
    SIM_CHECK(s, first == index || s->interrupted || keeps_a_place(s, &s->jobs[first], a->devices),
              "slot %d takes the devices that slot %d waits for", a->slot, s->jobs[first].slot);
}

static void judge_run(struct sim *s, const struct action *a)
{
    struct crew *crew = action_crew(s, a);
    struct sim_job *job = action_job(s, a);
    SIM_CHECK(s, job->place == PLACE_QUEUED, "slot %d runs a second time", a->slot);
    SIM_CHECK(s, s->now_ns < job->deadline_ns, "RUN after the deadline");
    SIM_CHECK(s, crew->is_ready && crew->alive == record_all(crew->world_size) && !crew->doomed,
              "RUN in a pool that is not whole");
    SIM_CHECK(s, !crew->working, "RUN in a pool that runs");
    SIM_CHECK(s, !(record_leased_for(s, a->world_size, a->instance) & a->devices),
              "RUN on devices that are at work");
    SIM_CHECK(s, !(record_unusable(s) & a->devices), "RUN on devices with ranks that are stuck");
    SIM_CHECK(s, !record_stands_by(s, crew), "RUN in a pool that stands by for another");
    SIM_CHECK(s, s->interrupted || record_memory_fits(s, job), "slot %d runs without memory for it",
              a->slot);
    SIM_CHECK(s, s->interrupted || turns_may_run(s, job->user),
              "slot %d is one too many of user %u", a->slot, job->user);
    judge_order(s, a, s->by_slot[a->slot]);
    turns_run(s, job);
    s->totals->side_by_side += record_leased(s) != 0;
    s->totals->takeovers += crew->spare && !crew->used;
    s->totals->at_once += (record_leased(s) & a->devices) != 0;
    crew->working = crew->used = true;
    crew->job = s->by_slot[a->slot];
    crew->suspect = false;
    crew->reported = 0;
    job->place = PLACE_RUNNING;
    job->crew = a->pool;
    job->run_ns = s->now_ns;
    if (job->run_timeout_ns > 0 && job->deadline_ns - s->now_ns > job->run_timeout_ns)
        job->deadline_ns = s->now_ns + job->run_timeout_ns;
    s->queued--;
}

static bool answer_fits_running(const struct sim *s, const struct sim_job *job,
                                const struct crew *crew, const struct action *a)
{
    bool accused = a->rank >= 0 && crew->accused >> a->rank & 1;
    if (crew->expected)
        return a->cause == crew->cause &&
               (crew->rank >= 0 ? a->rank == crew->rank : a->cause == CAUSE_NONE || accused);
    if (a->cause == CAUSE_PEER_LOST)
        return crew->suspect && accused && s->now_ns >= crew->suspect_ns + s->config.peer_grace_ns;
    if (a->cause == CAUSE_DEADLINE_RUNNING)
        return s->now_ns >= job->deadline_ns;
    return a->cause == CAUSE_CANCELLED && job->ended;
}

static void judge_answer_running(struct sim *s, struct sim_job *job, const struct action *a)
{
    struct crew *crew = &s->crews[job->crew];
    SIM_CHECK(s, a->pool == job->crew && a->generation == crew->generation,
              "the answer speaks of generation %u of pool %d", a->generation, a->pool);
    SIM_CHECK(s, answer_fits_running(s, job, crew, a), "cause %d rank %d, expected %d rank %d",
              a->cause, a->rank, crew->expected ? (int)crew->cause : -1, crew->rank);
    SIM_CHECK(s, a->run_ns == s->now_ns - job->run_ns, "run_ns is wrong");
    bool lost = a->cause == CAUSE_RANK_EXITED || a->cause == CAUSE_RANK_FAILED ||
                a->cause == CAUSE_PEER_LOST;
    bool evidence =
        a->cause != CAUSE_RANK_EXITED || !sim_kills_from_outside(crew->generation, a->rank);
    if (lost && evidence)
        record_kill(s, job->hash);
    if (a->cause == CAUSE_NONE)
        s->kills[job->hash] = 0;
    else
        crew->cancelled = !crew->doomed && a->cause == CAUSE_CANCELLED;
    crew->doomed = crew->doomed || a->cause != CAUSE_NONE;
    crew->working = a->cause != CAUSE_NONE;
    crew->idle_ns = s->now_ns;
    crew->expected = false;
    crew->job = -1;
}

// A pool of the world size is being started, or will be after its back-off.
static bool size_is_starting(const struct sim *s, int world_size)
{
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++)
        if (c->up && c->world_size == world_size && !c->is_ready && !c->stuck &&
            !(c->spare && c->killed) && !record_stands_by(s, c) &&
            !(c->devices & record_unusable(s)))
            return true;
    for (int i = 0; i < record_instances(s, world_size); i++)
        if (record_rests(&s->berths[world_size][i], s->told_ns) &&
            !(record_devices(s, world_size, i) & record_unusable(s)))
            return true;
    return false;
}

// True if all pools are DOWN and the patience of the job is over.
static bool has_waited_enough(const struct sim *s, const struct sim_job *job)
{
    uint64_t since_ns;
    if (!record_down(s, job->world_size, &since_ns))
        return false;
    return s->draining || s->now_ns - since_ns >= job->patience_ns;
}

static bool answer_fits_queued(const struct sim *s, const struct sim_job *job,
                               const struct action *a)
{
    bool is_first = true;
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        const struct sim_job *other = s->by_slot[slot] >= 0 ? &s->jobs[s->by_slot[slot]] : job;
        is_first = is_first && (other == job || other->place != PLACE_QUEUED ||
                                other->world_size != job->world_size ||
                                turns_before(s, (int)(job - s->jobs), (int)(other - s->jobs)));
    }
    switch (a->cause) {
    case CAUSE_DEADLINE_QUEUED:
        return s->now_ns >= job->deadline_ns && !(is_first && record_starting(s, job->world_size));
    case CAUSE_DEADLINE_STARTING:
        return s->now_ns >= job->deadline_ns && size_is_starting(s, job->world_size);
    case CAUSE_CANCELLED:
        return job->ended || job->abandoned;
    case CAUSE_START_FAILED:
        return has_waited_enough(s, job);
    case CAUSE_POISON:
        return record_poison(s, job->hash);
    case CAUSE_STUCK:
        return record_unserved(s, job->world_size);
    default:
        return false;
    }
}

// Answers are stored in order. A job that was dropped before it ran has no stored answer.
static void judge_memory(struct sim *s, struct sim_job *job, const struct action *a)
{
    bool forget = job->abandoned && a->cause == CAUSE_CANCELLED;
    SIM_CHECK(s, a->answer_index == (forget ? -1 : s->answered % ANSWERED_IDS_MAX),
              "the answer of slot %d is kept at %d", a->slot, a->answer_index);
    job->answer_index = a->answer_index;
    s->answered += !forget;
    s->totals->forgotten += forget;
}

static void judge_answer(struct sim *s, const struct action *a)
{
    struct sim_job *job = action_job(s, a);
    SIM_CHECK(s, a->cause >= 0 && a->cause < SIM_CAUSE_MAX && a->status == cause_statuses[a->cause],
              "cause %d with %s", a->cause, status_name(a->status));
    SIM_CHECK(s,
              a->total_ns == s->now_ns - job->admitted_ns &&
                  a->queue_ns + a->start_ns + a->run_ns == a->total_ns &&
                  a->start_ns <= a->total_ns && a->run_ns <= a->total_ns,
              "the times of slot %d do not add up", a->slot);
    if (job->place == PLACE_RUNNING) {
        judge_answer_running(s, job, a);
    } else {
        SIM_CHECK(s, answer_fits_queued(s, job, a), "slot %d was waiting, and is answered with %d",
                  a->slot, a->cause);
        if (a->cause == CAUSE_STUCK)
            judge_answer_stuck(s, job, a);
        s->queued--;
    }
    judge_memory(s, job, a);
    job->place = PLACE_ANSWERED;
    s->by_slot[a->slot] = -1;
    s->live--;
    s->totals->causes[a->cause]++;
}

static void judge_kill(struct sim *s, const struct action *a)
{
    struct crew *crew = action_crew(s, a);
    SIM_CHECK(s, crew->alive, "KILL of ranks that are reaped");
    SIM_CHECK(s, crew->job < 0, "KILL before the answer");
    bool overdue = !crew->is_ready && s->now_ns >= crew->started_ns + s->config.start_timeout_ns;
    crew->doomed = crew->doomed || overdue;
    if (record_stands_by(s, crew))
        judge_kill_standby(s, crew);
    else
        judge_kill_leader(s, crew);
    if (crew->doomed && !crew->is_ready)
        record_start_failure(s, crew);
    record_loss(s, crew);
    crew->killed = true;
    crew->killed_ns = s->now_ns;
    s->totals->kills++;
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
        judge_stuck(s, a);
        break;
    default:
        SIM_CHECK(s, s->draining && s->live == 0 && record_alive(s) == 0, "EXIT too early");
        s->exited = true;
        s->totals->exits++;
    }
}

// ---- after each event --------------------------------------------------------------------------

static void settled_crews(const struct sim *s)
{
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++) {
        int pool = (int)(c - s->crews);
        SIM_CHECK(s, !c->expected, "cause %d of pool %d is not answered", c->cause, pool);
        if (!c->up || c->killed)
            continue;
        SIM_CHECK(s, !c->doomed, "pool %d is lost and not killed", pool);
        SIM_CHECK(s, c->working || !(c->devices & s->devices_out),
                  "pool %d stays on devices that are out of use", pool);
        SIM_CHECK(s, c->is_ready || s->now_ns < c->started_ns + s->config.start_timeout_ns,
                  "pool %d takes too long to start", pool);
        SIM_CHECK(s,
                  !c->working || !c->suspect || s->now_ns < c->suspect_ns + s->config.peer_grace_ns,
                  "pool %d waits too long for the cause", pool);
        SIM_CHECK(s, !s->draining || s->live > 0, "pool %d stays, and is of no more use", pool);
    }
}

static void settled_jobs(const struct sim *s)
{
    uint64_t next_ns = core_next_time(s->core);
    for (int slot = 0; slot < s->config.queue_max; slot++) {
        if (s->by_slot[slot] < 0)
            continue;
        const struct sim_job *job = &s->jobs[s->by_slot[slot]];
        SIM_CHECK(s, job->deadline_ns > s->now_ns, "slot %d is past its deadline", slot);
        SIM_CHECK(s, job->deadline_ns >= next_ns, "nobody will wake for slot %d", slot);
        SIM_CHECK(s, !job->ended && !job->abandoned, "slot %d is not answered", slot);
        SIM_CHECK(s, job->place == PLACE_RUNNING || !record_poison(s, job->hash),
                  "slot %d waits to kill a third pool", slot);
        bool looked = s->failed_size == job->world_size || s->current.kind == NEWS_DRAIN;
        SIM_CHECK(s, job->place == PLACE_RUNNING || !looked || !has_waited_enough(s, job),
                  "slot %d has no patience left, and waits", slot);
    }
}

static bool room_for(const struct sim *s, int world_size)
{
    int alive = record_alive(s);
    return alive == 0 || alive + world_size <= s->config.ranks_max;
}

// In a calm world the first job waits for starting pools on its devices, for running jobs, for the
// end of pools in its way, and for the start of its own pool.
static uint64_t calm_wait_ns_max(const struct sim *s)
{
    const struct habits *h = &s->habits;
    return 2 * h->run_ns_max + 2 * h->start_ns_max + h->kill_ns_max;
}

// The first job in turn does not wait without a reason.
static void settled_first(struct sim *s)
{
    int first = turns_first(s);
    if (first != s->first)
        s->first_ns = s->now_ns;
    s->first = first;
    if (first < 0)
        return;
    const struct sim_job *job = &s->jobs[first];
    SIM_CHECK(s, !s->habits.calm || s->now_ns - s->first_ns <= calm_wait_ns_max(s),
              "slot %d starves", job->slot);
    s->totals->crowded += !record_memory_fits(s, job);
    if (size_is_starting(s, job->world_size) || !record_memory_fits(s, job))
        return;
    uint64_t leased = record_leased(s) | record_unusable(s);
    for (int i = 0; i < record_instances(s, job->world_size); i++) {
        const struct crew *leader = record_leader(s, job->world_size, i);
        bool free = !(record_devices(s, job->world_size, i) & leased);
        bool free_for_leader = !(record_devices(s, job->world_size, i) &
                                 (record_leased_for(s, job->world_size, i) | record_unusable(s)));
        SIM_CHECK(s, !free || !leader, "slot %d waits, and instance %d is idle", job->slot, i);
        SIM_CHECK(s, !free_for_leader || !leader || !leader->is_ready,
                  "slot %d waits, and instance %d could take over", job->slot, i);
        SIM_CHECK(s,
                  !free || !room_for(s, job->world_size) ||
                      record_startable(s, job->world_size, i, s->told_ns) <= 0,
                  "slot %d waits, and instance %d could be started", job->slot, i);
    }
}

static void settled_status(const struct sim *s)
{
    struct wire_status status;
    struct wire_pool pools[POOLS_MAX];
    core_status(s->core, &status, pools);
    SIM_CHECK(s, status.queued == s->queued && status.running == s->live - s->queued,
              "status counts %d queued, %d running", status.queued, status.running);
    SIM_CHECK(s,
              status.admitted == s->admitted && status.refused == s->refused &&
                  status.draining == s->draining,
              "status counts wrongly");
    int up = 0, crews = 0, spares = 0, stuck = 0;
    for (int i = 0; i < status.pool_count; i++) {
        bool lives = pools[i].state >= POOL_STARTING && pools[i].state <= POOL_STOPPING;
        up += lives || pools[i].state == POOL_STUCK;
        spares += lives && pools[i].state != POOL_STOPPING && pools[i].spare;
        stuck += pools[i].state == POOL_STUCK;
    }
    for (const struct crew *c = s->crews; c < s->crews + s->crew_count; c++) {
        crews += c->up;
        spares -= record_stands_by(s, c);
        stuck -= c->up && c->stuck;
    }
    SIM_CHECK(s, up == crews, "status shows %d pools with ranks, there are %d", up, crews);
    SIM_CHECK(s, spares == 0 && stuck == 0, "status shows %d spares too many, %d stuck", spares,
              stuck);
}

void judge_settled(struct sim *s)
{
    settled_crews(s);
    settled_jobs(s);
    settled_first(s);
    judge_turns_settled(s);
    judge_standby_settled(s);
    judge_stuck_settled(s);
    if (s->totals->events % 16 == 0)
        settled_status(s);
    bool over = s->draining && s->live == 0 && record_alive(s) == 0;
    SIM_CHECK(s, over == s->exited, "everything is over, and there is no EXIT");
}

void judge_end(struct sim *s)
{
    SIM_CHECK(s, s->exited, "drained, and no EXIT");
    SIM_CHECK(s, s->live == 0 && record_alive(s) == 0, "something is left");
    settled_status(s);
}
