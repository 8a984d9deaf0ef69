// SPDX-License-Identifier: Apache-2.0
// The pool core: pools over several hosts, and lost hosts.
#include <stdio.h>
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static struct core_config hosts_config(int host_count, const int *devices)
{
    struct core_config config = fixture_config();
    config.host_count = host_count;
    config.ranks_max = 64;
    for (int host = 0; host < host_count; host++) {
        config.hosts[host] = (struct core_host){.device_count = devices[host]};
        snprintf(config.hosts[host].name, sizeof(config.hosts[host].name), "node%d", host);
    }
    return config;
}

static void begin(void)
{
    struct core_config config = hosts_config(3, (int[]){4, 4, 4});
    fixture_begin(&config);
}

static int submit_over(int world_size, int nodes, int ranks_per_node)
{
    struct core_request request = request_make(world_size);
    request.nodes = nodes;
    request.ranks_per_node = ranks_per_node;
    int slot = -1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    return slot;
}

static void refused_over(int world_size, int nodes, int ranks_per_node, enum status status,
                         const char *text_part)
{
    struct core_request request = request_make(world_size);
    request.nodes = nodes;
    request.ranks_per_node = ranks_per_node;
    int slot = -1;
    ck_assert_int_eq(submit_request(&request, &slot), status);
    ck_assert_msg(strstr(f.error.text, text_part), "\"%s\" lacks \"%s\"", f.error.text, text_part);
    expect_none();
}

static void lose(int host)
{
    core_host_lost(f.core, f.now_ns, host);
    core_assert(f.core);
}

static void take_back(int host)
{
    core_host_back(f.core, f.now_ns, host);
    core_assert(f.core);
}

// The next action starts a pool on exactly these hosts and slots.
static struct ranks expect_start_on(int world_size, uint64_t hosts, uint64_t devices)
{
    struct action a = expect(ACTION_START);
    ck_assert_int_eq(a.world_size, world_size);
    ck_assert_uint_eq(a.hosts, hosts);
    ck_assert_uint_eq(a.devices, devices);
    return (struct ranks){a.pool, a.world_size, a.generation};
}

static void reap_on(struct ranks ranks, int host)
{
    const struct rank_end end = {RANK_SIGNALLED, 9};
    bool there[WORLD_SIZE_MAX];
    for (int rank = 0; rank < ranks.world_size; rank++)
        there[rank] = core_seat(f.core, ranks.pool, rank).host == host;
    for (int rank = 0; rank < ranks.world_size; rank++)
        if (there[rank]) {
            core_rank_exited(f.core, f.now_ns, ranks.pool, ranks.generation, rank, &end);
            core_assert(f.core);
        }
}

// Starts a pool of the world size on these hosts. It runs a job.
static struct ranks run_on(int world_size, uint64_t hosts, uint64_t devices, int *slot)
{
    *slot = submit(world_size);
    struct ranks ranks = expect_start_on(world_size, hosts, devices);
    ranks_ready(ranks);
    expect_run(ranks, *slot);
    return ranks;
}

static void expect_node_lost(int slot, int host)
{
    struct action answer = expect_answer(slot, CAUSE_NODE_LOST, -1);
    ck_assert_int_eq(answer.status, STATUS_ABORTED);
    ck_assert_int_eq(answer.host, host);
}

START_TEST(one_host_is_enough_where_the_ranks_fit)
{
    int slot;
    run_on(4, 1 << 0, 0xf, &slot);
    run_on(4, 1 << 1, 0xf, &slot);
    run_on(4, 1 << 2, 0xf, &slot);
    submit(4);
    expect_none();
}
END_TEST

START_TEST(more_ranks_are_spread_evenly_host_by_host)
{
    int slot;
    struct ranks ranks = run_on(8, 3, 0xf, &slot);
    for (int rank = 0; rank < 8; rank++) {
        struct core_seat seat = core_seat(f.core, ranks.pool, rank);
        ck_assert_int_eq(seat.host, rank / 4);
        ck_assert_int_eq(seat.device, rank % 4);
    }
    run_on(4, 1 << 2, 0xf, &slot); // beside it, on the remaining host
    submit(1);
    expect_none();
}
END_TEST

// The place of a pool has the same slots on each host. Its stuck ranks may be on others.
START_TEST(stuck_ranks_block_their_own_devices_only)
{
    struct wire_status status = {0};
    struct wire_pool pools[POOLS_MAX];
    int slot;
    struct ranks ranks = run_on(8, 3, 0xf, &slot);
    rank_fails(ranks, 1);
    expect_answer(slot, CAUSE_RANK_FAILED, 1);
    expect_kill(ranks);
    for (int rank = 0; rank < 8; rank++)
        if (rank != 1 && rank != 6)
            rank_dies(ranks, rank);
    pass(5 * S); // the kill timeout of the fixture
    expect(ACTION_STUCK);
    core_status(f.core, &status, pools);
    ck_assert_uint_eq(status.devices_stuck, 0x2);
    ck_assert_uint_eq(status.hosts[0].devices_stuck, 0x2);
    ck_assert_uint_eq(status.hosts[1].devices_stuck, 0x4);
    ck_assert_uint_eq(status.hosts[2].devices_stuck, 0);
    submit_over(2, 1, 0);
    expect_start_on(2, 1 << 0, 0xc);
    submit_over(2, 1, 0);
    expect_start_on(2, 1 << 1, 0x3);
}
END_TEST

