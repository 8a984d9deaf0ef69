// SPDX-License-Identifier: Apache-2.0
// Any bytes as a history of a pool core. The first four bytes are the configuration, the others are
// events. The world only follows the contract of daemon/core/core.h: ranks send any messages at any
// time. After each event the core's invariants must hold and its actions be legal. At the end every
// admitted job must have been answered exactly once.
#include <string.h>

#include "common/report.h"
#include "tests/fuzz/fuzz_core_world.h"
#include "tests/fuzz/fuzz_target.h"

#define INPUT_MAX 512
#define END_STEPS 4000

bool fuzz_accepted;

static unsigned take(void)
{
    return w.at < w.end ? *w.at++ : 0;
}

// ---- events of clients -------------------------------------------------------------------------

static void request_id(struct request_id *id, uint64_t number)
{
    memset(id, 0, sizeof(*id));
    memcpy(id->bytes, &number, sizeof(number));
}

static uint64_t timeout_of(unsigned byte)
{
    static const uint64_t timeouts_ns[] = {S, 10 * S, MS, 50 * MS, 61 * S, NEVER, 1, 0};
    return timeouts_ns[byte % 8];
}

static uint64_t cost_of(unsigned byte)
{
    static const uint64_t costs_ns[] = {0, 1, MS, S, 100 * S, CORE_COST_MAX_NS};
    return costs_ns[byte / 8 % 6];
}

// A job with enough time for its cost is not refused for its time while no other job lives.
static void require_refusal(const struct core_request *r, enum status status)
{
    bool enough =
        r->cost_ns <= r->timeout_ns && (r->run_timeout_ns == 0 || r->cost_ns <= r->run_timeout_ns);
    require(status != STATUS_DEADLINE_EXCEEDED || !enough || world_living_jobs() > 0);
}

static void admitted(const struct core_request *request, int slot)
{
    require(slot >= 0 && slot < w.config.queue_max && !w.jobs[slot].lives && !w.draining);
    int index = w.asked_count++ % REQUESTS_MAX;
    for (int i = 0; i < w.config.queue_max; i++)
        if (w.jobs[i].asked == index)
            w.jobs[i].asked = -1;
    w.asked[index] = (struct asked){.request = *request, .life = LIFE_LIVING, .place = slot};
    w.jobs[slot] = (struct job){.lives = true,
                                .asked = index,
                                .admitted_ns = w.now_ns,
                                .deadline_ns = after(request->timeout_ns),
                                .run_timeout_ns = request->run_timeout_ns,
                                .world_size = request->world_size,
                                .user = request->user};
}

static void submit(void)
{
    unsigned size = take(), who = take(), time = take();
    uint64_t number = (uint64_t)w.asked_count;
    struct core_request request = {.user = who % 3,
                                   .world_size = (int)(size % 16) - (size >= 240),
                                   .timeout_ns = timeout_of(time),
                                   .run_timeout_ns = who >= 128 ? timeout_of(take()) : 0,
                                   .case_hash = who / 3 % 4,
                                   .cost_ns = cost_of(time)};
    struct admission admission = {.index = -1};
    struct error error = {.text = ""};
    request_id(&request.id, number + 1);
    enum status status = core_submit(w.core, w.now_ns, &request, &admission, &error);
    if (status == STATUS_OK) {
        require(admission.kind == ADMISSION_NEW);
        admitted(&request, admission.index);
    } else {
        require(error.text[0] != '\0');
        require_refusal(&request, status);
    }
}

