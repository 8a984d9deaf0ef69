// SPDX-License-Identifier: Apache-2.0
// The real daemon with hot spares: leading and standby pools, and their losses.
#include "tests/support/runner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"

#define WORLD       2
#define PATIENCE_MS 30000

static void begin(const char *const *arguments)
{
    daemon_init(&d);
    daemon_start(&d, arguments);
}

static void setup(void)
{
    begin((const char *const[]){"--spares", "on", "--devices", "2", "--rank-program",
                                daemon_odd_rank(), NULL});
}

// ---- pools as status tells them ----------------------------------------------------------------

// The working pool and the spare of WORLD ranks; world_size 0: none.
struct pair {
    struct wire_pool leader, spare;
};

static struct pair pair_now(void)
{
    struct pair pair = {.leader.world_size = 0};
    struct wire_request request = daemon_request(METHOD_STATUS);
    struct wire_reply reply = daemon_call(&d, &request);
    for (int i = 0; i < reply.pools.pool_count; i++) {
        const struct wire_pool *pool = &reply.pools.pools[i];
        if (pool->world_size == WORLD)
            *(pool->spare ? &pair.spare : &pair.leader) = *pool;
    }
    wire_reply_fini(&reply);
    return pair;
}

// Waits until the spare of this generation is ready and no pool is busy.
static struct pair pair_await(uint32_t generation)
{
    struct pair pair = pair_now();
    for (int waited = 0; pair.spare.generation != generation || pair.spare.state != POOL_IDLE ||
                         pair.leader.state != POOL_IDLE;
         waited += 2) {
        ck_assert_msg(waited < PATIENCE_MS, "no spare with generation %u comes", generation);
        usleep(2000);
        pair = pair_now();
    }
    return pair;
}

// The processes of a rank in the older pool and in the younger one.
struct pids {
    pid_t leader, spare;
};

static struct pids pids_of(int rank)
{
    pid_t pids[2] = {0};
    ck_assert_int_eq(daemon_rank_pids(&d, WORLD, rank, pids, 2), 2);
    return (struct pids){pids[0], pids[1]};
}

// ---- the tests ---------------------------------------------------------------------------------

START_TEST(test_takes_over_after_a_death)
{
    run_and_pass(&d, WORLD);
    struct pair before = pair_await(1);
    ck_assert_uint_eq(before.leader.jobs, 1);
    ck_assert_uint_eq(before.spare.jobs, 0);
    ck_assert_uint_eq(before.leader.devices, before.spare.devices);
    struct pids pids = pids_of(1);

    struct wire_request silent = daemon_request_labelled("silent", WORLD);
    struct call call = daemon_call_begin(&d, &silent);
    daemon_await_running(&d, 1);
    kill(pids.leader, SIGKILL);
    struct wire_reply reply = daemon_call_end(&call);
    expect_status(&reply, STATUS_ABORTED);
    expect_text(reply.message, "rank 1 of 2 was killed by signal 9");
    wire_reply_fini(&reply);

    run_and_pass(&d, WORLD);
    ck_assert_int_eq(daemon_rank_pid(&d, WORLD, 1), pids.spare);
    struct pair after = pair_await(2);
    ck_assert_uint_eq(after.leader.generation, 1);
    ck_assert_uint_eq(after.leader.jobs, 1);
    ck_assert_uint_eq(after.leader.deaths, 0);
    ck_assert_uint_eq(after.spare.deaths, 1);
    ck_assert(daemon_logged(&d, "generation=2 devices=0x3 hosts=0x1 spare=1"));
    ck_assert(daemon_logged(&d, "generation=3 devices=0x3 hosts=0x1 spare=1"));
    run_and_pass(&d, WORLD);
    ck_assert_int_eq(pids_of(1).leader, pids.spare);
}
END_TEST

START_TEST(test_takes_over_after_a_deadline)
{
    run_and_pass(&d, WORLD);
    pair_await(1);
    struct pids pids = pids_of(0);
    struct wire_request silent = daemon_request_labelled("silent", WORLD);
    silent.timeout_ns = UINT64_C(300000000);
    struct wire_reply reply = daemon_call(&d, &silent);
    expect_status(&reply, STATUS_DEADLINE_EXCEEDED);
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
    pair_await(2);
    ck_assert_int_eq(pids_of(0).leader, pids.spare);
}
END_TEST

START_TEST(test_takes_over_when_idle_ranks_die)
{
    run_and_pass(&d, WORLD);
    pair_await(1);
    struct pids pids = pids_of(0);
    kill(pids.leader, SIGKILL);
    pair_await(2);
    ck_assert_int_eq(pids_of(0).leader, pids.spare);
    run_and_pass(&d, WORLD);
}
END_TEST

