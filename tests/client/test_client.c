// SPDX-License-Identifier: Apache-2.0
// The library against a daemon that answers: results, many requests in flight, threads.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cpattn.h"
#include "client/link.h"
#include "tests/client/fake.h"
#include "tests/support/runner.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

static struct fake fake;
static struct cpattn_client *client;
static struct cpattn_error error;
static struct cpattn_result *result;

static void setup(void)
{
    client = fake_open(&fake);
}

static void teardown(void)
{
    fake_close(&fake, client);
}

static enum cpattn_status run(const char *label)
{
    return fake_run(client, label, &result, &error);
}

// ---- answers ------------------------------------------------------------------------------------

START_TEST(a_verdict_comes_with_its_figures)
{
    ck_assert_int_eq(run("pass"), CPATTN_OK);
    ck_assert_int_eq(result->verdict, CPATTN_VERDICT_PASS);
    ck_assert_int_eq(result->world_size, 2);
    ck_assert_uint_eq(result->digest, 1234); // the default seed
    for (int rank = 0; rank < 2; rank++) {
        const struct cpattn_rank *of = cpattn_result_rank(result, rank);
        ck_assert_int_eq(of->rank, rank);
        ck_assert_str_ne(of->diagnosis_tensor, "?");
        ck_assert(of->diagnosis_tensor[0] || !of->diagnosis[0]);
        for (int i = 0; i < of->figures_count; i++)
            ck_assert_str_ne(cpattn_result_figures(result, rank, i)->tensor, "?");
        ck_assert_ptr_null(cpattn_result_figures(result, rank, of->figures_count));
        ck_assert_ptr_null(cpattn_result_figures(result, rank, -1));
    }
    ck_assert_ptr_null(cpattn_result_rank(result, 2));
    ck_assert_ptr_null(cpattn_result_rank(result, -1));
    ck_assert_ptr_null(cpattn_result_failure(result, 0));
    cpattn_result_destroy(result);
}
END_TEST

START_TEST(a_failed_verdict_is_an_answer)
{
    ck_assert_int_eq(run("fail"), CPATTN_OK);
    ck_assert_int_eq(result->verdict, CPATTN_VERDICT_FAIL);
    cpattn_result_destroy(result);
}
END_TEST

START_TEST(the_largest_result_arrives)
{
    ck_assert_int_eq(run("largest"), CPATTN_OK);
    ck_assert_int_eq(result->world_size, 64);
    const struct cpattn_figures *last = cpattn_result_figures(result, 63, 23);
    ck_assert_int_eq(last->elements, INT64_MAX);
    ck_assert_double_eq(last->rmse_rel, 1.1);
    ck_assert_int_eq(last->first_bad.position, (1 << 24) - 1);
    ck_assert_uint_eq(last->broken, 127);
    ck_assert_double_eq(last->twin_rel, 1.1);
    ck_assert_double_eq(last->slope, 1.1);
    ck_assert_double_eq(last->slope_limit, 1.1);
    ck_assert_int_eq(last->judged, INT64_MAX);
    ck_assert_int_eq(last->te_mismatches, INT64_MAX);
    ck_assert_int_eq(last->remark, CPATTN_REMARK_ZEROS_PASS);
    const struct cpattn_rank *rank = cpattn_result_rank(result, 63);
    ck_assert_uint_eq(strlen(rank->diagnosis), 239);
    ck_assert_str_eq(rank->diagnosis_tensor, "max_logit");
    ck_assert_double_eq(rank->diagnosis_explained, 0.9);
    cpattn_result_destroy(result);
}
END_TEST

START_TEST(a_failure_comes_with_the_states_of_the_ranks)
{
    ck_assert_int_eq(run("failure"), CPATTN_ABORTED);
    ck_assert_str_eq(error.text, "rank 1 was killed by signal 9 in forward, step 1");
    ck_assert_ptr_nonnull(result);
    ck_assert_int_eq(result->verdict, CPATTN_VERDICT_NONE);
    ck_assert_int_eq(result->world_size, 2);
    const struct cpattn_failure *failure = cpattn_result_failure(result, 1);
    ck_assert_int_eq(failure->rank, 1);
    ck_assert_str_ne(failure->phase, "?");
    ck_assert(failure->state >= ' ');
    ck_assert_uint_le(strlen(failure->stderr_tail), 4096);
    ck_assert_ptr_null(cpattn_result_failure(result, 2));
    ck_assert_ptr_null(cpattn_result_rank(result, 0));
    ck_assert_ptr_null(cpattn_result_figures(result, 0, 0));
    cpattn_result_destroy(result);
}
END_TEST

