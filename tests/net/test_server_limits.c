// SPDX-License-Identifier: Apache-2.0
// No client takes more than its share of the server's requests, memory, descriptors and time.
#include "tests/net/server_scene.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/limits.h"

// ---- limits ------------------------------------------------------------------------------------

static void client_flood(int fd, int count)
{
    for (int i = 0; i < count; i++)
        client_ask(fd, (uint8_t)i, "x");
}

START_TEST(test_requests_of_one_connection)
{
    server_begin(REQUESTS_MAX, 8);
    int fd = client_greet(), other = client_greet();
    client_flood(fd, CONNECTION_REQUESTS_MAX + 100);
    await(&told_count, CONNECTION_REQUESTS_MAX);
    client_ask(other, 1, "other");
    await(&told_count, CONNECTION_REQUESTS_MAX + 1);
    for (int i = 0; i < 10; i++)
        told_drop(i);
    await(&told_count, CONNECTION_REQUESTS_MAX + 11);
    close(fd);
    close(other);
}
END_TEST

START_TEST(test_requests_in_all)
{
    server_begin(50, 8);
    int fds[] = {client_greet(), client_greet(), client_greet()};
    for (int i = 0; i < 3; i++)
        client_flood(fds[i], 40);
    await(&told_count, 50);
    for (int i = 0; i < 30; i++)
        told_drop(i);
    await(&told_count, 80);
    for (int i = 30; i < 80; i++)
        told_reply(i, "x", 1);
    await(&told_count, 120);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}
END_TEST

// When one connection ends requests, another one that waits for room is read, too.
START_TEST(test_requests_in_all_by_one_hold_another)
{
    server_begin(50, 8);
    int greedy = client_greet(), other = client_greet();
    client_flood(greedy, 60);
    await(&told_count, 50);
    client_ask(other, 1, "other");
    rounds(20);
    ck_assert_int_eq(told_count, 50);
    for (int i = 0; i < 20; i++)
        told_drop(i);
    await(&told_count, 61);
    close(greedy);
    close(other);
}
END_TEST

START_TEST(test_gone_while_not_read)
{
    server_begin(REQUESTS_MAX, 8);
    int fd = client_greet();
    client_flood(fd, CONNECTION_REQUESTS_MAX + 100);
    await(&told_count, CONNECTION_REQUESTS_MAX);
    close(fd);
    rounds(5);
    ck_assert_int_eq(gone_count, 0);
    tick_at(clock_now_ns());
    await(&gone_count, 1);
    ck_assert_int_eq(told_count, CONNECTION_REQUESTS_MAX + 100);
}
END_TEST

START_TEST(test_replies_not_read)
{
    static uint8_t reply[REPLY_BYTES_MAX];
    server_begin(REQUESTS_MAX, 8);
    int fd = client_greet();
    client_flood(fd, 4);
    await(&told_count, 4);
    told_reply(0, reply, sizeof(reply)); // more than the socket takes
    client_ask(fd, 5, "more");
    rounds(20);
    ck_assert_int_eq(told_count, 4); // it is not read
    tick_at(clock_now_ns() + 4 * NS_PER_S);
    ck_assert_int_eq(gone_count, 0);
    tick_at(clock_now_ns() + 6 * NS_PER_S);
    ck_assert_int_eq(gone_count, 1);
    close(fd);
    assert_served();
}
END_TEST

START_TEST(test_slow_reader_gets_all)
{
    static uint8_t reply[REPLY_BYTES_MAX], bytes[REPLY_BYTES_MAX];
    server_begin(REQUESTS_MAX, 8);
    int fd = client_greet();
    client_flood(fd, 8);
    await(&told_count, 8);
    for (int i = 0; i < 8; i++) {
        memset(reply, 'a' + i, sizeof(reply));
        told_reply(i, reply, sizeof(reply));
    }
    client_ask(fd, 9, "more");
    for (int i = 0; i < 8; i++) {
        uint64_t now_ns = clock_now_ns();
        tick_at(now_ns + 4 * NS_PER_S); // before each is read
        ck_assert(client_read(fd, bytes, FRAME_LEAD_MAX + 4));
        ck_assert_uint_eq(bytes[12], i);
        ck_assert(client_read(fd, bytes, sizeof(bytes)));
        memset(reply, 'a' + i, sizeof(reply));
        ck_assert_mem_eq(bytes, reply, sizeof(reply));
    }
    await(&told_count, 9); // it is read again
    close(fd);
}
END_TEST

START_TEST(test_replies_of_one_connection_are_bounded)
{
    static uint8_t reply[REPLY_BYTES_MAX];
    server_begin(REQUESTS_MAX, 8);
    int fd = client_greet();
    client_flood(fd, 40);
    await(&told_count, 40);
    int i = 0;
    for (; i < 16; i++)
        told_reply(i, reply, sizeof(reply));
    rounds(5);
    ck_assert_int_eq(gone_count, 0);
    for (; i < 40; i++)
        told_reply(i, reply, sizeof(reply));
    await(&gone_count, 1);
    close(fd);
    assert_served();
}
END_TEST

