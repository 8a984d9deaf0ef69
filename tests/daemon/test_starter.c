// SPDX-License-Identifier: Apache-2.0
// The starter of ranks dies while it is idle. tests/daemon/test_daemon_start.c tests pools when the
// starter dies, stops or fails at work.
#include "daemon/pool/starter.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/runner.h"

static char *const environment[] = {NULL};
static const struct confinement anybody = {.uses_gpus = true};
static struct ev_loop *loop;
static struct starter *starter;
static int started, lost;

static void on_started(void *context, const struct starter_order *order, pid_t pid,
                       const struct error *error)
{
    ck_assert_ptr_eq(context, &started);
    ck_assert_int_eq(order->ticket, 7);
    ck_assert_msg(error->status == STATUS_OK, "%s", error->text);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid); // a child of this process
    started++;
}

static void on_lost(void *context, const struct error *error)
{
    ck_assert_ptr_eq(context, &started);
    ck_assert_str_eq(error->text, "the process that starts ranks has ended");
    lost++;
}

static void setup(void)
{
    struct error error;
    const struct starter_config config = {
        .program = "/bin/true",
        .confinement = &anybody,
        .guest_confinement = &anybody,
        .environment = environment,
        .guest_environment = environment,
        .handler = {&started, on_started, on_lost},
    };
    started = lost = 0;
    loop = ev_loop_new(EVFLAG_AUTO);
    ck_assert_msg(starter_create(loop, &config, &starter, &error) == STATUS_OK, "%s", error.text);
}

static void teardown(void)
{
    starter_destroy(starter);
    ev_loop_destroy(loop);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); // no child is left
}

// Kills the starter and waits until its descriptors are closed. The loop has not run yet.
static pid_t starter_kill(void)
{
    pid_t pid = starter_pid(starter);
    siginfo_t info;
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    return pid;
}

static void order(void)
{
    const struct starter_order order = {.ticket = 7, .world_size = 1, .device = -1};
    struct error error;
    int mesh = -1, channel[2], null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(null_fd, 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel), 0);
    const struct starter_fds fds = {null_fd, null_fd, channel[1], null_fd, &mesh};
    enum status status = starter_order(starter, &order, &fds, &error);
    ck_assert_msg(status == STATUS_OK, "%s", error.text);
    ck_assert(starter_is_busy(starter));
    close(null_fd);
    close(channel[0]);
    close(channel[1]);
}

static void await_started(void)
{
    while (started == 0)
        ck_assert(ev_run(loop, EVRUN_ONCE));
    ck_assert_int_eq(started, 1);
    ck_assert(!starter_is_busy(starter));
}

START_TEST(an_order_finds_it_dead)
{
    pid_t first = starter_kill();
    order();
    ck_assert_int_ne(starter_pid(starter), first);
    await_started();
    ck_assert_int_eq(lost, 0); // no order was lost with it
}
END_TEST

START_TEST(the_loop_notices_its_death)
{
    starter_kill();
    ev_run(loop, EVRUN_ONCE);
    ck_assert_int_eq(lost, 1);
    ck_assert_int_eq(starter_pid(starter), 0);
    order();
    await_started();
    ck_assert_int_eq(lost, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("starter");
    TCase *tcase = tcase_create("idle");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, an_order_finds_it_dead);
    tcase_add_test(tcase, the_loop_notices_its_death);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