START_TEST(refusals_are_returned)
{
    ck_assert_int_eq(run("refuse"), CPATTN_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "case.heads is wrong");
    ck_assert_ptr_null(result);
}
END_TEST

static void assert_limits(uint64_t timeout_ns, uint64_t run_timeout_ns, const char *text)
{
    struct cpattn_case *c = fake_case("limits");
    struct cpattn_request *request;
    ck_assert_int_eq(cpattn_submit_limited(client, c, timeout_ns, run_timeout_ns, &request, &error),
                     CPATTN_OK);
    ck_assert(cpattn_wait(request, UINT64_MAX));
    ck_assert_int_eq(cpattn_collect(request, &result, &error), CPATTN_DEADLINE_EXCEEDED);
    ck_assert_str_eq(error.text, text);
    cpattn_request_destroy(request);
    cpattn_case_destroy(c);
}

START_TEST(time_limits_reach_the_daemon)
{
    const uint64_t day_ns = 24 * 3600 * SECOND;
    assert_limits(5 * SECOND, 3 * SECOND, "5000000000 ns, 3000000000 ns of them at work");
    assert_limits(day_ns, day_ns, "86400000000000 ns, 86400000000000 ns of them at work");
    assert_limits(0, 0, "0 ns, 0 ns of them at work"); // the daemon's defaults
    struct cpattn_case *c = fake_case("pass");
    struct cpattn_request *none;
    ck_assert_int_eq(cpattn_submit(client, c, day_ns + 1, &none, &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "timeout_ns is 86400000000001"));
    ck_assert_int_eq(cpattn_submit_limited(client, c, 0, day_ns + 1, &none, &error),
                     CPATTN_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "run_timeout_ns is 86400000000001"));
    cpattn_case_destroy(c);
}
END_TEST

// cpattn_run() and cpattn_submit() both send the options patience_ns and cancel_on_disconnect.
static void assert_wishes(const struct cpattn_options *options, const char *text)
{
    struct cpattn_client *wishing = fake_client(&fake, options);
    struct cpattn_case *c = fake_case("wishes");
    struct cpattn_request *request;
    ck_assert_int_eq(cpattn_run(wishing, c, 0, &result, &error), CPATTN_DEADLINE_EXCEEDED);
    ck_assert_str_eq(error.text, text);
    ck_assert_int_eq(cpattn_submit(wishing, c, 0, &request, &error), CPATTN_OK);
    ck_assert(cpattn_wait(request, UINT64_MAX));
    ck_assert_int_eq(fake_collect(request, &result, &error), CPATTN_DEADLINE_EXCEEDED);
    ck_assert_str_eq(error.text, text);
    cpattn_case_destroy(c);
    cpattn_client_destroy(wishing);
}

START_TEST(wishes_reach_the_daemon)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    assert_wishes(NULL, "patience 18446744073709551615 ns"); // default: no limit
    options.patience_ns = 7 * SECOND;
    options.cancel_on_disconnect = true;
    assert_wishes(&options, "patience 7000000000 ns, cancel on disconnect");
}
END_TEST

static void assert_lost(const char *label, enum cpattn_status expected, const char *part)
{
    ck_assert_int_eq(run(label), expected);
    ck_assert_msg(strstr(error.text, part) != NULL, "\"%s\" lacks \"%s\"", error.text, part);
    ck_assert_ptr_null(result);
    // The client still works.
    ck_assert_msg(run("pass") == CPATTN_OK, "after %s: %s", label, error.text);
    cpattn_result_destroy(result);
}

START_TEST(invalid_answers_are_data_loss)
{
    assert_lost("garbage", CPATTN_DATA_LOSS, "no message of this protocol (3 bytes)");
    assert_lost("empty", CPATTN_FAILED_PRECONDITION, "daemon speaks version 0");
    assert_lost("version", CPATTN_FAILED_PRECONDITION,
                "the daemon speaks version 2 of the protocol, this client version 1");
    assert_lost("other-id", CPATTN_DATA_LOSS, "answered another request");
    assert_lost("other-method", CPATTN_DATA_LOSS, "answer is of another kind");
    assert_lost("oversized", CPATTN_UNAVAILABLE, "lost");
}
END_TEST

