// SPDX-License-Identifier: Apache-2.0
// Start and end of the real daemon: drain, stop, restart after a kill, two daemons on one socket,
// messages to the service manager, memory.
#include "tests/support/runner.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"
#include "tests/daemon/net_client.h"
#include "tests/support/port.h"

// ---- the end -----------------------------------------------------------------------------------

START_TEST(test_sigterm_drains)
{
    daemon_start(&d, NULL);
    struct wire_request request = daemon_request(METHOD_RUN);
    pid_t rank = daemon_hold(&d, 2);
    struct call running = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    struct wire_request queued = daemon_request(METHOD_RUN);
    struct call behind = daemon_call_begin(&d, &queued);
    daemon_await_queued(&d, 1);
    kill(d.pid, SIGTERM);
    while (!daemon_status(&d).draining)
        usleep(1000);
    struct wire_request late = daemon_request(METHOD_RUN);
    struct wire_reply reply = daemon_call(&d, &late);
    expect_status(&reply, STATUS_UNAVAILABLE);
    wire_reply_fini(&reply);
    daemon_release(rank);
    reply = daemon_call_end(&running);
    expect_pass(&reply);
    reply = daemon_call_end(&behind);
    expect_pass(&reply);
    ck_assert_int_eq(daemon_wait(&d), 0);
}
END_TEST

START_TEST(test_second_signal_stops)
{
    daemon_start(&d, NULL);
    struct wire_request request = daemon_request_long(2), queued = daemon_request(METHOD_RUN);
    struct call running = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    struct call behind = daemon_call_begin(&d, &queued);
    daemon_await_queued(&d, 1);
    kill(d.pid, SIGINT);
    while (!daemon_status(&d).draining)
        usleep(1000);
    kill(d.pid, SIGTERM);
    struct wire_reply reply = daemon_call_end(&running);
    expect_status(&reply, STATUS_UNAVAILABLE);
    expect_text(reply.message, "stopped");
    wire_reply_fini(&reply);
    reply = daemon_call_end(&behind);
    expect_status(&reply, STATUS_UNAVAILABLE);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_wait(&d), 1);
}
END_TEST

