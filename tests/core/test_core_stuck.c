// SPDX-License-Identifier: Apache-2.0
// The pool core: ranks that were killed and are not reaped.
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

#define KILL_TIMEOUT_NS (5 * S) // that of the fixture

static void begin(void)
{
    struct core_config config = fixture_config();
    fixture_begin(&config);
}

static void expect_stuck(struct ranks ranks, int rank, uint64_t devices)
{
    struct action a = expect(ACTION_STUCK);
    ck_assert_int_eq(a.pool, ranks.pool);
    ck_assert_uint_eq(a.generation, ranks.generation);
    ck_assert_int_eq(a.rank, rank);
    ck_assert_uint_eq(a.devices, devices);
}

static void expect_answer_stuck(int slot, struct ranks ranks, int rank, uint64_t device)
{
    struct action a = expect_answer(slot, CAUSE_STUCK, rank);
    ck_assert_int_eq(a.status, STATUS_UNAVAILABLE);
    ck_assert_int_eq(a.pool, ranks.pool);
    ck_assert_uint_eq(a.generation, ranks.generation);
    ck_assert_uint_eq(a.devices, device);
}

// A pool was killed while it ran a job. All ranks but this one are reaped.
static struct ranks pool_hangs(int world_size, int rank)
{
    struct ranks ranks = pool_up(world_size);
    struct action run = run_in(ranks);
    rank_fails(ranks, 0);
    expect_answer(run.slot, CAUSE_RANK_FAILED, 0);
    expect_kill(ranks);
    ranks_reap_but(ranks, rank);
    return ranks;
}

static struct ranks pool_stuck(int world_size, int rank, uint64_t device)
{
    struct ranks ranks = pool_hangs(world_size, rank);
    pass(KILL_TIMEOUT_NS);
    expect_stuck(ranks, rank, device);
    expect_none();
    return ranks;
}

// The end of a rank is known before it is reaped. Devices are free when all ranks are reaped.
START_TEST(a_rank_that_is_ending_counts_as_a_cause)
{
    struct ranks ranks = pool_up(4);
    struct action run = run_in(ranks);
    int queued = submit(4);
    core_rank_ending(f.core, f.now_ns, ranks.pool, ranks.generation, 1,
                     &(struct rank_end){RANK_EXITED, 1});
    core_assert(f.core);
    expect_answer(run.slot, CAUSE_RANK_EXITED, 1);
    expect_kill(ranks);
    core_rank_ending(f.core, f.now_ns, ranks.pool, ranks.generation, 0,
                     &(struct rank_end){RANK_EXITED, 1});
    for (int rank = 0; rank < 3; rank++)
        rank_dies(ranks, rank);
    expect_none();
    rank_dies(ranks, 3);
    struct ranks next = expect_start(4, 0);
    ranks_ready(next);
    expect_run(next, queued);
}
END_TEST

START_TEST(a_rank_is_stuck_after_the_kill_timeout)
{
    struct ranks two = pool_hangs(2, 1);
    int slot = submit(1); // device 0 is not free until all are reaped
    expect_start(1, 2);
    (void)slot;
    pass(KILL_TIMEOUT_NS - 1);
    expect_none();
    pass(1);
    expect_stuck(two, 1, 0x2);
}
END_TEST

START_TEST(only_the_device_of_the_rank_is_out_of_use)
{
    pool_stuck(4, 2, 0x4);
    submit(1);
    expect_start(1, 0);
    submit(1);
    expect_start(1, 1);
    submit(1);
    expect_start(1, 3); // and not on device 2
    submit(1);
    expect_none();
    submit_refused(4, STATUS_UNAVAILABLE, "rank 2 of a pool of 4 ranks");
    submit_refused(3, STATUS_UNAVAILABLE, "device 2");
}
END_TEST

START_TEST(a_larger_pool_waits_for_usable_devices)
{
    pool_stuck(1, 0, 0x1);
    struct ranks one = pool_up(1); // on device 1
    struct action run = run_in(one);
    submit(2);
    expect_start(2, 1); // not on 0 and 1
    submit(2);
    expect_none();
    run_finish(one, run);
    expect_none();
}
END_TEST

