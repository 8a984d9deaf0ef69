// SPDX-License-Identifier: Apache-2.0
// The rules of a pool of workers, for collectives and linear layers. Each rank runs once with its
// own number. The rank that fails first is the root cause; the other ranks are listed. Nothing of a
// failed job is left. The next job of any kind has the same bits as before.
#include "tests/support/runner.h"

#include <signal.h>
#include <string.h>

#include "plan/collective.h"
#include "plan/linear.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/kinds/job_calls.h"

#define WORLD 3

static void setup(void)
{
    // A spare would use more descriptors.
    static const char *const arguments[] = {"--spares", "off", NULL};
    daemon_init(&d);
    daemon_start(&d, arguments);
}

// ---- jobs ---------------------------------------------------------------------------------------

enum kind { ATTENTION, COLLECTIVE, LINEAR, KINDS };

static struct wire_request attention_of(void)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = WORLD;
    request.run.seed = 9;
    return request;
}

// A collective that is run `runs` times.
static struct wire_request collective_of(int64_t count, int runs)
{
    struct collective c;
    memset(&c, 0, sizeof(c));
    job_kind_collective.init(&c);
    c.world_size = WORLD;
    c.count = count;
    c.iterations = runs;
    return job_request(&job_kind_collective, &c);
}

static struct wire_request linear_of(int64_t tokens, int runs)
{
    struct linear l;
    memset(&l, 0, sizeof(l));
    job_kind_linear.init(&l);
    l.world_size = WORLD;
    l.tokens = tokens;
    l.in_features = 33;
    l.hidden = 71;
    l.out_features = 20;
    l.iterations = runs;
    return job_request(&job_kind_linear, &l);
}

static struct wire_request small_of(enum kind kind)
{
    return kind == COLLECTIVE ? collective_of(1000, 1)
           : kind == LINEAR   ? linear_of(50, 1)
                              : attention_of();
}

// A job that runs long enough to be killed.
static struct wire_request long_of(enum kind kind)
{
    return kind == COLLECTIVE ? collective_of(1 << 20, 10000) : linear_of(2000, 10000);
}

static uint64_t digest_of(enum kind kind)
{
    struct wire_request request = small_of(kind);
    return job_digest(&d, &request);
}

// ---- the rules ----------------------------------------------------------------------------------

START_TEST(each_rank_reports_once_by_its_number)
{
    struct wire_request request = small_of((enum kind)_i);
    struct wire_status before = daemon_status(&d);
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.status, STATUS_OK);
    ck_assert_int_eq(reply.result.world_size, WORLD);
    for (int rank = 0; rank < WORLD; rank++) {
        ck_assert_int_eq(reply.result.ranks[rank].rank, rank);
        ck_assert(reply.result.ranks[rank].pass);
    }
    wire_reply_fini(&reply);
    struct wire_status after = daemon_status(&d);
    ck_assert_uint_eq(after.admitted, before.admitted + 1);
    ck_assert_uint_eq(after.passed, before.passed + 1);
}
END_TEST

// Kills a rank of a running job. The answer must name this rank.
static void expect_cause(enum kind kind, int killed)
{
    struct wire_request request = long_of(kind);
    struct call call = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    daemon_signal_rank(&d, WORLD, killed, SIGKILL);
    struct wire_reply reply = daemon_call_end(&call);
    ck_assert_int_eq(reply.status, STATUS_ABORTED);
    ck_assert_int_eq(reply.failure.world_size, WORLD);
    for (int rank = 0; rank < WORLD; rank++) {
        ck_assert_int_eq(reply.failure.ranks[rank].culprit, rank == killed);
        ck_assert_str_eq(reply.failure.ranks[rank].fate,
                         rank == killed ? "killed by signal 9 (SIGKILL)" : "aborted sibling");
    }
    wire_reply_fini(&reply);
}

// Resources of the daemon with an idle pool.
struct seen {
    int ranks, children, descriptors, threads;
    struct wire_status status;
};

static struct seen seen_now(void)
{
    return (struct seen){daemon_rank_count(&d), daemon_child_count(&d), daemon_descriptors(&d),
                         daemon_threads(&d), daemon_status(&d)};
}

START_TEST(a_failed_job_names_its_cause_and_leaves_nothing)
{
    enum kind kind = (enum kind)_i;
    uint64_t digests[KINDS];
    for (int k = 0; k < KINDS; k++)
        digests[k] = digest_of((enum kind)k);
    struct seen before = seen_now();
    for (int next = 0; next < KINDS; next++) {
        expect_cause(kind, next);
        ck_assert_uint_eq(digest_of((enum kind)next), digests[next]);
        struct seen after = seen_now();
        ck_assert_int_eq(after.ranks, before.ranks);
        ck_assert_int_eq(after.children, before.children);
        ck_assert_int_eq(after.descriptors, before.descriptors);
        ck_assert_int_eq(after.threads, before.threads);
        ck_assert_int_eq(after.status.queued, 0);
        ck_assert_int_eq(after.status.running, 0);
        ck_assert_uint_eq(after.status.devices_out, 0);
        ck_assert_uint_eq(after.status.admitted, before.status.admitted + 2 * (uint64_t)(next + 1));
        ck_assert_uint_eq(after.status.passed, before.status.passed + (uint64_t)(next + 1));
        ck_assert_uint_eq(after.status.errors, before.status.errors + (uint64_t)(next + 1));
        ck_assert_uint_eq(after.status.failed, before.status.failed);
    }
}
END_TEST

// Ranks survive a job that they refuse: the same processes run the next job of any kind.
START_TEST(kinds_follow_each_other_on_the_same_ranks)
{
    uint64_t digests[KINDS];
    pid_t pids[WORLD];
    for (int k = 0; k < KINDS; k++)
        digests[k] = digest_of((enum kind)k);
    for (int rank = 0; rank < WORLD; rank++)
        pids[rank] = daemon_rank_pid(&d, WORLD, rank);
    for (int i = 0; i < KINDS * KINDS; i++) {
        ck_assert_uint_eq(digest_of((enum kind)(i / KINDS)), digests[i / KINDS]);
        ck_assert_uint_eq(digest_of((enum kind)(i % KINDS)), digests[i % KINDS]);
        struct collective c;
        memset(&c, 0, sizeof(c));
        job_kind_collective.init(&c);
        c.world_size = WORLD;
        c.algorithm = ALGORITHM_NCCL;
        struct wire_request request = job_request(&job_kind_collective, &c);
        struct wire_reply reply = daemon_call(&d, &request);
        ck_assert_int_eq(reply.status, STATUS_UNIMPLEMENTED);
        wire_reply_fini(&reply);
    }
    for (int rank = 0; rank < WORLD; rank++)
        ck_assert_int_eq(daemon_rank_pid(&d, WORLD, rank), pids[rank]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("workers");
    TCase *tcase = tcase_create("workers");
    tcase_add_checked_fixture(tcase, setup, daemon_teardown_stopped);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, each_rank_reports_once_by_its_number, COLLECTIVE, KINDS);
    tcase_add_loop_test(tcase, a_failed_job_names_its_cause_and_leaves_nothing, COLLECTIVE, KINDS);
    tcase_add_test(tcase, kinds_follow_each_other_on_the_same_ranks);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