START_TEST(describe_and_status_are_answered)
{
    struct cpattn_description *description;
    struct cpattn_daemon_status *status;
    ck_assert_int_eq(cpattn_describe(client, 0, &description, &error), CPATTN_OK);
    ck_assert_ptr_nonnull(description->version);
    ck_assert_ptr_nonnull(description->backend);
    ck_assert_int_eq(description->gpu_count, 2);
    const struct cpattn_gpu *gpu = cpattn_description_gpu(description, 1);
    ck_assert_int_eq(gpu->index, 3);
    ck_assert_str_eq(gpu->arch, "sm_90");
    ck_assert_int_eq(gpu->memory_bytes, 1 << 30);
    ck_assert_str_eq(gpu->name, "NVIDIA H200");
    ck_assert_ptr_null(cpattn_description_gpu(description, 2));
    ck_assert_ptr_null(cpattn_description_gpu(description, -1));
    cpattn_description_destroy(description);
    ck_assert_int_eq(cpattn_query_status(client, 0, &status, &error), CPATTN_OK);
    ck_assert_int_eq(status->pool_count, 3);
    for (int i = 0; i < 3; i++) {
        const struct cpattn_pool *pool = cpattn_daemon_status_pool(status, i);
        ck_assert_int_ge(pool->world_size, 1);
        ck_assert_str_ne(pool->state, "?");
        ck_assert_ptr_nonnull(pool->last_failure);
    }
    ck_assert_ptr_null(cpattn_daemon_status_pool(status, 3));
    ck_assert_ptr_null(cpattn_daemon_status_pool(status, -1));
    cpattn_daemon_status_destroy(status);
    cpattn_description_destroy(NULL);
    cpattn_daemon_status_destroy(NULL);
    cpattn_result_destroy(NULL);
}
END_TEST

// ---- many requests in flight --------------------------------------------------------------------

START_TEST(each_answer_is_returned_once)
{
    enum { MANY = 200 };
    int given[MANY] = {0};
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    options.requests_max = MANY;
    cpattn_client_destroy(client);
    client = fake_client(&fake, &options);
    for (int i = 0; i < MANY; i++) {
        char label[16];
        snprintf(label, sizeof label, "delay:%d", (i * 37) % 50);
        cpattn_request_set_tag(fake_submit(client, label), &given[i]);
    }
    struct cpattn_request *request;
    while ((request = cpattn_wait_any(client, UINT64_MAX)) != NULL) {
        ++*(int *)cpattn_request_tag(request);
        ck_assert(cpattn_poll(request));
        ck_assert_int_eq(fake_collect(request, &result, &error), CPATTN_OK);
        cpattn_result_destroy(result);
    }
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(given[i], 1);
    ck_assert_int_eq(fake_runs(client), MANY);
}
END_TEST

START_TEST(answers_are_returned_in_their_order)
{
    struct cpattn_request *slow = fake_submit(client, "delay:300"),
                          *quick = fake_submit(client, "pass");
    ck_assert_ptr_eq(cpattn_wait_any(client, UINT64_MAX), quick);
    ck_assert_ptr_eq(cpattn_wait_any(client, UINT64_MAX), slow);
    ck_assert_ptr_null(cpattn_wait_any(client, UINT64_MAX)); // nothing is left
    ck_assert_int_eq(fake_collect(slow, &result, &error), CPATTN_OK);
    cpattn_result_destroy(result);
    ck_assert_int_eq(fake_collect(quick, &result, &error), CPATTN_OK);
    cpattn_result_destroy(result);
}
END_TEST

START_TEST(a_request_can_be_waited_for_alone)
{
    struct cpattn_request *request = fake_submit(client, "hold"),
                          *other = fake_submit(client, "pass");
    ck_assert_ptr_null(cpattn_request_tag(request));
    ck_assert_uint_eq(strlen(cpattn_request_id(request)), 32);
    ck_assert_str_ne(cpattn_request_id(request), cpattn_request_id(other));
    ck_assert(!cpattn_poll(request));
    ck_assert(!cpattn_wait(request, 20 * MS));
    ck_assert_int_eq(cpattn_collect(request, &result, &error), CPATTN_FAILED_PRECONDITION);
    ck_assert(cpattn_wait(other, UINT64_MAX));
    ck_assert_int_eq(cpattn_collect(other, &result, &error), CPATTN_OK);
    struct cpattn_result *again = result;
    ck_assert_int_eq(cpattn_collect(other, &again, &error), CPATTN_OK);
    ck_assert_ptr_null(again); // the result is handed out once
    ck_assert_ptr_null(
        cpattn_wait_any(client, 20 * MS)); // one is collected already, the other is not answered
    cpattn_result_destroy(result);
    cpattn_request_destroy(other);
    cpattn_request_destroy(request);
}
END_TEST