START_TEST(a_request_may_name_nodes_or_ranks_per_node)
{
    submit_over(4, 2, 0);
    expect_start_on(4, 3, 0x3);
    submit_over(4, 0, 2); // the same again, on the other slots of the same hosts
    expect_start_on(4, 3, 0xc);
    submit_over(3, 3, 1);
    expect_none(); // hosts 0 and 1 are full
    refused_over(4, 3, 0, STATUS_INVALID_ARGUMENT, "nodes: 3");
    refused_over(4, 2, 1, STATUS_INVALID_ARGUMENT, "ranks_per_node: 1");
    refused_over(4, 0, 3, STATUS_INVALID_ARGUMENT, "ranks_per_node: 3");
    refused_over(4, -1, 0, STATUS_INVALID_ARGUMENT, "nodes: -1");
    refused_over(4, 4, 0, STATUS_FAILED_PRECONDITION, "3 hosts with 12 devices");
    refused_over(10, 0, 0, STATUS_FAILED_PRECONDITION, "evenly");
}
END_TEST

START_TEST(a_lost_host_answers_its_jobs_at_once)
{
    int slot, other;
    struct ranks ranks = run_on(8, 3, 0xf, &slot);
    run_on(4, 1 << 2, 0xf, &other);
    lose(1);
    expect_node_lost(slot, 1);
    struct action kill = expect(ACTION_KILL);
    ck_assert_int_eq(kill.pool, ranks.pool);
    ck_assert_int_eq(kill.host, 1);
    expect_none();
    lose(1); // the host is already lost
    expect_none();
}
END_TEST

START_TEST(devices_of_other_hosts_are_free_when_their_ranks_are_reaped)
{
    int slot;
    struct ranks ranks = run_on(8, 3, 0xf, &slot);
    lose(1);
    expect_node_lost(slot, 1);
    expect_kill(ranks);
    slot = submit(8); // waits for hosts 0 and 2
    expect_none();
    reap_on(ranks, 0);
    struct ranks next = expect_start_on(8, 5, 0xf);
    ranks_ready(next);
    expect_run(next, slot);
    take_back(1);
    submit(4);
    expect_start_on(4, 1 << 1, 0xf);
}
END_TEST

START_TEST(events_of_a_lost_host_are_ignored)
{
    int slot;
    struct ranks ranks = run_on(8, 3, 0xf, &slot);
    lose(0);
    expect_node_lost(slot, 0);
    expect_kill(ranks);
    rank_dies(ranks, 2);
    expect_none();
    reap_on(ranks, 1);
    expect_none();
    take_back(0);
    run_on(8, 6, 0xf, &slot); // the pool has moved to hosts 1 and 2
}
END_TEST

START_TEST(devices_of_a_lost_host_are_unusable)
{
    int slot;
    lose(0);
    lose(1);
    refused_over(8, 0, 0, STATUS_UNAVAILABLE, "host node1 is lost");
    run_on(4, 1 << 2, 0xf, &slot);
    slot = submit(4);
    expect_none();
    take_back(1);
    struct ranks ranks = expect_start_on(4, 1 << 1, 0xf);
    ranks_ready(ranks);
    expect_run(ranks, slot);
}
END_TEST

START_TEST(hosts_may_connect_later)
{
    struct core_config config = hosts_config(3, (int[]){4, 4, 4});
    config.hosts[1].away = config.hosts[2].away = true;
    fixture_again(&config);
    int slot;
    refused_over(8, 0, 0, STATUS_UNAVAILABLE, "is lost");
    take_back(2);
    run_on(8, 5, 0xf, &slot);
}
END_TEST

START_TEST(a_job_that_may_run_anywhere_goes_to_other_hosts)
{
    struct core_config config = hosts_config(3, (int[]){8, 4, 4});
    fixture_again(&config);
    int first, second, named;
    run_on(8, 1 << 0, 0xff, &first);
    second = submit(8);
    named = submit_over(8, 1, 0);
    lose(0);
    expect_node_lost(first, 0);
    struct ranks next = expect_start_on(8, 6, 0xf);
    ranks_ready(next);
    expect_run(next, second);
    take_back(0);
    next = expect_start_on(8, 1 << 0, 0xff);
    ranks_ready(next);
    expect_run(next, named);
}
END_TEST

