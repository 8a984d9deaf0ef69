// SPDX-License-Identifier: Apache-2.0
// The real daemon with ranks that misbehave in many ways (tests/daemon/odd_rank.c). Each fault
// costs one case and one pool. The answer tells the cause, and the next case runs.
#include "tests/support/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"

#define WORLD 3
#define CHILD (WORLD - 1) // the rank that misbehaves

static void setup(void)
{
    const char *const arguments[] = {"--rank-program", daemon_odd_rank(), NULL};
    daemon_init(&d);
    setenv("CPATTN_TEST_SECRET", "1", 1);
    daemon_start(&d, arguments);
}

static struct wire_reply run(const char *label, int world_size, uint64_t timeout_ns)
{
    struct wire_request request = daemon_request_labelled(label, world_size);
    request.timeout_ns = timeout_ns;
    return daemon_call(&d, &request);
}

static void expect_failure(const char *label, enum status status, const char *message)
{
    struct wire_reply reply = run(label, WORLD, 0);
    ck_assert_msg(reply.status == status, "%s: %s", status_name(reply.status), reply.message);
    expect_text(reply.message, "rank 2 of 3");
    expect_text(reply.message, message);
    ck_assert_int_eq(reply.failure.world_size, WORLD);
    ck_assert(reply.failure.ranks[CHILD].culprit);
    ck_assert(!reply.failure.ranks[0].culprit);
    ck_assert(!reply.failure.ranks[1].culprit);
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
}

// ---- what a rank starts with -------------------------------------------------------------------

static size_t file_read(pid_t pid, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    size_t length = fread(text, 1, size - 1, file);
    fclose(file);
    text[length] = '\0';
    return length;
}

static bool descriptor_open(pid_t pid, int fd)
{
    char path[64];
    struct stat stat;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    return lstat(path, &stat) == 0;
}

START_TEST(test_rank_starts_clean)
{
    char text[8192];
    run_and_pass(&d, WORLD);
    for (int rank = 0; rank < WORLD; rank++) {
        pid_t pid = daemon_rank_pid(&d, WORLD, rank);
        for (int fd = 0; fd < 512; fd++) // 0 to 4, and the mesh without itself
            ck_assert_msg(descriptor_open(pid, fd) == (fd < 5 + WORLD && fd != 5 + rank),
                          "descriptor %d of rank %d", fd, rank);
        ck_assert_int_eq(getpgid(pid), pid);
        file_read(pid, "status", text, sizeof(text));
        ck_assert_ptr_nonnull(strstr(text, "SigBlk:\t0000000000000000"));
        const char *ignored = strstr(text, "SigIgn:");
        ck_assert_ptr_nonnull(ignored); // 32 and 33 belong to the C library
        ck_assert_uint_eq(strtoull(ignored + 7, NULL, 16) & 0x7fffffff, 0);
        size_t length = file_read(pid, "environ", text, sizeof(text));
        for (size_t i = 0; i < length; i++)
            text[i] = text[i] ? text[i] : '\n';
        expect_text(text, "OPENBLAS_NUM_THREADS=1\n");
        expect_text(text, "LANG=C\n");
        ck_assert_msg(!strstr(text, "CPATTN_TEST_SECRET"), "the environment is inherited");
    }
}
END_TEST

// ---- ranks that break the channel's rules ------------------------------------------------------

static const struct {
    const char *label, *message;
} lies[] = {
    {"garbage", "failed"},
    {"magic", "failed"},
    {"case", "STOP"},
    {"short", "failed"},
    {"job", "a case it does not run"},
    {"figures", "impossible figures"},
    {"tensor", "impossible figures"},
    {"broken", "impossible figures"},
    {"judged", "impossible figures"},
    {"diagnosis", "impossible figures"},
    {"times", "impossible figures"},
    {"few_times", "bytes of payload"},
    {"many_times", "times of 513 operations"},
    {"blame", "an impossible failure"},
    {"mute", "closed its channel"},
};

START_TEST(test_invalid_report)
{
    run_and_pass(&d, WORLD);
    expect_failure(lies[_i].label, STATUS_INTERNAL, lies[_i].message);
}
END_TEST

