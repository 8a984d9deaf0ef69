// SPDX-License-Identifier: Apache-2.0
// cpattn_watch_*: events come in order, with the number of lost ones, and across a restart of the
// daemon. cpattn_order_on().
#include <string.h>

#include "client/cpattn_watch.h"
#include "tests/client/fake.h"
#include "tests/support/runner.h"

static struct fake fake;
static struct cpattn_client *client;
static struct cpattn_watch *watch;
static struct cpattn_error error;

static void setup(void)
{
    client = fake_open(&fake);
}

static void teardown(void)
{
    cpattn_watch_destroy(watch);
    fake_close(&fake, client);
}

static const struct cpattn_event *next(uint64_t timeout_ns)
{
    const struct cpattn_event *event = (const void *)&error;
    enum cpattn_status status = cpattn_watch_next(watch, timeout_ns, &event, &error);
    ck_assert_msg(status == CPATTN_OK, "%s", error.text);
    return event;
}

START_TEST(orders_name_a_host)
{
    uint64_t count = 0;
    ck_assert_int_eq(cpattn_order_on(client, CPATTN_ORDER_ENABLE, 3, 5, 0, &count, &error),
                     CPATTN_OK);
    ck_assert_uint_eq(count, 325); // fake_daemon: 10 * order + device + 100 * host
    ck_assert_int_eq(cpattn_order_on(client, CPATTN_ORDER_ENABLE, 64, 5, 0, &count, &error),
                     CPATTN_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "host is 64; accepted is 0 to 63");
}
END_TEST

START_TEST(the_status_lists_hosts)
{
    struct cpattn_daemon_status *status;
    ck_assert_int_eq(cpattn_query_status(client, 0, &status, &error), CPATTN_OK);
    const struct cpattn_host *host = cpattn_daemon_status_host(status, 1);
    ck_assert_str_eq(host->name, "node1");
    ck_assert_str_eq(host->state, "lost");
    ck_assert_int_eq(host->devices, 8);
    ck_assert_uint_eq(host->devices_out, 5);
    ck_assert_uint_eq(host->devices_stuck, 2);
    ck_assert_ptr_null(cpattn_daemon_status_host(status, status->host_count));
    cpattn_daemon_status_destroy(status);
}
END_TEST

START_TEST(events_come_in_order)
{
    ck_assert_int_eq(cpattn_watch_create(client, 0, 0, &watch, &error), CPATTN_OK);
    for (uint64_t i = 1; i <= 999; i++) {
        const struct cpattn_event *event = next(UINT64_MAX);
        ck_assert_uint_eq(event->number, i);
        ck_assert_uint_eq(event->lost, i == 4 ? 5 : 0);
        ck_assert_int_eq(event->restarted, i == 10);
        ck_assert_str_ne(cpattn_event_kind_name(event->kind), "?");
        ck_assert_ptr_nonnull(event->text);
        ck_assert_str_ne(event->state, "?");
    }
    while (next(0)) // the last answer has more events
        ;
    ck_assert_ptr_null(next(1000000));
    ck_assert_str_eq(cpattn_event_kind_name(0), "?");
    ck_assert_str_eq(cpattn_event_kind_name(CPATTN_EVENT_POOL), "pool");
}
END_TEST

START_TEST(invalid_watches_are_refused)
{
    ck_assert_int_eq(cpattn_watch_create(client, 0, 1025, &watch, &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "recent is 1025; accepted is 0 to 1024");
    ck_assert_int_eq(cpattn_watch_create(client, 0, -1, &watch, &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_ptr_null(watch);
    cpattn_watch_destroy(NULL);
}
END_TEST

// Without a daemon cpattn_watch_next() returns an error. The watch continues with the next daemon.
START_TEST(a_watch_outlives_the_daemon)
{
    const struct cpattn_event *event = NULL;
    ck_assert_int_eq(cpattn_watch_create(client, 0, 0, &watch, &error), CPATTN_OK);
    for (uint64_t i = 1; i <= 3; i++)
        ck_assert_uint_eq(next(0)->number, i);
    fake_stop(&fake);
    ck_assert_int_eq(cpattn_watch_next(watch, 0, &event, &error), CPATTN_UNAVAILABLE);
    ck_assert_ptr_null(event);
    ck_assert_str_ne(error.text, "");
    fake_start(&fake);
    ck_assert_uint_eq(next(0)->number, 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_watch");
    TCase *all = tcase_create("watch");
    tcase_set_timeout(all, 30);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, events_come_in_order);
    tcase_add_test(all, orders_name_a_host);
    tcase_add_test(all, the_status_lists_hosts);
    tcase_add_test(all, invalid_watches_are_refused);
    tcase_add_test(all, a_watch_outlives_the_daemon);
    suite_add_tcase(suite, all);
    return runner_run(suite);
}