START_TEST(a_start_may_fail_on_one_host)
{
    int slot = submit(8);
    struct ranks ranks = expect_start_on(8, 3, 0xf);
    core_start_failed_on(f.core, f.now_ns, ranks.pool, ranks.generation, 1);
    core_assert(f.core);
    expect_kill(ranks);
    reap_on(ranks, 0);
    ranks = expect_start(8, 0); // no pause after the first failure
    core_start_failed(f.core, f.now_ns, ranks.pool, ranks.generation);
    core_assert(f.core);
    expect_none();
    pass(S);
    ranks = expect_start(8, 0);
    ranks_ready(ranks);
    expect_run(ranks, slot);
}
END_TEST

START_TEST(shared_devices_are_assigned_on_each_host)
{
    struct core_config config = hosts_config(2, (int[]){2, 3});
    config.ranks_per_device = 2;
    fixture_again(&config);
    int slot = submit(8);
    struct action a = expect(ACTION_START);
    ck_assert_uint_eq(a.hosts, 3);
    ck_assert_int_eq(core_seat(f.core, a.pool, 3).host, 0);
    ck_assert_int_eq(core_seat(f.core, a.pool, 3).device, 1);
    ck_assert_int_eq(core_seat(f.core, a.pool, 7).host, 1);
    ck_assert_int_eq(core_seat(f.core, a.pool, 7).device, 0);
    struct ranks ranks = {a.pool, 8, a.generation};
    ranks_ready(ranks);
    expect_run(ranks, slot);
}
END_TEST

// The largest configuration. A world size starts on the smallest number of hosts that divides it.
START_TEST(sixty_four_hosts_of_eight_devices)
{
    static const int world_sizes[] = {1, 8, 9, 48, 64};
    int world_size = world_sizes[_i], devices[HOSTS_MAX];
    for (int host = 0; host < HOSTS_MAX; host++)
        devices[host] = 8;
    struct core_config config = hosts_config(HOSTS_MAX, devices);
    config.ranks_max = 4096;
    fixture_again(&config);
    submit(world_size);
    struct action a = expect(ACTION_START);
    int nodes = __builtin_popcountll(a.hosts);
    ck_assert(world_size % nodes == 0 && world_size / nodes <= 8);
    for (int fewer = 1; fewer < nodes; fewer++)
        ck_assert(world_size % fewer != 0 || world_size / fewer > 8);
    lose(core_seat(f.core, a.pool, world_size - 1).host);
    if (nodes > 1)
        expect(ACTION_KILL);
    expect(ACTION_START); // on other hosts, at once
}
END_TEST

static enum status submit_guest(int world_size, int nodes)
{
    struct core_request request = request_make(world_size);
    int slot = -1;
    request.implementation = 1;
    request.nodes = nodes;
    return submit_request(&request, &slot);
}

START_TEST(guests_stay_on_the_first_host)
{
    struct core_config config = hosts_config(3, (int[]){2, 4, 4});
    config.guest_count = 1;
    config.guests[0] = (struct core_guest){.world_sizes = UINT64_MAX, .start_timeout_ns = 2 * S};
    fixture_again(&config);
    ck_assert_int_eq(submit_guest(2, 0), STATUS_OK);
    struct ranks guest = expect_start_on(2, 1, 3);
    ck_assert_int_eq(submit_guest(2, 0), STATUS_OK);
    expect_none(); // no other host takes guests
    ranks_ready(guest);
    expect(ACTION_RUN);
    ck_assert_int_eq(submit_guest(2, 2), STATUS_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(f.error.text, "guests run on no other host"));
    ck_assert_int_eq(submit_guest(4, 0), STATUS_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(f.error.text, "nodes 0 do not fit on node0"));
    submit(4);
    expect_start_on(4, 2, 15);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core hosts");
    TCase *hosts = tcase_create("hosts");
    tcase_add_checked_fixture(hosts, begin, fixture_end);
    tcase_add_test(hosts, one_host_is_enough_where_the_ranks_fit);
    tcase_add_test(hosts, more_ranks_are_spread_evenly_host_by_host);
    tcase_add_test(hosts, stuck_ranks_block_their_own_devices_only);
    tcase_add_test(hosts, a_request_may_name_nodes_or_ranks_per_node);
    tcase_add_test(hosts, a_lost_host_answers_its_jobs_at_once);
    tcase_add_test(hosts, devices_of_other_hosts_are_free_when_their_ranks_are_reaped);
    tcase_add_test(hosts, events_of_a_lost_host_are_ignored);
    tcase_add_test(hosts, devices_of_a_lost_host_are_unusable);
    tcase_add_test(hosts, hosts_may_connect_later);
    tcase_add_test(hosts, a_job_that_may_run_anywhere_goes_to_other_hosts);
    tcase_add_test(hosts, a_start_may_fail_on_one_host);
    tcase_add_test(hosts, shared_devices_are_assigned_on_each_host);
    tcase_add_test(hosts, guests_stay_on_the_first_host);
    tcase_set_timeout(hosts, 60);
    tcase_add_loop_test(hosts, sixty_four_hosts_of_eight_devices, 0, 5);
    suite_add_tcase(suite, hosts);
    return runner_run(suite);
}