// The first report leads to a valid answer. The second one costs the pool, and perhaps the next
// case of the pool.
START_TEST(test_report_twice)
{
    struct wire_reply reply = run("twice", 1, 0);
    ck_assert_msg(reply.status == STATUS_OK, "%s", reply.message);
    wire_reply_fini(&reply);
    reply = run("", 1, 0);
    ck_assert_msg(reply.status == STATUS_OK || reply.status == STATUS_INTERNAL, "%s",
                  reply.message);
    wire_reply_fini(&reply);
    run_and_pass(&d, 1);
    ck_assert(daemon_logged(&d, "rank_distrusted"));
}
END_TEST

START_TEST(test_stale_generation_is_dropped)
{
    struct wire_reply reply = run("stale", WORLD, 0);
    ck_assert_msg(reply.status == STATUS_OK, "%s", reply.message);
    ck_assert_int_eq(reply.result.verdict, VERDICT_PASS);
    wire_reply_fini(&reply);
}
END_TEST

START_TEST(test_mismatch_keeps_the_pool)
{
    run_and_pass(&d, WORLD);
    pid_t before = daemon_rank_pid(&d, WORLD, 0);
    struct wire_reply reply = run("verdict", WORLD, 0);
    ck_assert_int_eq(reply.status, STATUS_OK);
    ck_assert_int_eq(reply.result.verdict, VERDICT_FAIL);
    ck_assert(reply.result.ranks[0].pass);
    ck_assert(!reply.result.ranks[CHILD].pass);
    ck_assert_int_eq(reply.result.ranks[0].diagnosis.tensor, 0);
    const struct rank_report *report = &reply.result.ranks[CHILD];
    ck_assert_int_eq(report->diagnosis.tensor, TENSOR_DK);
    ck_assert_double_eq(report->diagnosis.explained, 0.75);
    ck_assert_str_eq(report->diagnosis.text, "half?of it");
    ck_assert_int_eq(report->figures_count, 1);
    const struct figures *f = report->figures;
    ck_assert_int_eq(f->broken, RULE_SLOPE);
    ck_assert_int_eq(f->judged, 4);
    ck_assert_double_eq(f->slope, 0.5);
    ck_assert_int_eq(f->te_mismatches, 3);
    ck_assert_int_eq(f->remark, REMARK_LONG_SUM);
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
    ck_assert_int_eq(daemon_rank_pid(&d, WORLD, 0), before);
    ck_assert_uint_eq(daemon_status(&d).failed, 1);
}
END_TEST

// ---- ranks that end, fail or hang --------------------------------------------------------------

START_TEST(test_exit)
{
    expect_failure("exit", STATUS_ABORTED, "exited with 0 in forward, step 1");
}
END_TEST

// A child of the rank keeps the channel open: the pidfd still reports the death, and the child is
// killed, too.
START_TEST(test_exit_with_child)
{
    expect_failure("child", STATUS_ABORTED, "exited with 3");
    ck_assert_int_eq(daemon_rank_count(&d), WORLD);
    while (daemon_child_count(&d) != WORLD) // the child is reaped too
        usleep(10000);
}
END_TEST

START_TEST(test_own_failure)
{
    struct wire_reply reply = run("failed", WORLD, 0);
    ck_assert_int_eq(reply.status, STATUS_INTERNAL);
    expect_text(reply.message, "rank 2 of 3 failed");
    expect_text(reply.message, "out of ideas");
    ck_assert_str_eq(reply.failure.ranks[CHILD].text, "out of ideas");
    ck_assert_str_eq(reply.failure.ranks[0].fate, "aborted sibling");
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
}
END_TEST

// The others wait for the failed rank; the answer waits neither for them nor for the deadline.
START_TEST(test_own_failure_while_others_wait)
{
    struct wire_reply reply = run("alone", WORLD, UINT64_C(3600) * 1000000000);
    ck_assert_int_eq(reply.status, STATUS_INTERNAL);
    expect_text(reply.message, "rank 2 of 3 failed in forward, step 1: out of ideas");
    ck_assert_int_eq(reply.failure.ranks[CHILD].phase, REPORT_FORWARD);
    ck_assert_int_eq(reply.failure.ranks[CHILD].step, 1);
    for (int rank = 0; rank < WORLD; rank++) {
        ck_assert_int_eq(reply.failure.ranks[rank].culprit, rank == CHILD);
        if (rank != CHILD) // its phase and step are not known
            ck_assert_str_eq(reply.failure.ranks[rank].fate, "aborted sibling");
    }
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
}
END_TEST