// The spare is started again; the working pool is not affected.
START_TEST(test_a_spare_dies)
{
    run_and_pass(&d, WORLD);
    pair_await(1);
    struct pids pids = pids_of(0);
    kill(pids.spare, SIGKILL);
    run_and_pass(&d, WORLD);
    struct pair after = pair_await(2);
    ck_assert_uint_eq(after.spare.deaths, 1);
    expect_text(after.spare.last_failure, "rank 0 was killed by signal 9 (SIGKILL)");
    ck_assert_uint_eq(after.leader.jobs, 2);
    ck_assert_uint_eq(after.leader.generation, 1);
    ck_assert_int_eq(pids_of(0).leader, pids.leader);
}
END_TEST

static void submit_status(const char *option, char *text, size_t size)
{
    char program[4096], command[8192];
    runner_build(program, sizeof(program), "cpattn-submit");
    snprintf(command, sizeof(command), "%s status --socket %s %s", program, d.socket, option);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t length = fread(text, 1, size - 1, pipe);
    ck_assert_int_eq(pclose(pipe), 0);
    text[length] = '\0';
}

START_TEST(test_status_for_people)
{
    char text[4096];
    run_and_pass(&d, WORLD);
    pair_await(1);
    submit_status("--json", text, sizeof(text));
    expect_text(text, "\"spare\":false");
    expect_text(text, "\"spare\":true");
    submit_status("", text, sizeof(text));
    expect_text(text, "SPARE");
    const char *first = strstr(text, "idle"), *second = first ? strstr(first + 1, "idle") : NULL;
    ck_assert_msg(second, "%s", text);
    ck_assert_int_eq(strspn(first, "idle "), strcspn(first, "-"));   // not a spare: "-"
    ck_assert_int_eq(strspn(second, "idle "), strcspn(second, "y")); // a spare: "yes"
}
END_TEST

START_TEST(test_both_idle_out)
{
    begin((const char *const[]){"--spares=on", "--devices=2", "--idle-timeout=4s", NULL});
    run_and_pass(&d, WORLD);
    pair_await(1);
    for (int waited = 0; daemon_rank_count(&d) > 0; waited += 10) {
        ck_assert_int_lt(waited, PATIENCE_MS);
        usleep(10000);
    }
    ck_assert(daemon_logged(&d, "pool_kill world=2 instance=0 generation=1"));
    ck_assert(daemon_logged(&d, "pool_kill world=2 instance=0 generation=2"));
    ck_assert_uint_eq(pair_now().leader.deaths, 0);
    run_and_pass(&d, WORLD);
    pair_await(2);
    daemon_teardown_stopped();
}
END_TEST

// Spares are off by default on the CPU, because a start takes milliseconds.
START_TEST(test_none_on_the_cpu)
{
    for (int i = 0; i < 2; i++) {
        const char *const off[] = {"--spares", "off", NULL};
        begin(i == 0 ? NULL : off);
        run_and_pass(&d, WORLD);
        run_and_pass(&d, WORLD);
        ck_assert(daemon_logged(&d, "spares=off"));
        ck_assert_int_eq(daemon_rank_count(&d), WORLD);
        ck_assert_int_eq(pair_now().spare.world_size, 0);
        daemon_teardown_stopped();
    }
}
END_TEST

START_TEST(test_setting)
{
    char text[4096];
    ck_assert_int_eq(daemon_run((const char *const[]){"--spares", "two", NULL}, text, sizeof(text)),
                     64);
    expect_text(text, "--spares: value 'two': expected auto, on or off");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_spares");
    TCase *on = tcase_create("spares"), *other = tcase_create("settings");
    tcase_add_checked_fixture(on, setup, daemon_teardown_stopped);
    tcase_set_timeout(on, 120);
    tcase_add_test(on, test_takes_over_after_a_death);
    tcase_add_test(on, test_takes_over_after_a_deadline);
    tcase_add_test(on, test_takes_over_when_idle_ranks_die);
    tcase_add_test(on, test_a_spare_dies);
    tcase_add_test(on, test_status_for_people);
    suite_add_tcase(suite, on);
    tcase_set_timeout(other, 120);
    tcase_add_test(other, test_both_idle_out);
    tcase_add_test(other, test_none_on_the_cpu);
    tcase_add_test(other, test_setting);
    suite_add_tcase(suite, other);
    return runner_run(suite);
}
