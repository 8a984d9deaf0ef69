// SPDX-License-Identifier: Apache-2.0
// Requests are refused at once if their deadlines cannot be met. Others are admitted.
#include "tests/support/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/machine/host.h"
#include "daemon/machine/time_bounds.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/support/generate.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  (1000 * NS_PER_MS)

static struct device_rates machine(void)
{
    const struct wire_description no_gpus = {.gpu_count = 0};
    return time_bounds_rates(&no_gpus, host_cores());
}

// Minutes of work on any machine.
static struct wire_request huge_request(int world_size)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = world_size;
    request.run.batch = 1;
    request.run.heads = request.run.kv_heads = 8;
    request.run.head_dim_qk = request.run.head_dim_v = 128;
    request.run.seqlen_q = request.run.seqlen_kv = 65536;
    return request;
}

static void expect_refused(struct wire_reply *reply, const char *part)
{
    expect_status(reply, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply->message, part);
    ck_assert_int_eq(reply->failure.world_size, 0); // no rank has begun
    wire_reply_fini(reply);
}

static struct wire_reply status_with_pools(void)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    return reply;
}

START_TEST(nothing_is_started_for_a_deadline_that_cannot_be_met)
{
    struct wire_request request = huge_request(4);
    request.timeout_ns = NS_PER_MS;
    struct wire_reply reply = daemon_call(&d, &request), status = status_with_pools();
    expect_refused(&reply, "which its time limit of 1.00 ms does not allow; accepted is ");
    ck_assert_uint_eq(status.pools.refused, 1);
    ck_assert_uint_eq(status.pools.admitted, 0);
    ck_assert_int_eq(status.pools.pool_count, 0);
    wire_reply_fini(&status);
    ck_assert_int_eq(daemon_child_count(&d), 0);
    // The id is not remembered: with more time the same request runs.
    request.timeout_ns = 3600 * NS_PER_S;
    struct call call = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    struct wire_request cancel = daemon_request(METHOD_CANCEL);
    cancel.cancel = request.id;
    reply = daemon_call(&d, &cancel);
    expect_status(&reply, STATUS_OK);
    reply = daemon_call_end(&call);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
}
END_TEST

START_TEST(the_limit_of_the_run_is_checked_too)
{
    struct wire_request request = huge_request(2);
    request.timeout_ns = 3600 * NS_PER_S;
    request.run_timeout_ns = NS_PER_S;
    struct wire_reply reply = daemon_call(&d, &request);
    expect_refused(&reply, "which its time limit for the run of 1.00 s does not allow");
    ck_assert_int_eq(daemon_child_count(&d), 0);
}
END_TEST

START_TEST(earlier_jobs_of_the_user_count)
{
    struct device_rates rates = machine();
    struct wire_request running = huge_request(2), waiting = huge_request(2);
    struct wire_request request = huge_request(2);
    uint64_t bound_ns = time_bounds_case_ns(&rates, &request.run);
    running.timeout_ns = waiting.timeout_ns = 24 * 3600 * NS_PER_S;
    struct call first = daemon_call_begin(&d, &running);
    daemon_await_running(&d, 1);
    struct call second = daemon_call_begin(&d, &waiting);
    daemon_await_queued(&d, 1);
    request.timeout_ns = 2 * bound_ns - NS_PER_MS;
    struct wire_reply reply = daemon_call(&d, &request);
    expect_refused(&reply, "and the 1 request of this user waiting before it ");
    ck_assert_int_eq(daemon_status(&d).queued, 1);
    request.timeout_ns = 2 * bound_ns + NS_PER_S;
    struct call third = daemon_call_begin(&d, &request);
    daemon_await_queued(&d, 2);
    struct call *const calls[] = {&third, &second, &first};
    const struct request_id *const ids[] = {&request.id, &waiting.id, &running.id};
    for (int i = 0; i < 3; i++) {
        struct wire_request cancel = daemon_request(METHOD_CANCEL);
        cancel.cancel = *ids[i];
        reply = daemon_call(&d, &cancel);
        wire_reply_fini(&reply);
        reply = daemon_call_end(calls[i]);
        expect_status(&reply, STATUS_CANCELLED);
        wire_reply_fini(&reply);
    }
}
END_TEST

