// SPDX-License-Identifier: Apache-2.0
#include "tests/core/core_fixture.h"

#include <string.h>

struct fixture f;

struct core_config fixture_config(void)
{
    return (struct core_config){
        .ranks_per_device = 1,
        .host_count = 1,
        .hosts = {{.device_count = 4}},
        .queue_max = 8,
        .ranks_max = 16,
        .start_timeout_ns = 10 * S,
        .peer_grace_ns = 100 * MS,
        .kill_timeout_ns = 5 * S,
    };
}

void fixture_begin(const struct core_config *config)
{
    f = (struct fixture){.core = core_create(config), .now_ns = 5 * S};
    ck_assert_ptr_nonnull(f.core);
    core_assert(f.core);
}

// No action may be left.
void fixture_end(void)
{
    expect_none();
    core_destroy(f.core);
}

TCase *fixture_case(Suite *suite, void (*begin)(void), const char *name)
{
    TCase *c = tcase_create(name);
    tcase_add_checked_fixture(c, begin, fixture_end);
    suite_add_tcase(suite, c);
    return c;
}

void fixture_again(const struct core_config *config)
{
    fixture_end();
    fixture_begin(config);
}

void pass(uint64_t delay_ns)
{
    f.now_ns += delay_ns;
    core_time(f.core, f.now_ns);
    core_assert(f.core);
}

struct core_request request_make(int world_size)
{
    struct core_request request = {.world_size = world_size, .timeout_ns = 60 * S};
    uint64_t id = ++f.ids;
    memcpy(request.id.bytes, &id, sizeof(id));
    request.case_hash = id;
    return request;
}

enum status submit_request(const struct core_request *request, int *slot)
{
    struct admission admission;
    enum status status = core_submit(f.core, f.now_ns, request, &admission, &f.error);
    core_assert(f.core);
    if (status == STATUS_OK) {
        ck_assert_int_eq(admission.kind, ADMISSION_NEW);
        *slot = admission.index;
    }
    return status;
}

struct admission submit_again(const struct core_request *request)
{
    struct admission admission;
    ck_assert_int_eq(core_submit(f.core, f.now_ns, request, &admission, &f.error), STATUS_OK);
    core_assert(f.core);
    expect_none();
    return admission;
}

int submit(int world_size)
{
    struct core_request request = request_make(world_size);
    int slot = -1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    ck_assert_int_ge(slot, 0);
    return slot;
}

int submit_for(int world_size, uint64_t timeout_ns)
{
    struct core_request request = request_make(world_size);
    request.timeout_ns = timeout_ns;
    int slot = -1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    return slot;
}

void submit_refused(int world_size, enum status status, const char *text_part)
{
    struct core_request request = request_make(world_size);
    int slot = -77;
    ck_assert_int_eq(submit_request(&request, &slot), status);
    ck_assert_int_eq(slot, -77);
    ck_assert_int_eq(f.error.status, status);
    ck_assert_msg(strstr(f.error.text, text_part), "\"%s\" lacks \"%s\"", f.error.text, text_part);
    expect_none();
}

struct action expect(enum action_kind kind)
{
    struct action action = {0};
    ck_assert_msg(core_next_action(f.core, &action), "no action, instead of %d", kind);
    ck_assert_int_eq(action.kind, kind);
    return action;
}

void expect_none(void)
{
    struct action action;
    ck_assert_msg(!core_next_action(f.core, &action), "an action %d", action.kind);
}

struct ranks expect_start(int world_size, int instance)
{
    struct action a = expect(ACTION_START);
    ck_assert_int_eq(a.world_size, world_size);
    ck_assert_int_eq(a.instance, instance);
    return (struct ranks){a.pool, a.world_size, a.generation};
}

static void expect_same_pool(const struct action *a, struct ranks ranks)
{
    ck_assert_int_eq(a->pool, ranks.pool);
    ck_assert_uint_eq(a->generation, ranks.generation);
    ck_assert_int_eq(a->world_size, ranks.world_size);
}

struct action expect_run(struct ranks ranks, int slot)
{
    struct action a = expect(ACTION_RUN);
    expect_same_pool(&a, ranks);
    ck_assert_int_eq(a.slot, slot);
    return a;
}

struct action expect_answer(int slot, enum cause cause, int rank)
{
    struct action a = expect(ACTION_ANSWER);
    ck_assert_int_eq(a.slot, slot);
    ck_assert_int_eq(a.cause, cause);
    ck_assert_int_eq(a.rank, rank);
    ck_assert_uint_eq(a.queue_ns + a.start_ns + a.run_ns, a.total_ns);
    return a;
}

void expect_kill(struct ranks ranks)
{
    struct action a = expect(ACTION_KILL);
    expect_same_pool(&a, ranks);
}