START_TEST(test_peer_lost_without_cause)
{
    struct wire_reply reply = run("peer", WORLD, 0);
    ck_assert_int_eq(reply.status, STATUS_ABORTED);
    expect_text(reply.message, "rank 0 of 3 was lost by its peers");
    ck_assert(reply.failure.ranks[0].culprit);
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
}
END_TEST

START_TEST(test_last_words)
{
    struct wire_reply reply = run("words", WORLD, 0);
    ck_assert_int_eq(reply.status, STATUS_ABORTED);
    expect_text(reply.message, "killed by signal 10");
    const char *words = reply.failure.ranks[CHILD].stderr_tail;
    expect_text(words, "first line\n");
    expect_text(words, "last words\n");
    expect_text(words, "100% percent %s");
    for (const char *c = words; *c; c++)
        ck_assert_msg((*c >= ' ' && *c <= '~') || *c == '\n' || *c == '\t', "character %d", *c);
    ck_assert_str_eq(reply.failure.ranks[0].stderr_tail, "");
    wire_reply_fini(&reply);
    ck_assert(daemon_logged(&d, "last words"));
}
END_TEST

// The pool is up, so the time passes during the run.
START_TEST(test_silence_until_deadline)
{
    run_and_pass(&d, WORLD);
    struct wire_reply reply = run("silent", WORLD, 300 * UINT64_C(1000000));
    ck_assert_int_eq(reply.status, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply.message, "time limit of 300 ms passed while rank ");
    expect_text(reply.message, "in forward, step 1");
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
}
END_TEST

// A stopped process is the culprit, even if its progress word names another rank.
START_TEST(test_stopped_while_waiting)
{
    run_and_pass(&d, WORLD);
    struct wire_reply reply = run("stopped", WORLD, 300 * UINT64_C(1000000));
    ck_assert_int_eq(reply.status, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply.message, "rank 2 of 3 was in backward, step 2, stopped by a signal");
    ck_assert(reply.failure.ranks[CHILD].culprit);
    ck_assert_int_eq(reply.failure.ranks[CHILD].state, 'T');
    ck_assert_int_eq(reply.failure.ranks[CHILD].waiting_for, 0);
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
}
END_TEST

// Endless text does not stall the daemon or fill its log.
START_TEST(test_flood)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    strcpy(request.run.model, "flood");
    request.run_timeout_ns = UINT64_C(5000000000);
    long resident_kib = daemon_resident_kib(&d);
    struct call call = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    for (int i = 0; i < 100; i++)
        daemon_ping_fresh(&d);
    run_and_pass(&d, 1);
    struct wire_reply reply = daemon_call_end(&call);
    ck_assert_int_eq(reply.status, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply.failure.ranks[1].stderr_tail, "no end to it\n");
    ck_assert_uint_ge(strlen(reply.failure.ranks[1].stderr_tail), STDERR_TAIL_BYTES - 1);
    wire_reply_fini(&reply);
    ck_assert(daemon_logged(&d, "rank_stderr_suppressed"));
    run_and_pass(&d, 2);
    ck_assert_int_lt(daemon_resident_kib(&d), resident_kib + 32 * 1024);
}
END_TEST

// ---- idle ranks --------------------------------------------------------------------------------

static void await_no_ranks(void)
{
    while (daemon_child_count(&d) > 0)
        usleep(10000);
}

static void idle_out(int world_size)
{
    run_and_pass(&d, world_size);
    await_no_ranks();
}

static void restart_with_idle_timeout(void)
{
    ck_assert_int_eq(daemon_stop(&d), 0);
    const char *const arguments[] = {"--rank-program", daemon_odd_rank(), "--idle-timeout", "50ms",
                                     NULL};
    daemon_start(&d, arguments);
}

START_TEST(test_idle_ranks_may_end_by_themselves)
{
    restart_with_idle_timeout();
    while (!daemon_logged(&d, "asked to end")) // a busy machine may kill the rank before it writes
        idle_out(1);
    while (!daemon_logged(&d, "told to end"))
        idle_out(2);
    idle_out(4); // these ranks are killed
}
END_TEST

