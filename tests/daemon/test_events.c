// SPDX-License-Identifier: Apache-2.0
// Events of pools: one for each change, and none without a change. tests/daemon/test_daemon_watch.c
// has the events of a real daemon.
#include "daemon/service/events.h"

#include <string.h>

#include "tests/support/runner.h"

static struct events *events;
static struct wire_status status;
static struct wire_pool pools[3];

static void setup(void)
{
    struct error error;
    ck_assert_int_eq(events_create(&events, &error), STATUS_OK);
    memset(pools, 0, sizeof(pools));
    status = (struct wire_status){.pools = pools};
}

static void teardown(void)
{
    events_destroy(events);
}

// Compares, and expects events of these pools, up to a pool -1.
static void expect_events(const int *expected)
{
    static struct wire_event list[EVENTS_REPLY_MAX];
    const struct events_reader reader = {.rules = true};
    struct wire_events read;
    uint64_t before = events_last(events);
    int count = 0;
    events_compare(events, &status);
    events_read(events, &reader, before, list, &read);
    for (; expected[count] >= 0; count++) {
        const struct wire_pool *pool = &pools[expected[count]];
        ck_assert_int_lt(count, read.count);
        ck_assert_int_eq(list[count].kind, EVENT_POOL);
        ck_assert_int_eq(list[count].pool, pool->state);
        ck_assert_int_eq(list[count].world_size, pool->world_size);
        ck_assert_int_eq(list[count].generation, pool->generation);
        ck_assert_uint_eq(list[count].devices, pool->devices);
    }
    ck_assert_int_eq(read.count, count);
}
#define EXPECT_EVENTS(...) expect_events((const int[]){__VA_ARGS__})

static struct wire_pool pool_over(int nodes, uint64_t hosts, uint32_t generation)
{
    return (struct wire_pool){.crew = -1,
                              .world_size = 2,
                              .nodes = nodes,
                              .hosts = hosts,
                              .devices = nodes == 1 ? 0x3 : 0x1,
                              .state = POOL_IDLE,
                              .generation = generation};
}

// Pools of one world size on one host, on two, and again on one. Each is compared with itself.
START_TEST(pools_over_other_numbers_of_hosts_are_others)
{
    pools[0] = pool_over(1, 0x1, 1);
    pools[1] = pool_over(2, 0x3, 4);
    pools[2] = pool_over(1, 0x4, 7);
    pools[2].instance = 1;
    status.pool_count = 3;
    EXPECT_EVENTS(0, 1, 2, -1);
    for (int i = 0; i < 3; i++)
        EXPECT_EVENTS(-1);
    pools[1].state = POOL_STOPPING;
    EXPECT_EVENTS(1, -1);
    pools[1].state = POOL_IDLE;
    pools[1].generation++;
    EXPECT_EVENTS(1, -1);
    pools[0].state = POOL_RUNNING; // which watchers do not tell from idle
    EXPECT_EVENTS(-1);
}
END_TEST

// The devices of a stuck pool are the union of all hosts. The event has those of this host.
START_TEST(stuck_devices_are_those_of_this_host)
{
    static struct wire_event list[EVENTS_REPLY_MAX];
    const struct events_reader reader = {.watch.kinds = 1 << EVENT_DEVICE, .rules = true};
    struct wire_events read;
    pools[0] = pool_over(2, 0x3, 1);
    pools[0].state = POOL_STUCK;
    pools[0].devices = 0x6;
    status.pool_count = 1;
    status.devices_stuck = 0x2;
    events_compare(events, &status);
    events_read(events, &reader, 0, list, &read);
    ck_assert_int_eq(read.count, 1);
    ck_assert_int_eq(list[0].device, DEVICE_STUCK);
    ck_assert_uint_eq(list[0].devices, 0x2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("events");
    TCase *c = tcase_create("pools");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, pools_over_other_numbers_of_hosts_are_others);
    tcase_add_test(c, stuck_devices_are_those_of_this_host);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}