START_TEST(test_replies_in_all_are_bounded)
{
    enum { CLIENTS = 5, EACH = 14 };
    static uint8_t reply[REPLY_BYTES_MAX];
    int fds[CLIENTS];
    server_begin(REQUESTS_MAX, 8);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_greet();
        client_flood(fds[i], EACH + (i == 2));
        await(&told_count, EACH * (i + 1) + (i >= 2));
    }
    // The third connection has the most stored bytes when the last replies come.
    for (int i = 0; i < told_count; i++)
        told_reply(i, reply, sizeof(reply));
    await(&gone_count, 1);
    ck_assert_uint_eq(gone[0], told[2 * EACH].client);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
}
END_TEST

START_TEST(test_too_many_connections)
{
    server_begin(8, 3);
    int fds[] = {client_greet(), client_greet(), client_greet()};
    int beyond = client_connect();
    ck_assert(client_closed(beyond));
    close(beyond);
    close(fds[1]);
    await(&gone_count, 1);
    assert_served();
    close(fds[0]);
    close(fds[2]);
}
END_TEST

START_TEST(test_too_many_connections_of_one_user)
{
    server_begin_shared(8, 8, 2);
    int fds[] = {client_greet(), client_greet()};
    int beyond = client_connect();
    ck_assert(client_closed(beyond));
    close(beyond);
    close(fds[0]);
    await(&gone_count, 1);
    assert_served();
    close(fds[1]);
}
END_TEST

START_TEST(test_no_descriptors)
{
    struct rlimit all, none;
    server_begin(8, 8);
    int fd = client_connect();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &all), 0);
    none = all;
    none.rlim_cur = (rlim_t)fd + 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    rounds(1);
    // Waiting connections do not keep the loop busy: each iteration sleeps once.
    unsigned before = ev_iteration(loop);
    for (int i = 0; i < 3; i++)
        ev_run(loop, EVRUN_ONCE);
    ck_assert_uint_le(ev_iteration(loop) - before, 3);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &all), 0);
    char greeting[8];
    for (int i = 0; i < 3; i++)
        ev_run(loop, EVRUN_ONCE);
    ck_assert(client_read(fd, greeting, 8));
    close(fd);
}
END_TEST

// ---- fairness ----------------------------------------------------------------------------------

// Sends many requests at once. The socket must take them without a reader.
static void client_fill(int fd, int count)
{
    static uint8_t bytes[14 * 1000];
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += request_write(bytes + size, 1, "x");
    ck_assert_int_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

START_TEST(test_flood_does_not_block_other_clients)
{
    server_begin(REQUESTS_MAX, 8);
    // One client before the flood and one after it, for both orders of turns.
    int before = client_greet(), flood = client_greet(), after = client_greet();
    client_ask(flood, 0, "flood"); // to know its number
    await(&told_count, 1);
    client_fill(before, 1);
    client_fill(flood, 900);
    client_fill(after, 1);
    await(&told_count, 903);
    int others = 0;
    for (int place = 1; place <= 20; place++)
        others += told[place].client != told[0].client;
    ck_assert_int_eq(others, 2);
    close(before);
    close(flood);
    close(after);
}
END_TEST

static int between_most, between_last;

static void on_each_round(struct ev_loop *l, ev_prepare *watcher, int events)
{
    (void)l;
    (void)watcher;
    (void)events;
    int between = told_count - between_last;
    between_most = between > between_most ? between : between_most;
    between_last = told_count;
}

START_TEST(test_flood_does_not_block_the_loop)
{
    ev_prepare each;
    server_begin(REQUESTS_MAX, 32);
    ev_prepare_init(&each, on_each_round);
    ev_prepare_start(loop, &each);
    for (int i = 0; i < 20; i++) {
        int fd = client_greet();
        client_fill(fd, 200);
    }
    await(&told_count, 4000);
    ck_assert_int_le(between_most, 80);
    ev_prepare_stop(loop, &each);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server_limits");
    TCase *tcase = tcase_create("server_limits");
    tcase_add_checked_fixture(tcase, scene_setup, scene_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_requests_of_one_connection);
    tcase_add_test(tcase, test_requests_in_all);
    tcase_add_test(tcase, test_requests_in_all_by_one_hold_another);
    tcase_add_test(tcase, test_gone_while_not_read);
    tcase_add_test(tcase, test_replies_not_read);
    tcase_add_test(tcase, test_slow_reader_gets_all);
    tcase_add_test(tcase, test_replies_of_one_connection_are_bounded);
    tcase_add_test(tcase, test_replies_in_all_are_bounded);
    tcase_add_test(tcase, test_too_many_connections);
    tcase_add_test(tcase, test_too_many_connections_of_one_user);
    tcase_add_test(tcase, test_no_descriptors);
    tcase_add_test(tcase, test_flood_does_not_block_other_clients);
    tcase_add_test(tcase, test_flood_does_not_block_the_loop);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
