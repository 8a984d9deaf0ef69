// SPDX-License-Identifier: Apache-2.0
// Turns of classes, users and connections, and concurrent handshakes.
#include "daemon/net/turns.h"

#include <stdio.h>

#include "daemon/net/connection.h"
#include "daemon/net/shakes.h"
#include "tests/support/runner.h"

enum { NODES = 64 };

static struct turns t;
static struct list nodes[NODES];

static void begin(void)
{
    turns_init(&t);
    for (int i = 0; i < NODES; i++)
        list_init(&nodes[i]);
}

static void ask(enum turn_class class, uint64_t user, int node)
{
    turns_ask(&t, class, user, &nodes[node]);
}

static void expect(int node)
{
    struct list *next = turns_next(&t, true);
    ck_assert_int_eq(next ? (int)(next - nodes) : -1, node);
}

START_TEST(connections_of_one_user_come_in_order)
{
    for (int i = 0; i < 4; i++)
        ask(TURN_UNIX, 7, i);
    ck_assert(!turns_empty(&t));
    for (int i = 0; i < 4; i++)
        expect(i);
    expect(-1);
    ck_assert(turns_empty(&t));
}
END_TEST

// The number of connections of a user does not matter.
START_TEST(users_take_turns)
{
    for (int i = 0; i < 40; i++)
        ask(TURN_UNIX, 7, i);
    expect(0);
    ask(TURN_UNIX, 8, 50);
    ask(TURN_UNIX, 8, 51);
    expect(1); // user 7 had the turn before user 8 asked
    expect(50);
    expect(2);
    expect(51);
    expect(3);
    ask(TURN_UNIX, 8, 52);
    expect(4);
    expect(52);
}
END_TEST

START_TEST(classes_take_turns)
{
    for (int i = 0; i < 20; i++)
        ask(TURN_HANDSHAKE, (uint64_t)i, i);
    for (int i = 20; i < 40; i++)
        ask(TURN_NETWORK, (uint64_t)i, i);
    ask(TURN_UNIX, 1, 60);
    ask(TURN_UNIX, 1, 61);
    expect(60);
    expect(20);
    expect(0);
    expect(61);
    expect(21);
    expect(1);
    expect(22);
}
END_TEST

START_TEST(handshakes_can_be_left_out)
{
    ask(TURN_HANDSHAKE, 1, 0);
    ask(TURN_HANDSHAKE, 1, 1);
    expect(0);
    ck_assert_ptr_null(turns_next(&t, false));
    ck_assert(!turns_empty(&t));
    ask(TURN_UNIX, 1, 2);
    ck_assert_ptr_eq(turns_next(&t, false), &nodes[2]);
    expect(1);
    ck_assert(turns_empty(&t));
}
END_TEST

// A closed connection leaves the list.
START_TEST(removed_nodes_leave_no_group)
{
    for (uint64_t user = 0; user < 3 * TURN_CLASSES * CLIENTS_MAX; user++) {
        ask(TURN_UNIX, user, 0);
        list_remove(&nodes[0]);
    }
    ask(TURN_NETWORK, 1, 1);
    ask(TURN_UNIX, 5, 0);
    ask(TURN_UNIX, 6, 2);
    list_remove(&nodes[0]);
    expect(2);
    expect(1);
    expect(-1);
    ck_assert(turns_empty(&t));
}
END_TEST

// ---- handshakes --------------------------------------------------------------------------------

static struct connection shaking[2 * SHAKES_MAX];

static void connections_of_hosts(int of_each)
{
    for (int i = 0; i < 2 * SHAKES_MAX; i++) {
        struct connection *c = &shaking[i];
        *c = (struct connection){.peer = {.uid = PEER_REMOTE_UID}};
        list_init(&c->shake);
        snprintf(c->peer.address, sizeof(c->peer.address), "[2001:db8::%d]:%d", i / of_each, i);
    }
}

START_TEST(handshakes_at_a_time_are_bounded)
{
    struct shakes s;
    shakes_init(&s);
    connections_of_hosts(2);
    for (int i = 0; i < 2 * SHAKES_MAX; i++)
        ck_assert_int_eq(shakes_begin(&s, &shaking[i]), i < SHAKES_MAX);
    for (int i = 0; i < SHAKES_MAX; i++) { // in their order
        ck_assert(shakes_begin(&s, &shaking[i]));
        struct connection *next = shakes_end(&s, &shaking[i]);
        ck_assert_ptr_eq(next, &shaking[SHAKES_MAX + i]);
        ck_assert(shakes_begin(&s, next));
    }
    ck_assert_int_eq(s.count, SHAKES_MAX);
}
END_TEST

// When handshakes end, as many waiting ones may begin. If these end before they begin, others may.
START_TEST(room_of_handshakes_is_handed_on)
{
    struct shakes s;
    struct connection *next[SHAKES_HOST_MAX];
    shakes_init(&s);
    connections_of_hosts(2 * SHAKES_MAX); // one host
    for (int i = 0; i < 2 * SHAKES_MAX; i++)
        ck_assert_int_eq(shakes_begin(&s, &shaking[i]), i < SHAKES_HOST_MAX);
    for (int i = 0; i < SHAKES_HOST_MAX; i++) {
        next[i] = shakes_end(&s, &shaking[i]);
        ck_assert_ptr_eq(next[i], &shaking[SHAKES_HOST_MAX + i]);
    }
    ck_assert_int_eq(s.count, SHAKES_HOST_MAX);
    for (int i = 0; i < SHAKES_HOST_MAX; i++)
        ck_assert_ptr_eq(shakes_end(&s, next[i]), &shaking[2 * SHAKES_HOST_MAX + i]);
    ck_assert_ptr_null(shakes_end(&s, &shaking[2 * SHAKES_MAX - 1])); // it only waited
    ck_assert(shakes_begin(&s, &shaking[2 * SHAKES_HOST_MAX]));
    ck_assert_int_eq(s.count, SHAKES_HOST_MAX);
}
END_TEST

// A host above its share does not delay others.
START_TEST(handshakes_of_a_host_are_bounded)
{
    struct shakes s;
    shakes_init(&s);
    connections_of_hosts(SHAKES_MAX);
    for (int i = 0; i < SHAKES_MAX; i++)
        ck_assert_int_eq(shakes_begin(&s, &shaking[i]), i < SHAKES_HOST_MAX);
    ck_assert(shakes_begin(&s, &shaking[SHAKES_MAX]));
    // The end of a waiting connection frees no room.
    ck_assert_ptr_null(shakes_end(&s, &shaking[SHAKES_HOST_MAX]));
    ck_assert_ptr_null(shakes_end(&s, &shaking[SHAKES_MAX]));
    ck_assert_ptr_eq(shakes_end(&s, &shaking[0]), &shaking[SHAKES_HOST_MAX + 1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("turns");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin, NULL);
    tcase_add_test(all, connections_of_one_user_come_in_order);
    tcase_add_test(all, users_take_turns);
    tcase_add_test(all, classes_take_turns);
    tcase_add_test(all, handshakes_can_be_left_out);
    tcase_add_test(all, removed_nodes_leave_no_group);
    tcase_add_test(all, handshakes_at_a_time_are_bounded);
    tcase_add_test(all, room_of_handshakes_is_handed_on);
    tcase_add_test(all, handshakes_of_a_host_are_bounded);
    suite_add_tcase(suite, all);
    return runner_run(suite);
}
