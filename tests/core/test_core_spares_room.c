// SPDX-License-Identifier: Apache-2.0
// The pool core: hot spares make room for other pools, idle out, and appear in the status.
#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static void begin(void)
{
    struct core_config config = fixture_config_with_spares();
    fixture_begin(&config);
}

static void begin_with(int device_count, int ranks_max, uint64_t idle_timeout_ns)
{
    struct core_config config = fixture_config_with_spares();
    config.hosts[0].device_count = device_count;
    config.ranks_max = ranks_max;
    config.idle_timeout_ns = idle_timeout_ns;
    fixture_again(&config);
}

// ---- pools that take a spare's place -----------------------------------------------------------

START_TEST(spares_make_room_first)
{
    begin_with(4, 6, 0);
    struct pair one = pair_up(1), two = pair_up(2);
    submit(3); // 6 of 6 ranks are up
    expect_kill(one.spare);
    expect_kill(two.spare);
    expect_none();
    rank_dies(one.spare, 0);
    ranks_reap(two.spare);
    struct ranks three = expect_leader(3);
    ranks_ready(three);
    run_finish(three, expect(ACTION_RUN));
    expect_none(); // no room for spares
    run_finish(one.leader, run_in(one.leader));
    run_finish(two.leader, run_in(two.leader));
}
END_TEST

START_TEST(spares_that_start_make_room_too)
{
    begin_with(4, 5, 0);
    struct pair two = pair_starting(2);
    submit(3);
    expect_kill(two.spare);
    ranks_reap(two.spare);
    expect_leader(3);
}
END_TEST

START_TEST(spares_leave_the_room_that_a_job_waits_for)
{
    begin_with(4, 4, 0);
    int two = submit(2);
    struct ranks leader = expect_leader(2);
    submit(4); // waits for devices, and will need room for 4
    ranks_ready(leader);
    run_finish(leader, expect_run(leader, two));
    expect_kill(leader);
}
END_TEST

START_TEST(without_room_no_spare_is_started)
{
    begin_with(4, 5, 0);
    struct pair one = pair_up(1);
    int slot = submit(3);
    struct ranks three = start_ready(3, 0);
    run_finish(three, expect_run(three, slot));
    expect_none();
    rank_dies(one.leader, 0);
    expect_spare(1); // there is room for one rank
}
END_TEST

START_TEST(a_spare_stays_exactly_as_long_as_its_leader)
{
    begin_with(4, 16, 10 * S);
    struct pair pair = pair_up(2);
    for (int i = 0; i < 5; i++) {
        pass(9 * S);
        run_finish(pair.leader, run_in(pair.leader));
    }
    pass(10 * S - 1);
    expect_none();
    pass(1);
    expect_kill(pair.spare);
    expect_kill(pair.leader);
    ranks_reap(pair.leader);
    ranks_reap(pair.spare);
    expect_none();
    ck_assert_uint_eq(core_next_time(f.core), UINT64_MAX);
}
END_TEST

START_TEST(the_idle_time_of_a_spare_counts_from_when_it_leads)
{
    begin_with(4, 16, 10 * S);
    struct pair pair = pair_up(2);
    pass(9 * S);
    rank_dies(pair.leader, 0);
    expect_kill(pair.leader);
    pass(5 * S - 1);
    rank_dies(pair.leader, 1);
    struct ranks fresh = expect_spare(2);
    pass(5 * S);
    expect_none();
    pass(1);
    expect_kill(fresh);
    expect_kill(pair.spare);
}
END_TEST

START_TEST(draining_ends_both)
{
    struct pair pair = pair_up(4), other = pair_starting(1);
    core_drain(f.core, f.now_ns);
    expect_kill(pair.leader);
    expect_kill(pair.spare);
    expect_kill(other.leader);
    expect_kill(other.spare);
    ranks_reap(pair.leader);
    ranks_reap(pair.spare);
    ranks_reap(other.leader);
    ranks_reap(other.spare);
    expect(ACTION_EXIT);
}
END_TEST

