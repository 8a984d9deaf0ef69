// SPDX-License-Identifier: Apache-2.0
// Watchers of the daemon: events of cases, pools and devices in order, each once; limits of
// watchers; slow watchers.
#include "tests/support/runner.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"

#define SECOND UINT64_C(1000000000)

static struct wire_watch at;         // the next watch request
static struct wire_event seen[4096]; // since the test began, in order
static int seen_count;
static uint64_t lost;

static void setup(void)
{
    static const char *const arguments[] = {"--devices", "2", NULL};
    daemon_init(&d);
    daemon_start(&d, arguments);
    at = (struct wire_watch){.wait_ns = 0};
    seen_count = 0;
    lost = 0;
}

// A plain connection, so that requests arrive in order.
static int connection(void)
{
    int fd = daemon_connect(&d);
    char greeting[8];
    ck_assert_int_eq(recv(fd, greeting, 8, MSG_WAITALL), 8);
    return fd;
}

static struct wire_request watch_request(void)
{
    struct wire_request request = daemon_request(METHOD_WATCH);
    request.watch = at;
    return request;
}

// Appends the new events and continues after them. Returns their number.
static int take(struct wire_reply *reply)
{
    expect_status(reply, STATUS_OK);
    const struct wire_events *events = &reply->events;
    int count = events->count;
    for (int i = 0; i < count; i++)
        seen[seen_count++] = events->list[i];
    ck_assert(at.stream == 0 || at.stream == events->stream);
    at.stream = events->stream;
    at.after = events->last;
    lost += events->lost;
    wire_reply_fini(reply);
    return count;
}

static int ask(void)
{
    struct wire_request request = watch_request();
    struct wire_reply reply = daemon_call(&d, &request);
    return take(&reply);
}

// Watches until an event of this kind and, for pools, this state has come. Returns it.
static const struct wire_event *await(enum wire_event_kind kind, enum pool_state pool)
{
    static int looked;
    at.wait_ns = 60 * SECOND;
    for (looked = looked > seen_count ? 0 : looked;; ask())
        for (; looked < seen_count; looked++)
            if (seen[looked].kind == kind && seen[looked].pool == pool)
                return &seen[looked++];
}