// Repeats a request: unchanged, as another user's, or with another case.
static void submit_again(void)
{
    unsigned which = take(), how = take();
    const struct asked *asked = &w.asked[which % REQUESTS_MAX];
    struct core_request request = asked->request;
    struct admission admission = {.index = -1};
    struct error error = {.text = ""};
    bool known = asked->life == LIFE_LIVING || asked->life == LIFE_ANSWERED;
    if (asked->life == LIFE_NONE)
        return;
    request.user += how % 4 == 1;
    request.case_hash += how % 4 == 2;
    enum status status = core_submit(w.core, w.now_ns, &request, &admission, &error);
    require(status == STATUS_OK || error.text[0] != '\0');
    if (!known) {
        require(status != STATUS_OK || admission.kind == ADMISSION_NEW);
        if (status == STATUS_OK) {
            w.asked[which % REQUESTS_MAX].life = LIFE_NONE;
            admitted(&request, admission.index);
        }
        return;
    }
    bool same = how % 4 != 1 && how % 4 != 2;
    require(status == (same ? STATUS_OK : STATUS_ALREADY_EXISTS));
    require(!same || admission.index == asked->place);
    require(!same || (int)admission.kind ==
                         (asked->life == LIFE_LIVING ? ADMISSION_ATTACHED : ADMISSION_ANSWERED));
}

static void cancel(void)
{
    unsigned which = take(), who = take();
    const struct asked *asked = &w.asked[which % REQUESTS_MAX];
    struct error error = {.text = ""};
    uint32_t user = who % 4 == 3 ? CORE_ANY_USER : who % 4;
    bool lives = asked->life == LIFE_LIVING;
    if (asked->life == LIFE_NONE)
        return;
    bool may = user == CORE_ANY_USER || user == asked->request.user;
    int slot = asked->place;
    enum status status = core_cancel(w.core, w.now_ns, &asked->request.id, user, &error);
    require(status == (!lives ? STATUS_NOT_FOUND : may ? STATUS_OK : STATUS_PERMISSION_DENIED));
    world_act();
    require(status != STATUS_OK || !w.jobs[slot].lives);
}

static void abandon(void)
{
    unsigned bits = take() | take() << 8;
    int slots[SLOTS_MAX], count = 0;
    for (int slot = 0; slot < w.config.queue_max; slot++) {
        if (!(bits >> slot & 1) || !w.jobs[slot].lives)
            continue;
        w.jobs[slot].abandoned = !w.jobs[slot].runs;
        slots[count++] = slot;
    }
    core_abandon(w.core, w.now_ns, slots, count);
}

// ---- events of ranks ---------------------------------------------------------------------------

// Takes the number of a pool that is up, if there is one. From 240 on: any pool number.
static int take_pool(void)
{
    unsigned which = take();
    int up[POOLS_MAX], count = 0;
    for (int pool = 0; pool < w.pools; pool++)
        if (w.crews[pool].up)
            up[count++] = pool;
    return which >= 240 || count == 0 ? (int)(which % POOLS_MAX) : up[which % (unsigned)count];
}

static int take_rank(const struct crew *crew)
{
    return crew->world_size > 0 ? (int)(take() % (unsigned)crew->world_size) : 0;
}

// True if the rank is ending: only its exit may still be reported.
static bool rank_is_silent(const struct crew *crew, int rank)
{
    return crew->up && (crew->ending >> rank & 1);
}

static void rank_ready(int pool, int rank)
{
    struct crew *crew = &w.crews[pool];
    if (rank_is_silent(crew, rank))
        return;
    crew->ready |= crew->up && (crew->alive >> rank & 1) ? UINT64_C(1) << rank : 0;
    core_rank_ready(w.core, w.now_ns, pool, crew->generation, rank);
}

static void rank_reported(int pool, int rank, uint64_t job)
{
    struct crew *crew = &w.crews[pool];
    if (rank_is_silent(crew, rank))
        return;
    if (crew->up && crew->slot >= 0 && job == w.jobs[crew->slot].number && crew->alive >> rank & 1)
        crew->reported |= UINT64_C(1) << rank;
    core_rank_reported(w.core, w.now_ns, pool, crew->generation, rank, job);
}

static void rank_failed(int pool, int rank, int kind, int peer)
{
    const struct crew *crew = &w.crews[pool];
    if (!rank_is_silent(crew, rank))
        core_rank_failed(w.core, w.now_ns, pool, crew->generation, rank, kind, peer);
}