// The daemon continues a stopped rank, so that the rank can end by itself.
START_TEST(test_idle_rank_that_is_stopped)
{
    restart_with_idle_timeout();
    while (!daemon_logged(&d, "asked to end")) {
        run_and_pass(&d, 1);
        pid_t rank = daemon_rank_pid(&d, 1, 0);
        if (rank > 0)
            kill(rank, SIGSTOP);
        await_no_ranks();
    }
}
END_TEST

// A lost rank gets no request to end.
START_TEST(test_lost_ranks_are_killed)
{
    expect_failure("exit", STATUS_ABORTED, "exited with 0");
    expect_failure("failed", STATUS_INTERNAL, "out of ideas");
    ck_assert(!daemon_logged(&d, "asked to end"));
}
END_TEST

// ---- poison ------------------------------------------------------------------------------------

// A different case for each seed.
static struct wire_reply run_seed(const char *label, uint64_t seed)
{
    struct wire_request request = daemon_request_labelled(label, WORLD);
    request.run.seed = seed;
    return daemon_call(&d, &request);
}

START_TEST(test_kills_from_outside_are_no_poison)
{
    for (int i = 0; i < 4; i++) {
        struct wire_reply reply = run_seed("killed", 7);
        expect_status(&reply, STATUS_ABORTED);
        expect_text(reply.message, "killed by signal 9 (SIGKILL)");
        wire_reply_fini(&reply);
    }
}
END_TEST

START_TEST(test_poison)
{
    for (int i = 0; i < 2; i++) {
        struct wire_reply reply = run_seed("exit", 7);
        expect_status(&reply, STATUS_ABORTED);
        wire_reply_fini(&reply);
    }
    struct wire_reply reply = run_seed("exit", 7);
    expect_status(&reply, STATUS_FAILED_PRECONDITION);
    expect_text(reply.message, "POISON: this case has killed 2 pools in a row");
    expect_text(reply.message, "the last time: rank 2 of 3 exited with ");
    ck_assert_ptr_null(strstr(reply.message, "restarted"));
    wire_reply_fini(&reply);
    reply = run_seed("exit", 8); // another case
    expect_status(&reply, STATUS_ABORTED);
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
}
END_TEST

// ---- pools that do not come up -----------------------------------------------------------------

// The answer after the last attempt has the reason of this pool; other pools continue.
static void expect_down(int world_size, const char *message)
{
    struct wire_reply reply = run("", world_size, 0);
    ck_assert_msg(reply.status == STATUS_UNAVAILABLE, "%s: %s", status_name(reply.status),
                  reply.message);
    expect_text(reply.message, message);
    wire_reply_fini(&reply);
    run_and_pass(&d, WORLD);
    reply = run("", world_size, 0); // refused at once
    ck_assert_int_eq(reply.status, STATUS_UNAVAILABLE);
    wire_reply_fini(&reply);

    struct wire_request request = daemon_request(METHOD_STATUS);
    reply = daemon_call(&d, &request);
    bool found = false;
    for (int i = 0; i < reply.pools.pool_count; i++) {
        const struct wire_pool *pool = &reply.pools.pools[i];
        if (pool->world_size != world_size)
            continue;
        found = true;
        ck_assert_int_eq(pool->state, POOL_DOWN);
        expect_text(pool->last_failure, message);
    }
    ck_assert(found);
    wire_reply_fini(&reply);
}

START_TEST(test_rank_cannot_start)
{
    expect_down(6, "exited with 127 before it was ready; it wrote: no such library");
}
END_TEST

START_TEST(test_rank_says_too_much)
{
    expect_down(8, "a READY frame carries 96 bytes of payload instead of less than 96");
}
END_TEST

START_TEST(test_status_tells_how_ranks_exchange)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    run_and_pass(&d, WORLD);
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_int_gt(reply.pools.pool_count, 0);
    ck_assert_str_eq(reply.pools.pools[0].exchange, "by hand?(4 MiB in 2 us)");
    wire_reply_fini(&reply);
}
END_TEST