void rank_ready(struct ranks ranks, int rank)
{
    core_rank_ready(f.core, f.now_ns, ranks.pool, ranks.generation, rank);
    core_assert(f.core);
}

void rank_reports(struct ranks ranks, int rank, uint64_t job)
{
    core_rank_reported(f.core, f.now_ns, ranks.pool, ranks.generation, rank, job);
    core_assert(f.core);
}

void ranks_ready(struct ranks ranks)
{
    for (int rank = 0; rank < ranks.world_size; rank++)
        rank_ready(ranks, rank);
}

void ranks_report(struct ranks ranks, uint64_t job)
{
    for (int rank = 0; rank < ranks.world_size; rank++)
        rank_reports(ranks, rank, job);
}

void rank_dies(struct ranks ranks, int rank)
{
    core_rank_exited(f.core, f.now_ns, ranks.pool, ranks.generation, rank,
                     &(struct rank_end){RANK_EXITED, 1});
    core_assert(f.core);
}

void rank_fails(struct ranks ranks, int rank)
{
    core_rank_failed(f.core, f.now_ns, ranks.pool, ranks.generation, rank, FAILURE_OWN, -1);
    core_assert(f.core);
}

void rank_loses(struct ranks ranks, int rank, int peer)
{
    core_rank_failed(f.core, f.now_ns, ranks.pool, ranks.generation, rank, FAILURE_PEER_LOST, peer);
    core_assert(f.core);
}

void ranks_reap_but(struct ranks ranks, int rank)
{
    for (int other = 0; other < ranks.world_size; other++)
        if (other != rank)
            rank_dies(ranks, other);
}

void ranks_reap(struct ranks ranks)
{
    ranks_reap_but(ranks, -1);
}

struct ranks pool_up(int world_size)
{
    int slot = submit(world_size);
    struct action start = expect(ACTION_START);
    struct ranks ranks = {start.pool, world_size, start.generation};
    ranks_ready(ranks);
    uint64_t job = expect_run(ranks, slot).job;
    ranks_report(ranks, job);
    expect_answer(slot, CAUSE_NONE, -1);
    expect_none();
    return ranks;
}

struct action run_in(struct ranks ranks)
{
    int slot = submit(ranks.world_size);
    return expect_run(ranks, slot);
}

void run_finish(struct ranks ranks, struct action run)
{
    ranks_report(ranks, run.job);
    expect_answer(run.slot, CAUSE_NONE, -1);
}

struct ranks start_ready(int world_size, int instance)
{
    struct ranks ranks = expect_start(world_size, instance);
    ranks_ready(ranks);
    return ranks;
}

void fail_starts(struct ranks ranks, int failures)
{
    static const uint64_t pauses_ns[] = {0, 0, 250 * MS, 250 * MS, 250 * MS};
    for (int i = 1; i <= failures; i++) {
        core_start_failed(f.core, f.now_ns, ranks.pool, ranks.generation);
        core_assert(f.core);
        if (i == failures)
            return;
        if (pauses_ns[i] > 0) {
            pass(pauses_ns[i] - 1);
            expect_none();
            pass(1);
        }
        ranks = expect_start(ranks.world_size, 0);
    }
}

// ---- spares ------------------------------------------------------------------------------------

struct core_config fixture_config_with_spares(void)
{
    struct core_config config = fixture_config();
    config.spares = true;
    return config;
}

struct ranks expect_spare(int world_size)
{
    struct action a = expect(ACTION_START);
    ck_assert_int_eq(a.world_size, world_size);
    ck_assert(a.spare);
    return (struct ranks){a.pool, a.world_size, a.generation};
}

struct ranks expect_leader(int world_size)
{
    struct action a = expect(ACTION_START);
    ck_assert_int_eq(a.world_size, world_size);
    ck_assert(!a.spare);
    return (struct ranks){a.pool, a.world_size, a.generation};
}

// A pool that has run a job, and its starting spare.
struct pair pair_starting(int world_size)
{
    struct pair pair;
    int slot = submit(world_size);
    pair.leader = expect_leader(world_size);
    for (int rank = 0; rank < world_size - 1; rank++)
        rank_ready(pair.leader, rank);
    expect_none(); // no spare starts before the leader is ready
    rank_ready(pair.leader, world_size - 1);
    struct action run = expect_run(pair.leader, slot);
    pair.spare = expect_spare(world_size);
    run_finish(pair.leader, run);
    expect_none();
    return pair;
}

// The same, with a ready spare.
struct pair pair_up(int world_size)
{
    struct pair pair = pair_starting(world_size);
    ranks_ready(pair.spare);
    expect_none();
    return pair;
}

// Rank 0 of the leader dies during the run.
void leader_dies(struct pair pair, struct action run)
{
    rank_dies(pair.leader, 0);
    expect_answer(run.slot, CAUSE_RANK_EXITED, 0);
    expect_kill(pair.leader);
}