static void rank_ending(int pool, int rank)
{
    struct crew *crew = &w.crews[pool];
    if (!crew->up || !(crew->alive >> rank & 1))
        return;
    crew->ending |= UINT64_C(1) << rank;
    core_rank_ending(w.core, w.now_ns, pool, crew->generation, rank,
                     &(struct rank_end){RANK_EXITED, 1});
}

static void rank_exited(int pool, int rank)
{
    struct crew *crew = &w.crews[pool];
    if (!crew->up || !(crew->alive >> rank & 1))
        return;
    crew->alive &= ~(UINT64_C(1) << rank);
    crew->up = crew->alive != 0;
    core_rank_exited(w.core, w.now_ns, pool, crew->generation, rank,
                     &(struct rank_end){RANK_EXITED, 1});
}

enum deed { DEED_READY, DEED_REPORT, DEED_EXIT };

// Applies the deed to all ranks of a pool, one after the other, until the pool has new ranks.
static void ranks_all(int pool, enum deed deed)
{
    struct crew *crew = &w.crews[pool];
    uint32_t generation = crew->generation;
    uint64_t job = crew->slot >= 0 ? w.jobs[crew->slot].number : w.number;
    for (int rank = 0; rank < crew->world_size; rank++) {
        if (!crew->up || crew->generation != generation)
            break;
        if (deed == DEED_READY)
            rank_ready(pool, rank);
        else if (deed == DEED_REPORT)
            rank_reported(pool, rank, job);
        else
            rank_exited(pool, rank);
        world_act();
    }
    world_settle();
}

static void rank_act(unsigned op)
{
    int pool = take_pool();
    struct crew *crew = &w.crews[pool];
    int rank = take_rank(crew);
    switch (op % 8) {
    case 0:
        rank_ready(pool, rank);
        break;
    case 1:
        rank_reported(pool, rank, crew->slot >= 0 && op < 128 ? w.jobs[crew->slot].number : take());
        break;
    case 2:
        rank_failed(pool, rank, FAILURE_OWN, -1);
        break;
    case 3:
        rank_failed(pool, rank, FAILURE_PEER_LOST, take_rank(crew));
        break;
    case 4:
        if (op < 128)
            rank_exited(pool, rank);
        else // seen to end before it is reaped
            rank_ending(pool, rank);
        break;
    case 5: // an event of the generation before
        core_rank_failed(w.core, w.now_ns, pool, crew->generation - 1, rank, FAILURE_OWN, -1);
        break;
    case 6:
        core_rank_reported(w.core, w.now_ns, pool, crew->generation - 1, rank, w.number);
        break;
    default:
        if (!crew->up || crew->alive != mask_of(crew->world_size) || crew->ready)
            return;
        crew->up = false;
        core_start_failed(w.core, w.now_ns, pool, crew->generation);
    }
}

// ---- time and limits, and the target -----------------------------------------------------------

static void time_pass(void)
{
    static const uint64_t steps_ns[] = {1,      MS,     10 * MS,  100 * MS,   S,
                                        10 * S, 61 * S, 3600 * S, 100000 * S, 0};
    unsigned which = take() % 11;
    uint64_t next_ns = core_next_time(w.core);
    uint64_t now_ns = which < 10 ? after(steps_ns[which]) : next_ns;
    // At the end of time the clock goes back. For the world a step back is no step.
    if (now_ns == NEVER)
        now_ns = w.now_ns > MS ? w.now_ns - MS : 0;
    w.now_ns = now_ns > w.now_ns ? now_ns : w.now_ns;
    core_time(w.core, now_ns);
}

static void limit(void)
{
    static const uint64_t idle_ns[] = {0, 50 * MS, S, NEVER};
    unsigned how = take();
    w.config.user_queue_max = (int)(how % (unsigned)(w.config.queue_max + 1));
    w.config.idle_timeout_ns = idle_ns[how >> 6];
    w.config.user = (struct user_limits){.running_max = (int)(how >> 3 & 3),
                                         .time_ns = how & 32 ? 20 * MS : 0,
                                         .window_ns = 100 * MS};
    core_limit(w.core, w.now_ns,
               &(struct core_limits){.user_queue_max = w.config.user_queue_max,
                                     .idle_timeout_ns = w.config.idle_timeout_ns,
                                     .user = w.config.user});
}