START_TEST(test_restart_after_sigkill)
{
    daemon_start(&d, NULL);
    run_and_pass(&d, 2);
    kill(d.pid, SIGKILL);
    ck_assert_int_eq(daemon_wait(&d), -SIGKILL); // the ranks ended, too
    ck_assert_int_eq(access(d.socket, F_OK), 0);
    daemon_start(&d, NULL); // on the socket file that was left
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_second_daemon_refused)
{
    char text[1024], pid[16];
    daemon_start(&d, NULL);
    const char *const arguments[] = {"--socket", d.socket, NULL};
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 1);
    snprintf(pid, sizeof(pid), "%d", (int)d.pid);
    expect_text(text, "another cpattnd");
    expect_text(text, pid);
    expect_text(text, d.socket);
    daemon_ping_fresh(&d);
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_socket_mode)
{
    struct stat stat_of;
    daemon_start(&d, NULL);
    ck_assert_int_eq(stat(d.socket, &stat_of), 0);
    ck_assert_int_eq(stat_of.st_mode & 07777, 0660);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// ---- settings ----------------------------------------------------------------------------------

static void settings_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void reload_until(const char *path, const char *settings, const char *logged)
{
    settings_write(path, settings);
    kill(d.pid, SIGHUP);
    while (!daemon_logged(&d, logged))
        usleep(1000);
}

static int64_t memory_granted(void)
{
    struct wire_request request = daemon_request(METHOD_DESCRIBE);
    struct wire_reply reply = daemon_call(&d, &request);
    int64_t bytes = reply.description.memory_bytes_max;
    wire_reply_fini(&reply);
    return bytes;
}

// Writes the settings to a file and starts a daemon with it. Stores the path in `path`.
static void start_with_settings(char *path, size_t size, const char *settings)
{
    snprintf(path, size, "%s/settings.yaml", d.folder);
    settings_write(path, settings);
    const char *const arguments[] = {"--config", path, NULL};
    daemon_start(&d, arguments);
}

START_TEST(test_sighup_reloads)
{
    char path[128];
    start_with_settings(path, sizeof(path), "memory: 21G\n");
    ck_assert_int_eq(memory_granted(), INT64_C(21) << 30);
    struct wire_request request = daemon_request_long(2);
    struct call running = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);

    reload_until(path, "memory: 22G\nuser-queue-max: 1\nidle-timeout: 10ms\n", "reloaded ");
    ck_assert_int_eq(memory_granted(), INT64_C(22) << 30);
    struct wire_request more = daemon_request(METHOD_RUN);
    struct wire_reply reply = daemon_call(&d, &more);
    expect_status(&reply, STATUS_RESOURCE_EXHAUSTED);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_status(&d).running, 1);
    daemon_signal_rank(&d, 2, 0, SIGKILL);
    reply = daemon_call_end(&running);
    expect_status(&reply, STATUS_ABORTED);
    wire_reply_fini(&reply);
    run_and_pass(&d, 2);
    while (daemon_rank_count(&d) > 0) // by the new idle timeout
        usleep(1000);

    // A wrong file changes nothing; the log names settings that cannot change.
    reload_until(path, "memory: 23G\nqueue-max: lots\n", "kept_as_it_was");
    ck_assert_int_eq(memory_granted(), INT64_C(22) << 30);
    reload_until(path, "memory: 24G\nqueue-max: 3\n", "setting=queue-max action=left_until");
    reload_until(path, "memory: 24G\nspares: on\nkill-timeout: 3s\n",
                 "setting=kill-timeout action=left_until");
    ck_assert(daemon_logged(&d, "setting=spares action=left_until"));
    while (memory_granted() != INT64_C(24) << 30)
        usleep(1000);
    run_and_pass(&d, 2);
    unlink(path);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static struct wire_reply reload_order(void)
{
    struct wire_request request = daemon_request(METHOD_ORDER);
    request.order.kind = ORDER_RELOAD;
    return daemon_call(&d, &request);
}

static void expect_reload(const char *path, const char *settings, enum wire_reload outcome)
{
    settings_write(path, settings);
    struct wire_reply reply = reload_order();
    expect_status(&reply, STATUS_OK);
    ck_assert_uint_eq(reply.done, outcome);
    wire_reply_fini(&reply);
}

