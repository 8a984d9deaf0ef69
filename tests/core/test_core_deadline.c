// SPDX-License-Identifier: Apache-2.0
// The pool core: refusal of deadlines that cannot be met, by the lower bounds of jobs.
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static void begin(void)
{
    struct core_config config = fixture_config();
    fixture_begin(&config);
}

static struct core_request request_bound(int world_size, uint64_t cost_ns, uint64_t timeout_ns)
{
    struct core_request request = request_make(world_size);
    request.cost_ns = cost_ns;
    request.timeout_ns = timeout_ns;
    return request;
}

static int admit(int world_size, uint64_t cost_ns, uint64_t timeout_ns)
{
    struct core_request request = request_bound(world_size, cost_ns, timeout_ns);
    int slot = -1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    return slot;
}

static void refuse_request(const struct core_request *request, const char *sentence)
{
    int slot = -77;
    ck_assert_int_eq(submit_request(request, &slot), STATUS_DEADLINE_EXCEEDED);
    ck_assert_int_eq(slot, -77);
    ck_assert_str_eq(f.error.text, sentence);
    expect_none();
}

static void refuse(int world_size, uint64_t cost_ns, uint64_t timeout_ns, const char *sentence)
{
    struct core_request request = request_bound(world_size, cost_ns, timeout_ns);
    refuse_request(&request, sentence);
}

// A pool of all devices runs a job, so the next jobs wait.
static struct action occupy(void)
{
    return run_in(pool_up(4));
}

START_TEST(a_job_must_fit_its_own_deadline)
{
    refuse(4, 11300 * MS, MS,
           "the case takes at least 11.3 s here, which its time limit of 1.00 ms does not allow; "
           "accepted is 12s or more");
    refuse(4, S, S - 1,
           "the case takes at least 1.00 s here, which its time limit of 1.00 s does not allow; "
           "accepted is 1s or more");
    admit(4, S, S);
    expect_start(4, 0);
}
END_TEST

START_TEST(a_job_beyond_the_longest_timeout_is_refused)
{
    refuse(4, TIMEOUT_MAX_NS + 1, TIMEOUT_MAX_NS,
           "the case takes at least 24 h 00 m here, which its time limit of 24 h 00 m does not "
           "allow; no time limit that may be asked for is long enough");
}
END_TEST

START_TEST(the_limit_of_the_run_is_checked_alone)
{
    struct core_request request = request_bound(4, 250 * MS, 60 * S);
    int slot;
    request.run_timeout_ns = 20 * MS;
    refuse_request(&request,
                   "the case takes at least 250 ms here, which its time limit for the run of "
                   "20.0 ms does not allow; accepted is 250ms or more");
    request.run_timeout_ns = 250 * MS;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    expect_start(4, 0);
}
END_TEST

START_TEST(earlier_jobs_count)
{
    struct action busy = occupy();
    int first = admit(4, 2 * S, 60 * S);
    refuse(4, S, 3 * S - 1,
           "the case takes at least 1.00 s here and the 1 request of this user waiting before it "
           "2.00 s, which "
           "its time limit of 3.00 s does not allow; accepted is 3s or more");
    admit(4, S, 3 * S);
    refuse(4, S, 4 * S - 1,
           "the case takes at least 1.00 s here and the 2 requests of this user waiting before it "
           "3.00 s, which "
           "its time limit of 4.00 s does not allow; accepted is 4s or more");
    // A running job does not count, because the rest of its time is not known.
    struct ranks ranks = {busy.pool, 4, busy.generation};
    run_finish(ranks, busy);
    expect_run(ranks, first);
    admit(4, S, 2 * S);
}
END_TEST

// Another user's jobs may have their turn later.
START_TEST(only_jobs_of_the_same_user_count)
{
    occupy();
    for (int i = 0; i < 4; i++)
        admit(4, 9 * S, 60 * S);
    struct core_request request = request_bound(4, S, 10 * S);
    int slot;
    request.user = 1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    refuse(4, S, 10 * S,
           "the case takes at least 1.00 s here and the 4 requests of this user waiting before it "
           "36.0 s, which its time limit of 10.0 s does not allow; accepted is 37s or more");
}
END_TEST