START_TEST(jobs_without_a_possible_pool_are_answered)
{
    struct ranks four = pool_hangs(4, 3);
    int large = submit(4), three = submit(3), one = submit(1);
    expect_none();
    pass(KILL_TIMEOUT_NS);
    expect_stuck(four, 3, 0x8);
    expect_answer_stuck(large, four, 3, 0x8);
    struct ranks other = expect_start(3, 0);
    ranks_ready(other);
    struct action run = expect_run(other, three);
    run_finish(other, run);
    expect_run(start_ready(1, 0), one);
}
END_TEST

START_TEST(the_answer_names_the_stuck_rank)
{
    struct core_stuck stuck = {.pool = -7};
    struct ranks four = pool_hangs(4, 1);
    ck_assert(!core_is_stuck(f.core, &(struct core_request){.world_size = 4},
                             &stuck)); // it may still end
    pass(KILL_TIMEOUT_NS);
    expect_stuck(four, 1, 0x2);
    ck_assert(
        !core_is_stuck(f.core, &(struct core_request){.world_size = 2}, &stuck)); // devices 2 and 3
    ck_assert_int_eq(stuck.pool, -7);
    ck_assert(core_is_stuck(f.core, &(struct core_request){.world_size = 4}, &stuck));
    ck_assert_int_eq(stuck.pool, four.pool);
    ck_assert_uint_eq(stuck.generation, four.generation);
    ck_assert_int_eq(stuck.rank, 1);
    ck_assert_int_eq(stuck.device, 1);
}
END_TEST

START_TEST(a_running_case_on_its_devices_continues)
{
    struct ranks four = pool_up(4), two = pool_up(2);
    rank_dies(four, 0); // idle: it holds no devices
    expect_kill(four);
    struct action run = run_in(two);
    pass(KILL_TIMEOUT_NS);
    expect_stuck(four, 1, 0xe);
    run_finish(two, run); // on devices 0 and 1
    submit_refused(2, STATUS_UNAVAILABLE, "device 1");
    submit(1);
    expect_start(1, 0);
}
END_TEST

START_TEST(devices_are_usable_again_after_reaping)
{
    struct ranks four = pool_hangs(4, 3);
    pass(KILL_TIMEOUT_NS);
    expect_stuck(four, 3, 0x8);
    submit_refused(4, STATUS_UNAVAILABLE, "device 3");
    pass(3600 * S);
    rank_dies(four, 3);
    struct ranks again = pool_up(4);
    ck_assert_uint_gt(again.generation, four.generation);
}
END_TEST

START_TEST(devices_return_one_by_one)
{
    struct ranks two = pool_up(2);
    rank_fails(two, 0);
    expect_kill(two);
    pass(KILL_TIMEOUT_NS);
    expect_stuck(two, 0, 0x3);
    submit_refused(4, STATUS_UNAVAILABLE, "device 0");
    rank_dies(two, 0);
    submit_refused(4, STATUS_UNAVAILABLE, "device 1");
    rank_dies(two, 1);
    submit(4);
    expect_start(4, 0);
}
END_TEST

START_TEST(a_drain_does_not_wait_for_a_stuck_rank)
{
    struct ranks four = pool_stuck(4, 3, 0x8), one = pool_up(1);
    core_drain(f.core, f.now_ns);
    expect_kill(one);
    submit_refused(4, STATUS_UNAVAILABLE, "draining");
    ck_assert(
        !core_is_stuck(f.core, &(struct core_request){.world_size = 4}, &(struct core_stuck){0}));
    rank_dies(one, 0);
    expect(ACTION_EXIT);
    rank_dies(four, 3); // may follow EXIT
}
END_TEST

START_TEST(a_drain_waits_until_a_killed_rank_is_stuck)
{
    struct ranks four = pool_hangs(4, 3);
    core_drain(f.core, f.now_ns);
    expect_none();
    pass(KILL_TIMEOUT_NS);
    expect_stuck(four, 3, 0x8);
    expect(ACTION_EXIT);
}
END_TEST

START_TEST(stuck_ranks_do_not_count_as_ranks)
{
    struct core_config config = fixture_config();
    config.ranks_max = 3;
    fixture_again(&config);
    pool_stuck(2, 1, 0x2);
    pool_up(1);
    submit(2);
    expect_start(2, 1);
}
END_TEST

START_TEST(a_failed_start_counts_even_if_its_ranks_get_stuck)
{
    int slot = submit(2);
    struct ranks two = expect_start(2, 0);
    rank_fails(two, 0);
    expect_kill(two);
    struct ranks other = expect_start(2, 1); // the other devices
    rank_dies(two, 0);
    pass(KILL_TIMEOUT_NS);
    expect_stuck(two, 1, 0x2);
    ranks_ready(other);
    expect_run(other, slot);
    submit(2);
    expect_none(); // waits for the other pool
}
END_TEST

