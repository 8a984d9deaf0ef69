// SPDX-License-Identifier: Apache-2.0
// Crews over other hosts: a host is lost, and the host with the highest number. tests/nodes has
// real agents, which are fewer.
#include "daemon/pool/crew.h"

#include <string.h>

#include "tests/daemon/far_crews.h"
#include "tests/support/runner.h"

static struct far_crews f;

static void setup(void)
{
    far_crews_init(&f, NULL);
}

static void teardown(void)
{
    far_crews_fini(&f);
}

static void say_hello(int rank)
{
    struct channel_hello hello;
    channel_hello_fill(&hello, 1, rank);
    const struct channel_frame frame = {.type = CHANNEL_HELLO, .length = sizeof(hello)};
    const struct far_rank at = far_crews_rank(&f, rank);
    crews_far_frame(f.crews, &at, &frame, &hello);
}

static void be_gone(int rank)
{
    const struct rank_end end = {RANK_SIGNALLED, 9};
    const struct far_rank at = far_crews_rank(&f, rank);
    crews_far_gone(f.crews, &at, &end);
}

// A rank that is distrusted stays so, and its host has to end it, when another host is lost.
START_TEST(a_lost_host_changes_no_rank_of_another)
{
    struct crew *crew = far_crews_start(&f, (const int[]){1, 1, 2, 2}, 4);
    struct error error;
    for (int rank = 0; rank < 4; rank++)
        say_hello(rank);
    const struct far_rank at = far_crews_rank(&f, 3);
    error_set(&error, STATUS_DATA_LOSS, "it has broken a rule");
    crews_far_distrusted(f.crews, &at, &error);
    ck_assert_int_eq(f.failed, 1);
    crews_host_lost(f.crews, 1);
    ck_assert_int_eq(crew->alive, 2);
    for (int rank = 0; rank < 4; rank++) {
        ck_assert_int_eq(crew->ranks[rank].gone, rank < 2);
        ck_assert_int_eq(crew->ranks[rank].closed, rank != 2);
    }
    say_hello(3); // breaks another rule; nobody listens
    ck_assert_int_eq(f.failed, 1);
    crew_kill(crew);
    ck_assert_int_eq(f.kills[1], 0);
    ck_assert_int_eq(f.kills[2], 1);
    be_gone(2);
    be_gone(3);
    ck_assert_int_eq(f.exited, 2); // those of the lost host are not reported
    ck_assert_int_eq(crew->world_size, 0);
}
END_TEST

// Its ranks are gone and get no messages. Those of the other host live.
START_TEST(ranks_do_not_start_on_a_host)
{
    struct crew *crew = far_crews_start(&f, (const int[]){1, 2, 2}, 3);
    struct error error;
    error_set(&error, STATUS_UNAVAILABLE, "there is no room");
    const struct far_rank at = far_crews_rank(&f, 1);
    crews_far_not_started(f.crews, &at, &error);
    ck_assert_uint_eq(f.not_started, 1 << 2);
    ck_assert_int_eq(crew->alive, 1);
    for (int rank = 0; rank < 3; rank++) {
        ck_assert_int_eq(crew->ranks[rank].gone, rank > 0);
        ck_assert_int_eq(crew->ranks[rank].closed, rank > 0);
    }
    say_hello(1); // too late
    be_gone(2);
    ck_assert_int_eq(f.failed + f.exited, 0);
    be_gone(0);
    ck_assert_int_eq(f.exited, 1);
    ck_assert_int_eq(crew->world_size, 0);
}
END_TEST

START_TEST(the_host_with_the_highest_number_is_asked_once)
{
    struct crew *crew = far_crews_start(&f, (const int[]){5, HOSTS_MAX - 1}, 2);
    ck_assert_int_eq(f.starts, 1);
    crew_kill(crew);
    for (int host = 0; host < HOSTS_MAX; host++)
        ck_assert_int_eq(f.kills[host], host == 5 || host == HOSTS_MAX - 1);
    be_gone(1);
    ck_assert_int_eq(f.exited, 1);
    crews_host_lost(f.crews, 5);
    ck_assert_int_eq(crew->world_size, 0);
    crew = far_crews_start(&f, (const int[]){HOSTS_MAX - 1}, 1);
    crews_host_lost(f.crews, HOSTS_MAX - 1);
    ck_assert_int_eq(crew->world_size, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crew");
    TCase *c = tcase_create("hosts");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_lost_host_changes_no_rank_of_another);
    tcase_add_test(c, ranks_do_not_start_on_a_host);
    tcase_add_test(c, the_host_with_the_highest_number_is_asked_once);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}