START_TEST(requests_in_flight_are_limited)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    options.requests_max = 2;
    struct cpattn_client *narrow = fake_client(&fake, &options);
    struct cpattn_case *c = fake_case("hold");
    struct cpattn_request *requests[2], *more;
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(cpattn_submit(narrow, c, 0, &requests[i], &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_submit(narrow, c, 0, &more, &error), CPATTN_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(error.text, "2 requests are in flight"));
    ck_assert_int_eq(cpattn_run(narrow, c, 0, &result, &error), CPATTN_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(result);
    while (fake_held(narrow) != 2) // status queries do not count against the limit
        usleep(1000);
    ck_assert_int_eq(cpattn_cancel(requests[0], &error), CPATTN_OK);
    ck_assert(cpattn_wait(requests[0], UINT64_MAX));
    ck_assert_int_eq(cpattn_submit(narrow, c, 0, &more, &error), CPATTN_OK);
    cpattn_request_destroy(more);
    cpattn_request_destroy(requests[0]);
    cpattn_request_destroy(requests[1]);
    cpattn_case_destroy(c);
    cpattn_client_destroy(narrow);
}
END_TEST

START_TEST(a_silent_daemon_costs_the_time_limit)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    options.grace_ns = 30 * MS;
    struct cpattn_client *hasty = fake_client(&fake, &options);
    struct cpattn_case *c = fake_case("silent");
    ck_assert_int_eq(cpattn_run(hasty, c, 30 * MS, &result, &error), CPATTN_DEADLINE_EXCEEDED);
    ck_assert_ptr_nonnull(strstr(error.text, "did not answer in time"));
    ck_assert_int_eq(fake_runs(hasty), 1); // the request was sent once
    ck_assert_int_eq(cpattn_run(hasty, c, 24 * 3600 * 1000 * MS + 1, &result, &error),
                     CPATTN_INVALID_ARGUMENT);
    cpattn_case_destroy(c);
    cpattn_client_destroy(hasty);
}
END_TEST

// ---- orders -------------------------------------------------------------------------------------