START_TEST(test_a_case_from_admission_to_verdict)
{
    ck_assert_int_eq(ask(), 0); // the watch begins
    struct wire_request request = daemon_request(METHOD_RUN);
    struct wire_reply reply = daemon_call(&d, &request);
    expect_pass(&reply);
    const struct wire_event *e = await(EVENT_ADMITTED, 0);
    ck_assert_uint_eq(strlen(e->id), 32);
    expect_text(e->user, "uid=");
    expect_text(e->user, " pid=");
    expect_text(e->case_text, "w2");
    ck_assert_int_eq(e->world_size, 2);
    ck_assert_uint_gt(e->time_ns, UINT64_C(1700000000) * SECOND);
    e = await(EVENT_POOL, POOL_STARTING);
    ck_assert_int_eq(e->world_size, 2);
    ck_assert_uint_eq(e->devices, 3);
    e = await(EVENT_POOL, POOL_IDLE);
    ck_assert_str_eq(e->text, "");
    uint32_t generation = e->generation;
    e = await(EVENT_STARTED, 0);
    ck_assert_uint_eq(e->generation, generation);
    ck_assert_str_eq(e->id, seen[0].id);
    e = await(EVENT_FINISHED, 0);
    ck_assert_int_eq(e->verdict, VERDICT_PASS);
    ck_assert_int_eq(e->code, STATUS_OK);
    ck_assert_uint_gt(e->run_ns, 0);
    ck_assert_uint_ge(e->total_ns, e->run_ns);
    for (int i = 0; i < seen_count; i++)
        ck_assert_uint_eq(seen[i].number, (uint64_t)i + 1);
    ck_assert_int_eq(seen_count, 5);
    // A second case needs no pool.
    request = daemon_request(METHOD_RUN);
    reply = daemon_call(&d, &request);
    expect_pass(&reply);
    await(EVENT_FINISHED, 0);
    ck_assert_int_eq(seen_count, 8);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_a_cancelled_case_and_a_lost_pool)
{
    ask();
    struct wire_request request = daemon_request_long(2), cancel = daemon_request(METHOD_CANCEL);
    struct call call = daemon_call_begin(&d, &request);
    await(EVENT_STARTED, 0);
    cancel.cancel = request.id;
    struct wire_reply reply = daemon_call(&d, &cancel);
    expect_status(&reply, STATUS_OK);
    reply = daemon_call_end(&call);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    const struct wire_event *e = await(EVENT_FINISHED, 0);
    ck_assert_int_eq(e->verdict, 0);
    ck_assert_int_eq(e->code, STATUS_CANCELLED);
    ck_assert_str_eq(e->text, "cancelled as asked");
    await(EVENT_POOL, POOL_STOPPING);
    run_and_pass(&d, 2);
    await(EVENT_POOL, POOL_IDLE);
    daemon_signal_rank(&d, 2, 1, SIGKILL);
    e = await(EVENT_POOL, POOL_STOPPING);
    expect_text(e->text, "rank 1 was killed");
    await(EVENT_POOL, POOL_COLD);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static void order(enum wire_order_kind kind, int device)
{
    struct wire_request request = daemon_request(METHOD_ORDER);
    request.order = (struct wire_order){.kind = kind, .device = device};
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
}

START_TEST(test_devices_and_kinds)
{
    at.kinds = 1 << EVENT_DEVICE;
    ask();
    run_and_pass(&d, 2);
    order(ORDER_DRAIN_DEVICE, 1);
    order(ORDER_DRAIN_DEVICE, 1); // no change, no event
    order(ORDER_ENABLE_DEVICE, 1);
    while (seen_count < 2)
        ask();
    ck_assert_int_eq(seen[0].device, DEVICE_DRAINED);
    ck_assert_uint_eq(seen[0].devices, 2);
    ck_assert_int_eq(seen[1].device, DEVICE_ENABLED);
    ck_assert_uint_eq(seen[1].devices, 2);
    ck_assert_int_eq(ask(), 0);
    // Later watchers begin with past events of the requested kinds.
    at = (struct wire_watch){.recent = 1, .kinds = 1 << EVENT_DEVICE};
    ck_assert_int_eq(ask(), 1);
    ck_assert_int_eq(seen[2].device, DEVICE_ENABLED);
    at = (struct wire_watch){.recent = EVENTS_KEPT};
    ck_assert_int_gt(ask(), 6);
    ck_assert_uint_eq(seen[3].number, 1);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_waiting_watchers_are_answered_in_time)
{
    ask();
    at.wait_ns = 1000000;
    ck_assert_int_eq(ask(), 0);
    at.wait_ns = 60 * SECOND;
    int fd = connection();
    struct wire_request request = watch_request();
    daemon_send(fd, 1, &request);
    daemon_ping_fresh(&d);
    ck_assert_int_eq(daemon_stop(&d), 0);
    struct wire_reply reply = daemon_receive(fd);
    close(fd);
    ck_assert_int_eq(take(&reply), 1);
    ck_assert_int_eq(seen[0].kind, EVENT_DAEMON);
    ck_assert_str_eq(seen[0].text, "draining");
}
END_TEST

// The answer has the number of forgotten events.
START_TEST(test_a_slow_watcher_loses_events)
{
    ask();
    for (int i = 0; i < EVENTS_KEPT / 2 + 50; i++) {
        order(ORDER_DRAIN_DEVICE, 0);
        order(ORDER_ENABLE_DEVICE, 0);
    }
    while (ask() > 0)
        ;
    ck_assert_uint_eq(lost, 100);
    ck_assert_int_eq(seen_count, EVENTS_KEPT);
    ck_assert_uint_eq(seen[0].number, 101);
    ck_assert_uint_eq(seen[EVENTS_KEPT - 1].number, EVENTS_KEPT + 100);
    // A watcher with the stream of an earlier daemon gets all events.
    at.stream++;
    struct wire_request request = watch_request();
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    ck_assert_int_eq(reply.events.count, EVENTS_REPLY_MAX);
    ck_assert_uint_eq(reply.events.list[0].number, 101);
    ck_assert_uint_eq(reply.events.lost, 100);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_watchers_have_a_share)
{
    ask();
    at.wait_ns = 60 * SECOND;
    int fd = connection();
    for (uint32_t i = 0; i < WATCHERS_USER; i++) {
        struct wire_request request = watch_request();
        daemon_send(fd, i, &request);
    }
    daemon_ping_fresh(&d);
    struct wire_request more = watch_request();
    daemon_send(fd, 99, &more);
    struct wire_reply reply = daemon_receive(fd);
    expect_status(&reply, STATUS_RESOURCE_EXHAUSTED);
    expect_text(reply.message, "16 watchers of this user wait");
    wire_reply_fini(&reply);
    // All watchers get the events, and make room for others.
    order(ORDER_DRAIN_DEVICE, 0);
    for (int i = 0; i < WATCHERS_USER; i++) {
        reply = daemon_receive(fd);
        expect_status(&reply, STATUS_OK);
        ck_assert_int_eq(reply.events.count, 1);
        wire_reply_fini(&reply);
    }
    // A disconnected watcher makes room, too.
    at.after++;
    for (int life = 0; life < 3; life++) {
        for (uint32_t i = 0; i < WATCHERS_USER; i++) {
            struct wire_request request = watch_request();
            daemon_send(fd, i, &request);
        }
        daemon_ping_fresh(&d);
        if (life == 2)
            break;
        close(fd);
        daemon_ping_fresh(&d);
        fd = connection();
    }
    order(ORDER_ENABLE_DEVICE, 0);
    for (int i = 0; i < WATCHERS_USER; i++) {
        reply = daemon_receive(fd);
        expect_status(&reply, STATUS_OK);
        ck_assert_int_eq(reply.events.count, 1);
        wire_reply_fini(&reply);
    }
    close(fd);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_watch");
    TCase *tcase = tcase_create("watch");
    tcase_add_checked_fixture(tcase, setup, daemon_teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_a_case_from_admission_to_verdict);
    tcase_add_test(tcase, test_a_cancelled_case_and_a_lost_pool);
    tcase_add_test(tcase, test_devices_and_kinds);
    tcase_add_test(tcase, test_waiting_watchers_are_answered_in_time);
    tcase_add_test(tcase, test_a_slow_watcher_loses_events);
    tcase_add_test(tcase, test_watchers_have_a_share);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