// A device gets out of use. Jobs do not wait for a pool that starts on it.
START_TEST(no_pool_starts_on_devices_of_stuck_ranks)
{
    struct ranks four = pool_up(4);
    rank_dies(four, 0);
    expect_kill(four); // idle: it holds no devices
    for (int rank = 2; rank < 4; rank++)
        rank_dies(four, rank);
    pass(KILL_TIMEOUT_NS - S);
    int slot = submit(2);
    struct ranks vain = expect_start(2, 0);
    pass(S);
    expect_stuck(four, 1, 0x2);
    struct ranks other = expect_start(2, 1);
    ranks_ready(vain);
    expect_none();
    ranks_ready(other);
    expect_run(other, slot);
}
END_TEST

START_TEST(stuck_ranks_on_shared_devices_are_assigned_in_turn)
{
    struct core_config config = fixture_config();
    config.hosts[0].device_count = 2;
    config.ranks_per_device = 3;
    fixture_again(&config);
    pool_stuck(5, 3, 0x2); // ranks 1 and 3 on device 1
    submit_refused(2, STATUS_UNAVAILABLE, "device 1");
    submit_refused(5, STATUS_UNAVAILABLE, "rank 3 of a pool of 5 ranks");
    submit(1);
    expect_start(1, 0);
}
END_TEST

START_TEST(status_shows_stuck_pools)
{
    struct wire_status status;
    struct wire_pool pools[POOLS_MAX];
    pool_stuck(4, 2, 0x4);
    core_status(f.core, &status, pools);
    ck_assert_int_eq(status.pool_count, 1);
    ck_assert_int_eq(pools[0].state, POOL_STUCK);
    ck_assert_uint_eq(pools[0].devices, 0x4);
    ck_assert_msg(strstr(pools[0].last_failure, "rank 2"), "\"%s\"", pools[0].last_failure);
}
END_TEST

// No pool is possible: one is DOWN, one has a stuck rank on its devices.
START_TEST(one_pool_down_and_one_stuck)
{
    pool_stuck(1, 0, 0x1); // blocks the pool of two ranks on devices 0 and 1
    int slot = submit(2);
    struct ranks two = expect_start(2, 1);
    static const uint64_t pauses_ns[] = {0, 0, 250 * MS, 250 * MS, 250 * MS};
    for (int i = 1; i < 5; i++) {
        core_start_failed(f.core, f.now_ns, two.pool, two.generation);
        pass(pauses_ns[i]);
        two = expect_start(2, 1);
    }
    core_start_failed(f.core, f.now_ns, two.pool, two.generation);
    expect_answer(slot, CAUSE_START_FAILED, -1); // all possible pools are DOWN
    submit_refused(2, STATUS_UNAVAILABLE, "DOWN");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core stuck");
    TCase *c = tcase_create("stuck");
    tcase_add_checked_fixture(c, begin, fixture_end);
    tcase_add_test(c, a_rank_that_is_ending_counts_as_a_cause);
    tcase_add_test(c, a_rank_is_stuck_after_the_kill_timeout);
    tcase_add_test(c, only_the_device_of_the_rank_is_out_of_use);
    tcase_add_test(c, a_larger_pool_waits_for_usable_devices);
    tcase_add_test(c, jobs_without_a_possible_pool_are_answered);
    tcase_add_test(c, the_answer_names_the_stuck_rank);
    tcase_add_test(c, a_running_case_on_its_devices_continues);
    tcase_add_test(c, devices_are_usable_again_after_reaping);
    tcase_add_test(c, devices_return_one_by_one);
    tcase_add_test(c, a_drain_does_not_wait_for_a_stuck_rank);
    tcase_add_test(c, a_drain_waits_until_a_killed_rank_is_stuck);
    tcase_add_test(c, stuck_ranks_do_not_count_as_ranks);
    tcase_add_test(c, a_failed_start_counts_even_if_its_ranks_get_stuck);
    tcase_add_test(c, no_pool_starts_on_devices_of_stuck_ranks);
    tcase_add_test(c, stuck_ranks_on_shared_devices_are_assigned_in_turn);
    tcase_add_test(c, status_shows_stuck_pools);
    tcase_add_test(c, one_pool_down_and_one_stuck);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}
