// SPDX-License-Identifier: Apache-2.0
// The pool core: pools of guests on the same devices as other pools.
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static void begin(void)
{
    struct core_config config = fixture_config();
    config.guest_count = 2;
    config.guests[0] = (struct core_guest){.world_sizes = 2 | 8, .start_timeout_ns = 30 * S};
    config.guests[1] = (struct core_guest){.world_sizes = UINT64_MAX, .start_timeout_ns = 2 * S};
    fixture_begin(&config);
}

static struct core_request request_of(int implementation, int world_size)
{
    struct core_request request = request_make(world_size);
    request.implementation = implementation;
    return request;
}

static int submit_to(int implementation, int world_size)
{
    struct core_request request = request_of(implementation, world_size);
    int slot;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    return slot;
}

static struct ranks expect_start_of(int implementation, int world_size)
{
    struct action start = expect(ACTION_START);
    ck_assert_int_eq(start.implementation, implementation);
    ck_assert_int_eq(start.world_size, world_size);
    return (struct ranks){start.pool, world_size, start.generation};
}

START_TEST(a_guest_has_separate_pools)
{
    struct ranks own = pool_up(2);
    int slot = submit_to(1, 2);
    struct ranks guest = expect_start_of(1, 2);
    ranks_ready(guest);
    struct action run = expect_run(guest, slot);
    ck_assert_int_eq(run.implementation, 1);
    run_finish(guest, run);
    // Both pools are warm. Each runs its own jobs.
    run_finish(own, run_in(own));
    slot = submit_to(1, 2);
    run_finish(guest, expect_run(guest, slot));
    slot = submit_to(2, 2);
    (void)slot;
    expect_start_of(2, 2);
}
END_TEST

START_TEST(devices_have_one_job_at_a_time_with_guests_too)
{
    struct ranks own = pool_up(4);
    struct action run = run_in(own);
    int slot = submit_to(1, 4);
    expect_none(); // all devices are in use
    run_finish(own, run);
    struct ranks guest = expect_start_of(1, 4);
    ranks_ready(guest);
    run = expect_run(guest, slot);
    submit(4);
    expect_none();
    run_finish(guest, run);
    expect(ACTION_RUN);
}
END_TEST

START_TEST(a_guest_has_its_own_start_timeout)
{
    submit_to(2, 1);
    struct ranks quick = expect_start_of(2, 1);
    submit_to(1, 2);
    struct ranks slow = expect_start_of(1, 2);
    pass(2 * S);
    expect_kill(quick);
    ranks_reap(quick);
    ranks_ready(expect_start_of(2, 1)); // the second attempt
    expect(ACTION_RUN);
    pass(28 * S - 1);
    expect_none();
    pass(1);
    expect_kill(slow);
}
END_TEST

START_TEST(a_start_that_no_job_awaits_yields_its_devices)
{
    struct core_request request = request_of(1, 4);
    int slot;
    request.timeout_ns = 3 * S;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    struct ranks hanging = expect_start_of(1, 4);
    pass(3 * S);
    expect_answer(slot, CAUSE_DEADLINE_STARTING, -1);
    expect_none(); // a repetition of the job finds it ready
    int other = submit(2);
    expect_kill(hanging);
    ranks_reap(hanging);
    struct ranks own = start_ready(2, 0);
    run_finish(own, expect_run(own, other));
}
END_TEST

START_TEST(a_start_that_a_job_awaits_keeps_its_devices)
{
    int slot = submit_to(1, 4);
    struct ranks guest = expect_start_of(1, 4);
    submit(2);
    expect_none();
    ranks_ready(guest);
    expect_run(guest, slot);
}
END_TEST

START_TEST(a_guest_supports_only_its_world_sizes)
{
    struct core_request request = request_of(1, 3);
    struct admission admission;
    ck_assert_int_eq(core_submit(f.core, f.now_ns, &request, &admission, &f.error),
                     STATUS_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(f.error.text, "does not take 3 ranks"));
    submit_to(2, 3);
    expect_start_of(2, 3);
}
END_TEST

START_TEST(failures_of_a_guest_affect_no_other)
{
    struct ranks own = pool_up(2);
    int slot = submit_to(1, 2);
    struct ranks guest = expect_start_of(1, 2);
    ranks_ready(guest);
    expect_run(guest, slot);
    rank_dies(guest, 1);
    expect_answer(slot, CAUSE_RANK_EXITED, 1);
    expect_kill(guest);
    ranks_reap(guest);
    run_finish(own, run_in(own));
}
END_TEST

START_TEST(guests_have_no_spares)
{
    struct core_config config = fixture_config_with_spares();
    config.guest_count = 1;
    config.guests[0] = (struct core_guest){.world_sizes = UINT64_MAX, .start_timeout_ns = S};
    fixture_again(&config);
    int slot = submit_to(1, 1);
    struct ranks guest = expect_start_of(1, 1);
    ranks_ready(guest);
    expect_run(guest, slot);
    expect_none();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core guests");
    TCase *guests = tcase_create("guests");
    tcase_add_checked_fixture(guests, begin, fixture_end);
    tcase_add_test(guests, a_guest_has_separate_pools);
    tcase_add_test(guests, devices_have_one_job_at_a_time_with_guests_too);
    tcase_add_test(guests, a_guest_has_its_own_start_timeout);
    tcase_add_test(guests, a_start_that_no_job_awaits_yields_its_devices);
    tcase_add_test(guests, a_start_that_a_job_awaits_keeps_its_devices);
    tcase_add_test(guests, a_guest_supports_only_its_world_sizes);
    tcase_add_test(guests, failures_of_a_guest_affect_no_other);
    tcase_add_test(guests, guests_have_no_spares);
    suite_add_tcase(suite, guests);
    return runner_run(suite);
}