// The answer to an order tells the outcome.
START_TEST(test_order_to_reload)
{
    char path[128];
    start_with_settings(path, sizeof(path), "memory: 21G\n");
    expect_reload(path, "memory: 22G\n", RELOAD_APPLIED);
    ck_assert_int_eq(memory_granted(), INT64_C(22) << 30);
    expect_reload(path, "memory: 23G\nqueue-max: 3\n", RELOAD_NEEDS_RESTART);
    ck_assert_int_eq(memory_granted(), INT64_C(23) << 30);
    settings_write(path, "memory: 24G\nqueue-max: lots\n");
    struct wire_reply reply = reload_order();
    expect_status(&reply, STATUS_INVALID_ARGUMENT);
    expect_text(reply.message, "settings.yaml:2:12: key 'queue-max': value 'lots'");
    expect_text(reply.message, "; the daemon keeps its settings");
    wire_reply_fini(&reply);
    ck_assert_int_eq(memory_granted(), INT64_C(23) << 30);
    unlink(path);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

#define OTHER_TOKEN "another one, just as good"

// Settings with a port for clients and one for agents, whose token is in the file `agents`.
static const char *ports_text(int port, int agents_port, const char *agents)
{
    static char text[512];
    snprintf(text, sizeof(text),
             "listen: tcp://127.0.0.1:%d\ntoken-file: %s/token\nhosts: b=2\n"
             "agents-listen: tcp://127.0.0.1:%d\nagents-token-file: %s/%s\n",
             port, d.folder, agents_port, d.folder, agents);
    return text;
}

// The token of clients can be used, that of agents cannot. A later reload that leaves the address
// of clients until a restart leaves their token, too.
START_TEST(test_reload_applies_all_files_or_none)
{
    char path[128];
    int port = port_free(), agents_port = port_free();
    net_file(&d, "token", NET_TOKEN);
    net_file(&d, "agents", "a secret of agents");
    start_with_settings(path, sizeof(path), ports_text(port, agents_port, "agents"));
    int fd = net_connect(port);
    net_greet(fd);
    net_expect(fd, NET_TOKEN, STATUS_OK);
    net_file(&d, "token", OTHER_TOKEN);
    net_file(&d, "agents", "short");
    reload_until(path, ports_text(port, agents_port, "agents"), "kept_as_it_was");
    net_expect(fd, NET_TOKEN, STATUS_OK);
    net_file(&d, "agents", "a secret of agents");
    reload_until(path, ports_text(port_free(), agents_port, "agents"), "reloaded ");
    ck_assert(daemon_logged(&d, "setting=listen action=left_until_restart"));
    net_expect(fd, NET_TOKEN, STATUS_OK);
    expect_reload(path, ports_text(port, agents_port, "agents"), RELOAD_APPLIED);
    net_expect(fd, OTHER_TOKEN, STATUS_OK);
    net_file(&d, "others", "a secret of others");
    expect_reload(path, ports_text(port, agents_port, "others"), RELOAD_APPLIED);
    net_file_remove(&d, "others");
    close(fd);
    net_file_remove(&d, "token");
    net_file_remove(&d, "agents");
    unlink(path);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// A settings file may be a pipe of the shell that started the daemon. Without a writer a read would
// block for ever.
START_TEST(test_pipes_are_not_read_again)
{
    char path[128];
    start_with_settings(path, sizeof(path), "memory: 21G\n");
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    kill(d.pid, SIGHUP);
    while (!daemon_logged(&d, "is no regular file, and only those are read again"))
        usleep(1000);
    unlink(path);
    reload_until(path, "memory: 22G\n", "reloaded ");
    ck_assert_int_eq(memory_granted(), INT64_C(22) << 30);
    unlink(path);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void expect_done(struct call *call, enum status status)
{
    struct wire_reply reply = daemon_call_end(call);
    expect_status(&reply, status);
    wire_reply_fini(&reply);
}

// The daemon serves during a slow lookup of a user.
START_TEST(test_slow_lookups_do_not_block)
{
    char path[128], mark[128], library[4096];
    snprintf(path, sizeof(path), "%s/settings.yaml", d.folder);
    snprintf(mark, sizeof(mark), "%s/mark", d.folder);
    ck_assert(runner_build(library, sizeof(library), "tests/daemon/.libs/slow_users.so"));
    settings_write(path, "memory: 21G\n");
    setenv("LD_PRELOAD", library, 1);
    setenv("CPATTN_SLOW_USERS", mark, 1);
    const char *const arguments[] = {"--config", path, NULL};
    daemon_start(&d, arguments);
    unsetenv("LD_PRELOAD");
    settings_write(mark, "");
    settings_write(path, "memory: 22G\nallow-users: nobody\n");
    kill(d.pid, SIGHUP);
    run_and_pass(&d, 2);
    kill(d.pid, SIGHUP); // again, during the first reload
    run_and_pass(&d, 2);
    ck_assert_int_eq(memory_granted(), INT64_C(21) << 30);
    unlink(mark);
    while (memory_granted() != INT64_C(22) << 30)
        usleep(1000);
    // Orders wait. A running lookup does not delay the end of the daemon, which answers them.
    settings_write(mark, "");
    struct wire_request order = daemon_request(METHOD_ORDER);
    order.order.kind = ORDER_RELOAD;
    struct call first = daemon_call_begin(&d, &order);
    order.id.bytes[0] ^= 1;
    struct call second = daemon_call_begin(&d, &order);
    while (!daemon_logged(&d, "reload action=waits"))
        usleep(1000);
    run_and_pass(&d, 2);
    unlink(mark);
    expect_done(&first, STATUS_OK);
    expect_done(&second, STATUS_OK);
    settings_write(mark, "");
    first = daemon_call_begin(&d, &order);
    run_and_pass(&d, 2);
    kill(d.pid, SIGTERM);
    expect_done(&first, STATUS_UNAVAILABLE);
    ck_assert_int_eq(daemon_wait(&d), 0);
    unlink(mark);
    unlink(path);
}
END_TEST
#endif

START_TEST(test_sighup_ignored_at_the_start_stays_so)
{
    signal(SIGHUP, SIG_IGN);
    daemon_start(&d, NULL);
    kill(d.pid, SIGHUP);
    run_and_pass(&d, 2);
    ck_assert(!daemon_logged(&d, "reloaded"));
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// ---- under a service manager -------------------------------------------------------------------

static void expect_notice(int fd, const char *text)
{
    char message[512];
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ck_assert_msg(poll(&ready, 1, 20000) == 1, "no %s", text);
        ssize_t length = recv(fd, message, sizeof(message) - 1, 0);
        ck_assert_int_gt(length, 0);
        message[length] = '\0';
        if (strstr(message, text))
            return;
    }
}

START_TEST(test_notifies_service_manager)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%.80s/notify", d.folder);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    setenv("NOTIFY_SOCKET", name.sun_path, 1);
    setenv("WATCHDOG_USEC", "2000000", 1);
    daemon_start(&d, NULL);
    expect_notice(fd, "READY=1");
    expect_notice(fd, "WATCHDOG=1");
    // A stalled loop does not notify the watchdog.
    kill(d.pid, SIGSTOP);
    ck_assert_int_eq(waitpid(d.pid, NULL, WUNTRACED), d.pid); // it has stopped
    char message[512];
    while (recv(fd, message, sizeof(message), MSG_DONTWAIT) > 0)
        ;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&ready, 1, 700), 0);
    kill(d.pid, SIGCONT);
    expect_notice(fd, "WATCHDOG=1");
    kill(d.pid, SIGHUP);
    expect_notice(fd, "RELOADING=1\nMONOTONIC_USEC=");
    expect_notice(fd, "READY=1");
    kill(d.pid, SIGTERM);
    expect_notice(fd, "STOPPING=1");
    ck_assert_int_eq(daemon_wait(&d), 0);
    close(fd);
    unlink(name.sun_path);
}
END_TEST