// A random case.
static struct wire_request drawn_request(uint64_t seed)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    generate_case(seed, 4, 600, &request.run);
    request.run.world_size = 1 << seed % 3;
    request.run.comm = seed % 2 ? COMM_P2P : COMM_ALL_GATHER;
    request.run.a2a_size = CASE_A2A_SIZE_DEFAULT;
    request.run.explore_seed = 0;
    request.timeout_ns = 3600 * NS_PER_S;
    return request;
}

// No case runs in less time than its bound, on any machine.
static void expect_longer_than_bound(const struct wire_request *request)
{
    struct device_rates rates = machine();
    char text[128];
    struct wire_reply reply = daemon_call(&d, request);
    expect_status(&reply, STATUS_OK);
    uint64_t bound_ns = time_bounds_case_ns(&rates, &request->run);
    case_describe(&request->run, text, sizeof(text));
    ck_assert_uint_lt(bound_ns, reply.result.run_ns);
    if (getenv("CPATTN_TEST_VERBOSE"))
        printf("# bound %8.3f ms, run %8.3f ms, %.1f times: %s\n", (double)bound_ns / 1e6,
               (double)reply.result.run_ns / 1e6, (double)reply.result.run_ns / (double)bound_ns,
               text);
    wire_reply_fini(&reply);
}

START_TEST(no_random_case_beats_its_bound)
{
    int run = 0;
    for (uint64_t seed = 0; run < 24; seed++) {
        struct wire_request request = drawn_request(seed);
        if (case_check(&request.run, NULL) != STATUS_OK)
            continue;
        expect_longer_than_bound(&request);
        run++;
    }
}
END_TEST

// Cases in which the bound counts almost all work.
static const struct {
    int world_size, heads, kv_heads, dim;
    int64_t length, window;
    enum case_mask mask;
    bool training, verify;
} busy[] = {
    {1, 8, 8, 128, 2048, -1, MASK_NONE, false, false},
    {1, 8, 8, 128, 2048, -1, MASK_NONE, true, false},
    {1, 2, 2, 256, 2048, -1, MASK_NONE, true, false},
    {2, 8, 8, 128, 2048, -1, MASK_CAUSAL, true, false},
    {2, 8, 2, 64, 2048, -1, MASK_CAUSAL, true, false},
    {2, 4, 4, 128, 1024, -1, MASK_NONE, false, true},
    {1, 4, 4, 128, 1024, -1, MASK_NONE, true, true},
    {2, 4, 4, 128, 2048, -1, MASK_CAUSAL, true, true},
    {4, 8, 1, 128, 1024, -1, MASK_CAUSAL_BOTTOM_RIGHT, true, true},
    {1, 8, 8, 128, 8192, 0, MASK_CAUSAL, false, false},
    {2, 8, 8, 128, 8192, 16, MASK_CAUSAL, true, false},
    {8, 8, 8, 128, 2048, 64, MASK_CAUSAL, true, true},
};

START_TEST(no_busy_case_beats_its_bound)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    struct cp_case *c = &request.run;
    c->world_size = busy[_i].world_size;
    c->batch = 1;
    c->heads = busy[_i].heads;
    c->kv_heads = busy[_i].kv_heads;
    c->head_dim_qk = c->head_dim_v = busy[_i].dim;
    c->seqlen_q = c->seqlen_kv = busy[_i].length;
    c->window_left = busy[_i].window;
    c->mask = busy[_i].mask;
    c->training = busy[_i].training;
    c->verify = busy[_i].verify ? VERIFY_AUTO : VERIFY_OFF;
    request.timeout_ns = 3600 * NS_PER_S;
    expect_longer_than_bound(&request);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon deadline");
    TCase *tcase = tcase_create("deadlines");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, daemon_setup_started, daemon_teardown_stopped);
    tcase_add_test(tcase, nothing_is_started_for_a_deadline_that_cannot_be_met);
    tcase_add_test(tcase, the_limit_of_the_run_is_checked_too);
    tcase_add_test(tcase, earlier_jobs_of_the_user_count);
    tcase_add_test(tcase, no_random_case_beats_its_bound);
    tcase_add_loop_test(tcase, no_busy_case_beats_its_bound, 0,
                        (int)(sizeof(busy) / sizeof(busy[0])));
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