static void event(void)
{
    unsigned op = take();
    switch (op % 16) {
    case 0:
    case 1:
        submit();
        break;
    case 2:
        submit_again();
        break;
    case 3:
        cancel();
        break;
    case 4:
        abandon();
        break;
    case 5:
        ranks_all(take_pool(), DEED_READY);
        break;
    case 6:
        ranks_all(take_pool(), DEED_REPORT);
        break;
    case 7:
        ranks_all(take_pool(), DEED_EXIT);
        break;
    case 8:
    case 9:
        time_pass();
        break;
    case 10:
        limit();
        break;
    case 11:
        w.start_fails = op & 16;
        w.run_fails = op & 32;
        if (op == 255 - 4) // rarely: it is the end
            core_drain(w.core, w.now_ns), w.draining = true;
        break;
    default:
        rank_act(take());
    }
    world_settle();
}

static void begin(void)
{
    static const int devices[] = {4, 1, 2, 3, 5, 8, 6, 4};
    static const uint64_t times_ns[] = {0, 50 * MS, S, NEVER};
    unsigned a = take(), b = take(), c = take(), d = take();
    int queue_max = 1 + (int)(b % SLOTS_MAX);
    w.config = (struct core_config){
        .host_count = 1,
        .hosts = {{.device_count = devices[a % 8]}},
        .spares = d & 32,
        .spare_delay_ns = times_ns[a >> 4 & 3],
        .ranks_per_device = a & 8 ? 2 + (int)(d & 7) : 1,
        .queue_max = queue_max,
        .user_queue_max = (int)(b / SLOTS_MAX) % (queue_max + 1),
        .ranks_max = 1 + (int)(c % 32),
        .start_timeout_ns = (c & 32)   ? 10 * S
                            : (c & 64) ? NEVER
                                       : 20 * MS,
        .peer_grace_ns = times_ns[d & 3],
        .idle_timeout_ns = times_ns[d >> 2 & 3],
        .kill_timeout_ns = (c & 128) ? 50 * MS : 10 * S,
    };
    w.stubborn = d & 16;
    w.core = core_create(&w.config);
    require(w.core);
}

// Reports the remaining events of the crew.
static void crew_finish(int pool)
{
    const struct crew *crew = &w.crews[pool];
    if (!crew->up)
        return;
    if (crew->killed && w.stubborn)
        return;
    if (crew->killed)
        ranks_all(pool, DEED_EXIT);
    else if (crew->ready != mask_of(crew->world_size))
        ranks_all(pool, DEED_READY);
    else if (crew->slot >= 0)
        ranks_all(pool, DEED_REPORT);
    // Reports of ranks that have lost each other have no effect. These ranks exit.
    if (crew->up && crew->slot >= 0)
        ranks_all(pool, DEED_EXIT);
}

// Drains the core. All ranks then do what the core asks of them, so it must come to an end.
static void end(void)
{
    w.start_fails = w.run_fails = false;
    core_drain(w.core, w.now_ns);
    w.draining = true;
    world_settle();
    for (int steps = 0; !w.exited; steps++) {
        require(steps < END_STEPS);
        for (int pool = 0; pool < w.pools && !w.exited; pool++)
            crew_finish(pool);
        uint64_t next_ns = core_next_time(w.core);
        if (w.exited || next_ns == NEVER)
            continue;
        w.now_ns = next_ns;
        core_time(w.core, w.now_ns);
        world_settle();
    }
    require(world_living_jobs() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepted = size <= INPUT_MAX; // any bytes are events
    if (!fuzz_accepted)
        return 0;
    memset(&w, 0, sizeof(w));
    w.at = data;
    w.end = data + size;
    begin();
    while (w.at < w.end && !w.exited)
        event();
    if (!w.exited)
        end();
    // Stuck ranks exit after the end of the core.
    for (int pool = 0; pool < w.pools; pool++)
        if (w.crews[pool].up)
            ranks_all(pool, DEED_EXIT);
    core_destroy(w.core);
    return 0;
}
