// SPDX-License-Identifier: Apache-2.0
// The library cancels requests: by handle, by destroying it, by id, and at a daemon that hangs.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cpattn.h"
#include "tests/client/fake.h"
#include "tests/support/runner.h"

#define MS UINT64_C(1000000)

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

static void wait_held(int count)
{
    while (fake_held(client) != count)
        usleep(1000);
}

START_TEST(a_request_is_cancelled)
{
    struct cpattn_request *request = fake_submit(client, "hold");
    wait_held(1);
    ck_assert_int_eq(cpattn_cancel(request, &error), CPATTN_OK);
    ck_assert(cpattn_wait(request, UINT64_MAX));
    ck_assert_int_eq(cpattn_cancel(request, &error), CPATTN_OK); // too late: no error
    ck_assert_int_eq(fake_collect(request, &result, &error), CPATTN_CANCELLED);
    ck_assert_str_eq(error.text, "cancelled on request");
    ck_assert_ptr_null(result);
}
END_TEST

START_TEST(a_destroyed_request_is_cancelled)
{
    struct cpattn_request *request = fake_submit(client, "hold");
    wait_held(1);
    cpattn_request_destroy(request);
    wait_held(0);
    // The request is not returned, and cpattn_wait_any() does not wait for it.
    ck_assert_ptr_null(cpattn_wait_any(client, UINT64_MAX));
    cpattn_request_destroy(NULL);
}
END_TEST

START_TEST(any_request_is_cancelled_by_its_id)
{
    struct cpattn_client *other = fake_client(&fake, NULL);
    struct cpattn_request *request = fake_submit(client, "hold");
    wait_held(1);
    ck_assert_int_eq(cpattn_cancel_id(other, cpattn_request_id(request), 0, &error), CPATTN_OK);
    ck_assert(cpattn_wait(request, UINT64_MAX));
    ck_assert_int_eq(cpattn_cancel_id(other, cpattn_request_id(request), 0, &error),
                     CPATTN_NOT_FOUND);
    ck_assert_str_eq(error.text, "not found");
    ck_assert_int_eq(fake_collect(request, &result, &error), CPATTN_CANCELLED);
    static const char *const malformed[] = {"", "12", "0123456789abcdef0123456789abcdeg",
                                            "0123456789abcdef0123456789abcdef0"};
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        ck_assert_int_eq(cpattn_cancel_id(other, malformed[i], 0, &error), CPATTN_INVALID_ARGUMENT);
        char text[128];
        snprintf(text, sizeof text,
                 "the id of the request is '%s'; accepted is 32 hexadecimal digits", malformed[i]);
        ck_assert_str_eq(error.text, text);
    }
    ck_assert_int_eq(cpattn_cancel_id(other, "0123456789ABCDEF0123456789abcdef", 0, &error),
                     CPATTN_NOT_FOUND);
    cpattn_client_destroy(other);
}
END_TEST

// Only the first of several calls that cancel waits for a connection.
START_TEST(cancelling_at_a_daemon_that_hangs)
{
    enum { REQUESTS = 12 }; // more than idle connections
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    struct cpattn_request *requests[REQUESTS];
    enum cpattn_status status = CPATTN_OK;
    int cancelled = 0;
    options.connect_timeout_ns = 1000 * MS;
    struct cpattn_client *hasty = fake_client(&fake, &options);
    struct cpattn_case *c = fake_case("hold");
    for (int i = 0; i < REQUESTS; i++)
        ck_assert_int_eq(cpattn_submit(hasty, c, 0, &requests[i], &error), CPATTN_OK);
    while (fake_held(hasty) != REQUESTS)
        usleep(1000);
    kill(fake.pid, SIGSTOP);
    ck_assert_int_eq(waitpid(fake.pid, NULL, WUNTRACED), fake.pid);
    while (status == CPATTN_OK && cancelled < REQUESTS)
        status = cpattn_cancel(requests[cancelled++], &error);
    ck_assert_int_eq(status, CPATTN_DEADLINE_EXCEEDED);
    ck_assert_int_eq(cpattn_cancel(requests[0], &error), CPATTN_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.text, "did not answer the last connection"));
    kill(fake.pid, SIGCONT);
    fake_held(hasty);
    for (int i = 0; i < REQUESTS; i++) {
        ck_assert_int_eq(cpattn_cancel(requests[i], &error), CPATTN_OK);
        ck_assert(cpattn_wait(requests[i], UINT64_MAX));
        cpattn_request_destroy(requests[i]);
    }
    cpattn_case_destroy(c);
    cpattn_client_destroy(hasty);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client cancel");
    TCase *cancel = tcase_create("cancel");
    tcase_set_timeout(cancel, 30);
    tcase_add_checked_fixture(cancel, setup, teardown);
    tcase_add_test(cancel, a_request_is_cancelled);
    tcase_add_test(cancel, a_destroyed_request_is_cancelled);
    tcase_add_test(cancel, any_request_is_cancelled_by_its_id);
    tcase_add_test(cancel, cancelling_at_a_daemon_that_hangs);
    suite_add_tcase(suite, cancel);
    return runner_run(suite);
}