START_TEST(other_world_sizes_do_not_count)
{
    occupy();
    admit(4, 2 * S, 60 * S);
    admit(2, S, S);
}
END_TEST

// Two pools of two ranks share the waiting jobs. When one pool is done with them, the other may
// still run the longest of them.
START_TEST(pools_work_side_by_side)
{
    occupy();
    admit(2, 2 * S, 60 * S);
    admit(2, S, S); // may run in the second pool at once
    admit(2, S, 60 * S);
    refuse(2, S, 2 * S - 1,
           "the case takes at least 1.00 s here and the 3 requests of this user waiting before it "
           "1.00 s, which "
           "its time limit of 2.00 s does not allow; accepted is 2s or more");
    admit(2, S, 2 * S);
}
END_TEST

START_TEST(earlier_jobs_count_up_to_their_deadlines)
{
    occupy();
    admit(4, 9 * S, 10 * S);
    refuse(4, S, 10 * S - 1,
           "the case takes at least 1.00 s here and the 1 request of this user waiting before it "
           "9.00 s, which "
           "its time limit of 10.0 s does not allow; accepted is 10s or more");
    pass(5 * S); // the earlier job has 5 s left until its deadline
    admit(4, S, 6 * S);
}
END_TEST

// A job that leaves the queue without running does not count either.
START_TEST(jobs_that_leave_do_not_count)
{
    occupy();
    struct core_request request = request_bound(4, 3 * S, 60 * S);
    int cancelled, expiring, abandoned;
    ck_assert_int_eq(submit_request(&request, &cancelled), STATUS_OK);
    expiring = admit(4, S, 4 * S);
    abandoned = admit(4, S, 60 * S);
    refuse(4, S, 6 * S - 1,
           "the case takes at least 1.00 s here and the 3 requests of this user waiting before it "
           "5.00 s, which "
           "its time limit of 6.00 s does not allow; accepted is 6s or more");
    ck_assert_int_eq(core_cancel(f.core, f.now_ns, &request.id, 0, &f.error), STATUS_OK);
    expect_answer(cancelled, CAUSE_CANCELLED, -1);
    core_abandon(f.core, f.now_ns, &abandoned, 1);
    expect_answer(abandoned, CAUSE_CANCELLED, -1);
    pass(4 * S);
    expect_answer(expiring, CAUSE_DEADLINE_QUEUED, -1);
    admit(4, S, S);
}
END_TEST

// A refusal is counted, and the id may come again.
START_TEST(a_refused_request_is_counted_and_not_stored)
{
    struct wire_status status;
    struct wire_pool pools[POOLS_MAX];
    struct core_request request = request_bound(4, 2 * S, S);
    int slot;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_DEADLINE_EXCEEDED);
    core_status(f.core, &status, pools);
    ck_assert_uint_eq(status.refused, 1);
    ck_assert_uint_eq(status.admitted, 0);
    request.timeout_ns = 2 * S;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    expect_start(4, 0);
}
END_TEST

START_TEST(the_largest_bounds_add_up)
{
    occupy();
    for (int i = 0; i < 6; i++)
        admit(4, CORE_COST_MAX_NS, UINT64_MAX);
    refuse(4, S, TIMEOUT_MAX_NS,
           "the case takes at least 1.00 s here and the 6 requests of this user waiting before it "
           "1876 h 29 m, "
           "which its time limit of 24 h 00 m does not allow; no time limit that may be asked for "
           "is long enough");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core deadline");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin, fixture_end);
    tcase_add_test(all, a_job_must_fit_its_own_deadline);
    tcase_add_test(all, a_job_beyond_the_longest_timeout_is_refused);
    tcase_add_test(all, the_limit_of_the_run_is_checked_alone);
    tcase_add_test(all, earlier_jobs_count);
    tcase_add_test(all, only_jobs_of_the_same_user_count);
    tcase_add_test(all, other_world_sizes_do_not_count);
    tcase_add_test(all, pools_work_side_by_side);
    tcase_add_test(all, earlier_jobs_count_up_to_their_deadlines);
    tcase_add_test(all, jobs_that_leave_do_not_count);
    tcase_add_test(all, a_refused_request_is_counted_and_not_stored);
    tcase_add_test(all, the_largest_bounds_add_up);
    suite_add_tcase(suite, all);
    return runner_run(suite);
}