START_TEST(orders_are_sent)
{
    uint64_t count = 0;
    ck_assert_int_eq(cpattn_order(client, CPATTN_ORDER_DRAIN, 5, 0, &count, &error), CPATTN_OK);
    ck_assert_uint_eq(count, 15); // fake_daemon: 10 * order + device
    ck_assert_int_eq(cpattn_order(client, CPATTN_ORDER_RELOAD, 0, 0, NULL, &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_order(client, (enum cpattn_order)5, 0, 0, &count, &error),
                     CPATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(cpattn_order(client, CPATTN_ORDER_ENABLE, 64, 0, &count, &error),
                     CPATTN_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "device is 64; accepted is 0 to 63");
}
END_TEST

// ---- the end of a client ------------------------------------------------------------------------

START_TEST(a_client_can_end_before_its_requests)
{
    struct cpattn_client *brief = fake_client(&fake, NULL);
    struct cpattn_case *c = fake_case("hold");
    struct cpattn_request *flying, *answered;
    ck_assert_int_eq(cpattn_submit(brief, c, 0, &flying, &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "model", "pass", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_submit(brief, c, 0, &answered, &error), CPATTN_OK);
    ck_assert(cpattn_wait(answered, UINT64_MAX));
    ck_assert(!cpattn_poll(flying));
    cpattn_client_destroy(brief);
    ck_assert(cpattn_poll(flying));
    ck_assert_int_eq(cpattn_cancel(flying, &error), CPATTN_OK);
    ck_assert_int_eq(fake_collect(flying, &result, &error), CPATTN_CANCELLED);
    ck_assert_int_eq(fake_collect(answered, &result, &error), CPATTN_OK);
    cpattn_result_destroy(result);
    cpattn_case_destroy(c);
    cpattn_client_destroy(NULL);
}
END_TEST

// ---- threads ------------------------------------------------------------------------------------

enum { THREADS = 8, EACH = 40 };

static void *run_many(void *arg)
{
    int *passed = arg;
    struct cpattn_case *c = fake_case("pass");
    for (int i = 0; i < EACH; i++) {
        struct cpattn_result *mine;
        char seed[16];
        snprintf(seed, sizeof seed, "%d", i);
        if (cpattn_case_set(c, "seed", seed, NULL) != CPATTN_OK ||
            cpattn_run(client, c, 0, &mine, NULL) != CPATTN_OK)
            break;
        *passed += mine->digest == (uint64_t)i; // the answer to its own request
        cpattn_result_destroy(mine);
    }
    cpattn_case_destroy(c);
    return NULL;
}

START_TEST(threads_share_a_client)
{
    pthread_t threads[THREADS];
    int passed[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_many, &passed[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(passed[i], EACH);
    }
    ck_assert_int_eq(fake_runs(client), THREADS * EACH);
}
END_TEST

static void *take_many(void *arg)
{
    int *taken = arg;
    struct cpattn_request *request;
    while ((request = cpattn_wait_any(client, UINT64_MAX)) != NULL) {
        struct cpattn_result *mine;
        *taken += cpattn_collect(request, &mine, NULL) == CPATTN_OK;
        cpattn_result_destroy(mine);
        cpattn_request_destroy(request);
    }
    return NULL;
}

START_TEST(threads_share_the_answers)
{
    pthread_t threads[THREADS];
    int taken[THREADS] = {0}, sum = 0;
    for (int i = 0; i < 60; i++)
        fake_submit(client, i % 2 ? "delay:20" : "pass");
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_many, &taken[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += taken[i];
    }
    ck_assert_int_eq(sum, 60);
}
END_TEST

// cpattn_submit() is still sending until another thread has taken the answer.
static atomic_bool sends_long, taken_early;

enum status __real_link_exchange(struct link *link, const void *data, size_t size,
                                 uint64_t deadline_ns, link_done *done, void *arg,
                                 struct error *reason);
enum status __wrap_link_exchange(struct link *link, const void *data, size_t size,
                                 uint64_t deadline_ns, link_done *done, void *arg,
                                 struct error *reason);
enum status __wrap_link_exchange(struct link *link, const void *data, size_t size,
                                 uint64_t deadline_ns, link_done *done, void *arg,
                                 struct error *reason)
{
    enum status status = __real_link_exchange(link, data, size, deadline_ns, done, arg, reason);
    while (sends_long && !taken_early)
        usleep(1000);
    return status;
}

static void *take_early(void *arg)
{
    struct cpattn_request *request;
    while (!(request = cpattn_wait_any(client, UINT64_MAX)))
        usleep(1000);
    *(enum cpattn_status *)arg = cpattn_collect(request, &result, NULL);
    cpattn_request_destroy(request);
    taken_early = true;
    return NULL;
}

START_TEST(a_thread_takes_an_answer_before_its_submit_returns)
{
    pthread_t taker;
    enum cpattn_status taken = CPATTN_UNKNOWN;
    sends_long = true;
    ck_assert_int_eq(pthread_create(&taker, NULL, take_early, &taken), 0);
    fake_submit(client, "pass"); // the other thread destroys the request meanwhile
    sends_long = false;
    pthread_join(taker, NULL);
    ck_assert_int_eq(taken, CPATTN_OK);
    cpattn_result_destroy(result);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client");
    TCase *answers = tcase_create("answers");
    tcase_set_timeout(answers, 30);
    tcase_add_checked_fixture(answers, setup, teardown);
    tcase_add_test(answers, a_verdict_comes_with_its_figures);
    tcase_add_test(answers, a_failed_verdict_is_an_answer);
    tcase_add_test(answers, the_largest_result_arrives);
    tcase_add_test(answers, a_failure_comes_with_the_states_of_the_ranks);
    tcase_add_test(answers, refusals_are_returned);
    tcase_add_test(answers, time_limits_reach_the_daemon);
    tcase_add_test(answers, wishes_reach_the_daemon);
    tcase_add_test(answers, invalid_answers_are_data_loss);
    tcase_add_test(answers, describe_and_status_are_answered);
    suite_add_tcase(suite, answers);

    TCase *flight = tcase_create("in flight");
    tcase_set_timeout(flight, 30);
    tcase_add_checked_fixture(flight, setup, teardown);
    tcase_add_test(flight, each_answer_is_returned_once);
    tcase_add_test(flight, answers_are_returned_in_their_order);
    tcase_add_test(flight, a_request_can_be_waited_for_alone);
    tcase_add_test(flight, requests_in_flight_are_limited);
    tcase_add_test(flight, a_silent_daemon_costs_the_time_limit);
    tcase_add_test(flight, orders_are_sent);
    tcase_add_test(flight, a_client_can_end_before_its_requests);
    tcase_add_test(flight, threads_share_a_client);
    tcase_add_test(flight, threads_share_the_answers);
    tcase_add_test(flight, a_thread_takes_an_answer_before_its_submit_returns);
    suite_add_tcase(suite, flight);
    return runner_run(suite);
}