// The log reports a late loop. The processor time in it tells whether the daemon was busy.
START_TEST(test_lag_is_logged)
{
    daemon_start(&d, NULL);
    run_and_pass(&d, 2);
    kill(d.pid, SIGSTOP);
    usleep(600 * 1000);
    kill(d.pid, SIGCONT);
    while (!daemon_logged(&d, "loop_lag ms="))
        usleep(1000);
    ck_assert(daemon_logged(&d, " cpu_ms="));
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
START_TEST(test_idle_daemon_is_small)
{
    daemon_start(&d, NULL);
    daemon_ping_fresh(&d);
    ck_assert_int_le(daemon_resident_kib(&d), 8 * 1024);
    ck_assert_int_eq(daemon_threads(&d), 1);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("daemon_life");
    TCase *tcase = tcase_create("life");
    tcase_add_checked_fixture(tcase, daemon_setup, daemon_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_sigterm_drains);
    tcase_add_test(tcase, test_second_signal_stops);
    tcase_add_test(tcase, test_restart_after_sigkill);
    tcase_add_test(tcase, test_second_daemon_refused);
    tcase_add_test(tcase, test_socket_mode);
    tcase_add_test(tcase, test_lag_is_logged);
    tcase_add_test(tcase, test_sighup_reloads);
    tcase_add_test(tcase, test_order_to_reload);
    tcase_add_test(tcase, test_reload_applies_all_files_or_none);
    tcase_add_test(tcase, test_pipes_are_not_read_again);
    tcase_add_test(tcase, test_sighup_ignored_at_the_start_stays_so);
    tcase_add_test(tcase, test_notifies_service_manager);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(tcase, test_slow_lookups_do_not_block); // preloads before the sanitizer
    tcase_add_test(tcase, test_idle_daemon_is_small);
#else
    runner_skip("test_slow_lookups_do_not_block, test_idle_daemon_is_small",
                "a sanitizer is preloaded itself, and needs memory");
#endif
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