START_TEST(while_draining_a_spare_takes_over_and_no_other_is_started)
{
    struct pair pair = pair_up(4);
    struct action run = run_in(pair.leader);
    int waits = submit(4);
    core_drain(f.core, f.now_ns);
    leader_dies(pair, run);
    ranks_reap_but(pair.leader, 0);
    run = expect_run(pair.spare, waits);
    run_finish(pair.spare, run);
    expect_kill(pair.spare);
    ranks_reap(pair.spare);
    expect(ACTION_EXIT);
}
END_TEST

START_TEST(no_spare_is_started_where_a_rank_is_stuck)
{
    struct pair four = pair_up(4);
    struct pair one = pair_starting(1);
    rank_dies(one.spare, 0);
    rank_dies(four.spare, 1);
    expect_kill(four.spare);
    pass(5 * S);
    struct action stuck = expect(ACTION_STUCK);
    ck_assert_uint_eq(stuck.devices, 0xd);
    expect_none(); // the spare of `one` is due, and devices 0, 2 and 3 are out of use
    submit_refused(4, STATUS_UNAVAILABLE, "rank 0 of a pool of 4");
    rank_dies(four.spare, 0);
    struct ranks spare = expect_spare(1);
    rank_dies(four.spare, 2);
    rank_dies(four.spare, 3);
    expect_none();
    pass(S);
    expect_none(); // the spare of `one` starts on device 0
    ranks_ready(spare);
    expect_spare(4);
}
END_TEST

START_TEST(status_tells_spares)
{
    struct wire_status status;
    struct wire_pool pools[POOLS_MAX];
    struct pair pair = pair_up(2);
    core_status(f.core, &status, pools);
    ck_assert_int_eq(status.pool_count, 2);
    ck_assert(!pools[0].spare && pools[0].jobs == 1 && pools[0].state == POOL_IDLE);
    ck_assert(pools[1].spare && pools[1].jobs == 0 && pools[1].state == POOL_IDLE);
    ck_assert(pools[0].instance == pools[1].instance && pools[0].devices == pools[1].devices);
    rank_dies(pair.leader, 0);
    expect_kill(pair.leader);
    core_status(f.core, &status, pools);
    ck_assert(pools[0].spare && pools[0].state == POOL_STOPPING);
    ck_assert(!pools[1].spare && pools[1].state == POOL_IDLE);
}
END_TEST

START_TEST(the_largest_machine)
{
    begin_with(DEVICES_MAX, RANKS_MAX, 0);
    struct wire_status status;
    struct wire_pool pools[POOLS_MAX];
    for (int i = 0; i < 5; i++)
        pair_up(1 + i);
    for (int w = 6; w <= 30; w++) { // spares make room
        int slot = submit(w);
        struct action a;
        while (core_next_action(f.core, &a)) {
            struct ranks ranks = {a.pool, a.world_size, a.generation};
            if (a.kind == ACTION_KILL)
                ranks_reap(ranks);
            else if (a.kind == ACTION_START)
                ranks_ready(ranks);
            else if (a.kind == ACTION_RUN)
                ranks_report(ranks, a.job);
            else
                ck_assert_int_eq(a.slot, slot);
        }
    }
    core_status(f.core, &status, pools);
    ck_assert_int_le(status.pool_count, POOLS_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core spares room");
    TCase *c = tcase_create("room");
    tcase_add_checked_fixture(c, begin, fixture_end);
    tcase_add_test(c, spares_make_room_first);
    tcase_add_test(c, spares_that_start_make_room_too);
    tcase_add_test(c, spares_leave_the_room_that_a_job_waits_for);
    tcase_add_test(c, without_room_no_spare_is_started);
    tcase_add_test(c, a_spare_stays_exactly_as_long_as_its_leader);
    tcase_add_test(c, the_idle_time_of_a_spare_counts_from_when_it_leads);
    tcase_add_test(c, draining_ends_both);
    tcase_add_test(c, while_draining_a_spare_takes_over_and_no_other_is_started);
    tcase_add_test(c, no_spare_is_started_where_a_rank_is_stuck);
    tcase_add_test(c, status_tells_spares);
    tcase_add_test(c, the_largest_machine);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}