// Starts the daemon with ranks that cannot start while the file `away` exists.
static void restart_without_a_library(const char *away)
{
    char script[128];
    ck_assert_int_eq(daemon_stop(&d), 0);
    snprintf(script, sizeof(script), "%s/rank", d.folder);
    FILE *file = fopen(script, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "#!/bin/sh\n[ -e %s ] && echo the library is away >&2 && exit 3\nexec %s \"$@\"\n",
            away, daemon_odd_rank());
    ck_assert_int_eq(fchmod(fileno(file), 0755), 0);
    ck_assert_int_eq(fclose(file), 0);
    const char *const arguments[] = {"--rank-program", script, NULL};
    daemon_start(&d, arguments);
}

static bool is_down(void)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    struct wire_reply reply = daemon_call(&d, &request);
    bool down = false;
    for (int i = 0; i < reply.pools.pool_count; i++)
        down |= reply.pools.pools[i].state == POOL_DOWN;
    wire_reply_fini(&reply);
    return down;
}

START_TEST(test_temporary_failure_of_starts)
{
    char away[128];
    snprintf(away, sizeof(away), "%s/away", d.folder);
    int fd = open(away, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    ck_assert_int_ge(fd, 0);
    close(fd);
    restart_without_a_library(away);
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = WORLD;
    struct wire_reply reply = daemon_call(&d, &request); // has no patience
    expect_status(&reply, STATUS_UNAVAILABLE);
    expect_text(reply.message, "the library is away");
    wire_reply_fini(&reply);
    request = daemon_request(METHOD_RUN);
    request.run.world_size = WORLD;
    request.patience_ns = PATIENCE_ENDLESS;
    struct call call = daemon_call_begin(&d, &request);
    while (!is_down())
        usleep(1000);
    ck_assert_int_eq(unlink(away), 0);
    reply = daemon_call_end(&call); // the waiting request runs
    expect_pass(&reply);
    ck_assert(!is_down());
    char script[128];
    snprintf(script, sizeof(script), "%s/rank", d.folder);
    ck_assert_int_eq(unlink(script), 0);
}
END_TEST

START_TEST(test_rank_of_another_build)
{
    expect_down(5, "of another build");
}
END_TEST

// A pool that cannot start does not delay the end of the daemon (in the teardown).
START_TEST(test_rank_never_ready)
{
    struct wire_reply reply = run("", 7, 300 * UINT64_C(1000000));
    ck_assert_int_eq(reply.status, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply.message, "while the pool of 7 ranks was being started");
    wire_reply_fini(&reply);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_ranks");
    TCase *tcase = tcase_create("ranks");
    tcase_add_checked_fixture(tcase, setup, daemon_teardown_stopped);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_rank_starts_clean);
    tcase_add_loop_test(tcase, test_invalid_report, 0, sizeof(lies) / sizeof(lies[0]));
    tcase_add_test(tcase, test_report_twice);
    tcase_add_test(tcase, test_stale_generation_is_dropped);
    tcase_add_test(tcase, test_mismatch_keeps_the_pool);
    tcase_add_test(tcase, test_exit);
    tcase_add_test(tcase, test_exit_with_child);
    tcase_add_test(tcase, test_own_failure);
    tcase_add_test(tcase, test_own_failure_while_others_wait);
    tcase_add_test(tcase, test_peer_lost_without_cause);
    tcase_add_test(tcase, test_last_words);
    tcase_add_test(tcase, test_silence_until_deadline);
    tcase_add_test(tcase, test_stopped_while_waiting);
    tcase_add_test(tcase, test_flood);
    tcase_add_test(tcase, test_idle_ranks_may_end_by_themselves);
    tcase_add_test(tcase, test_idle_rank_that_is_stopped);
    tcase_add_test(tcase, test_lost_ranks_are_killed);
    tcase_add_test(tcase, test_kills_from_outside_are_no_poison);
    tcase_add_test(tcase, test_poison);
    tcase_add_test(tcase, test_rank_cannot_start);
    tcase_add_test(tcase, test_rank_says_too_much);
    tcase_add_test(tcase, test_status_tells_how_ranks_exchange);
    tcase_add_test(tcase, test_temporary_failure_of_starts);
    tcase_add_test(tcase, test_rank_of_another_build);
    tcase_add_test(tcase, test_rank_never_ready);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
