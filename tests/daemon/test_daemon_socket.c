// SPDX-License-Identifier: Apache-2.0
// Connections to the real daemon send invalid bytes, hang, flood or die. The daemon drops them and
// serves the others meanwhile.
#include "tests/support/runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/support/part.h"

extern char **environ;

// Allowed growth of the daemon. The sanitizer keeps freed memory for a while.
#ifdef __SANITIZE_ADDRESS__
#define GROWTH_MAX_KIB (256 * 1024)
#else
#define GROWTH_MAX_KIB (32 * 1024)
#endif

// ---- connections -------------------------------------------------------------------------------

// True if the daemon has closed the connection; discards received bytes.
static bool connection_ended(int fd, int patience_ms)
{
    char bytes[256];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (poll(&ready, 1, patience_ms) == 1) {
        if (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
            return true;
    }
    return false;
}

enum outcome { ENDED, ENDED_LATE, KEPT };

static const struct {
    const char *data;
    size_t size;
    enum outcome outcome;
} openings[] = {
    {"", 0, ENDED_LATE},
    {"\0SP", 3, ENDED_LATE},                                           // half a greeting
    {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, ENDED},                  // another protocol
    {"\0SP\0\0\x10\0\0", 8, ENDED},                                    // a pair socket
    {"\0SP\0\0\x30\0\0", 8, KEPT},                                     // valid, then silence
    {"\0SP\0\0\x30\0\0\1\xff\xff\xff\xff\xff\xff\xff\xff", 17, ENDED}, // a message of 16 EiB
    {"\0SP\0\0\x30\0\0\1\0\0\0\0\0\1\0\x00", 17, ENDED_LATE},          // 64 KiB that do not come
    {"\0SP\0\0\x30\0\0\1\0\0\0\0\0\0\0\x40half", 21, ENDED_LATE},      // half a message
    {"\0SP\0\0\x30\0\0\7\0\0\0\0\0\0\0\4abcd", 21, ENDED},             // no such frame type
};

static const char *const impatient[] = {"--client-timeout", DAEMON_CLIENT_TIMEOUT, NULL};

START_TEST(test_strange_connections)
{
    enum { COUNT = sizeof(openings) / sizeof(openings[0]), MANY = COUNT * 50 };
    static int fds[MANY];
    daemon_start(&d, impatient);
    long resident_kib = daemon_resident_kib(&d);
    for (int i = 0; i < MANY; i++) {
        fds[i] = daemon_connect_bare(&d);
        size_t size = openings[i % COUNT].size;
        ck_assert_int_eq(send(fds[i], openings[i % COUNT].data, size, MSG_NOSIGNAL), (ssize_t)size);
    }
    for (int i = 0; i < 20; i++)
        daemon_ping_fresh(&d);
    run_and_pass(&d, 2);
    ck_assert_int_lt(daemon_resident_kib(&d), resident_kib + GROWTH_MAX_KIB);
    for (int pass = ENDED; pass <= KEPT; pass++) {
        for (int i = 0; i < MANY; i++) {
            if ((int)openings[i % COUNT].outcome == pass)
                ck_assert_msg(connection_ended(fds[i], pass == KEPT ? 0 : 30000) == (pass != KEPT),
                              "opening %d", i % COUNT);
        }
    }
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    daemon_ping_fresh(&d);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// More connections than one user may have: the excess is closed, the others are served.
START_TEST(test_too_many_connections)
{
    enum { LIMIT = CLIENTS_MAX / 2, MANY = LIMIT + 50 };
    static int fds[MANY];
    daemon_start(&d, NULL);
    int descriptors = daemon_descriptors(&d), ended = 0;
    for (int i = 0; i < MANY; i++) {
        fds[i] = daemon_connect_bare(&d);
        send(fds[i], "\0SP\0\0\x30\0\0", 8, MSG_NOSIGNAL); // the connection may have ended
    }
    run_and_pass(&d, 2);
    ck_assert_int_le(daemon_descriptors(&d), LIMIT + 64);
    for (int i = 0; i < MANY; i++)
        ended += connection_ended(fds[i], i < LIMIT - 1 ? 0 : 10000);
    ck_assert_int_eq(ended, MANY - (LIMIT - 1)); // one is the client of this test
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    for (int waited = 0; daemon_descriptors(&d) > descriptors + 8; waited++) {
        ck_assert_int_lt(waited, 1000);
        usleep(10000);
    }
    daemon_ping_fresh(&d);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Without free descriptors clients wait in the kernel's queue.
START_TEST(test_no_descriptors)
{
    struct rlimit all, few = {.rlim_cur = 3, .rlim_max = 3};
    daemon_start(&d, NULL);
    ck_assert_int_eq(prlimit(d.pid, RLIMIT_NOFILE, NULL, &all), 0);
    few.rlim_max = all.rlim_max;
    ck_assert_int_eq(prlimit(d.pid, RLIMIT_NOFILE, &few, NULL), 0);
    int fd = daemon_connect(&d);
    for (int waited = 0; !daemon_logged(&d, "accept error"); waited++) {
        ck_assert_int_lt(waited, 1000);
        usleep(10000);
    }
    daemon_status(&d); // connected clients are served
    ck_assert(!connection_ended(fd, 0));
    ck_assert_int_eq(prlimit(d.pid, RLIMIT_NOFILE, &all, NULL), 0);
    char greeting[8];
    ck_assert_int_eq(recv(fd, greeting, 8, MSG_WAITALL), 8);
    close(fd);
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Under the thread sanitizer the start of the library takes almost a second.
#ifdef __SANITIZE_THREAD__
#define EARLY_CLIENTS 100
#else
#define EARLY_CLIENTS 1000
#endif

static pid_t early_clients_start(const char *moment)
{
    char program[4096];
    runner_build(program, sizeof(program), "tests/daemon/early_client");
    char name[] = "early_client", number[16], when[16];
    snprintf(number, sizeof(number), "%d", EARLY_CLIENTS / test_part());
    snprintf(when, sizeof(when), "%s", moment);
    char *const argv[] = {name, d.socket, number, when, NULL};
    pid_t pid;
    ck_assert_int_eq(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
    return pid;
}

START_TEST(test_clients_die_early)
{
    daemon_start(&d, NULL);
    pid_t clients = early_clients_start("dial");
    int pings = 0, status = 0;
    while (waitpid(clients, &status, WNOHANG) == 0) {
        daemon_ping_fresh(&d);
        pings++;
        usleep(10000);
    }
    ck_assert_int_eq(status, 0);
    ck_assert_int_gt(pings, 0);
    daemon_ping_fresh(&d);
    run_and_pass(&d, 2); // over the existing connection
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_clients_die_in_a_request)
{
    daemon_start(&d, NULL);
    struct wire_request request = daemon_request(METHOD_RUN);
    pid_t rank = daemon_hold(&d, 2);
    struct call call = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    int status;
    pid_t clients = early_clients_start("request");
    ck_assert_int_eq(waitpid(clients, &status, 0), clients);
    ck_assert_int_eq(status, 0);
    daemon_release(rank);
    struct wire_reply reply = daemon_call_end(&call);
    ck_assert_msg(reply.status == STATUS_OK, "%s", reply.message);
    wire_reply_fini(&reply);
    daemon_ping_fresh(&d);
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// ---- clients that go away ----------------------------------------------------------------------

START_TEST(test_client_gone_cancels_its_queue)
{
    daemon_start(&d, NULL);
    struct wire_request mine = daemon_request_long(2);
    struct call running = daemon_call_begin(&d, &mine);
    daemon_await_running(&d, 1);
    struct wire_request last = daemon_request(METHOD_RUN);

    int fd = daemon_connect(&d);
    for (uint32_t i = 0; i < 5; i++) {
        struct wire_request request = daemon_request(METHOD_RUN);
        daemon_send(fd, i, &request);
    }
    daemon_await_queued(&d, 5);
    struct call behind = daemon_call_begin(&d, &last);
    daemon_await_queued(&d, 6);
    close(fd);
    daemon_await_queued(&d, 1);

    daemon_signal_rank(&d, 2, 0, SIGKILL);
    struct wire_reply reply = daemon_call_end(&running);
    wire_reply_fini(&reply);
    reply = daemon_call_end(&behind);
    ck_assert_int_eq(reply.status, STATUS_OK);
    wire_reply_fini(&reply);
    ck_assert_uint_eq(daemon_status(&d).passed, 1); // none of the five has run
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_cancel_on_disconnect)
{
    daemon_start(&d, NULL);
    struct wire_request mine = daemon_request_long(2), next = daemon_request(METHOD_RUN);
    mine.cancel_on_disconnect = true;
    int fd = daemon_connect(&d);
    daemon_send(fd, 1, &mine);
    daemon_await_running(&d, 1);
    next.run.world_size = 2;
    struct call behind = daemon_call_begin(&d, &next);
    daemon_await_queued(&d, 1);
    close(fd);
    struct wire_reply reply = daemon_call_end(&behind); // long before the other could have ended
    ck_assert_int_eq(reply.status, STATUS_OK);
    wire_reply_fini(&reply);
    ck_assert_uint_eq(daemon_status(&d).passed, 1);
    // The log has the user, the case, its devices, and why the pool was killed.
    char who[64];
    snprintf(who, sizeof(who), "uid=%d pid=%d case=", (int)getuid(), (int)getpid());
    ck_assert(daemon_logged(&d, "admitted id="));
    ck_assert(daemon_logged(&d, who));
    ck_assert(daemon_logged(&d, "pool_ready world=2 generation=1"));
    ck_assert(daemon_logged(&d, "run id="));
    snprintf(who, sizeof(who), "uid=%d pid=%d world=2", (int)getuid(), (int)getpid());
    ck_assert(daemon_logged(&d, who));
    ck_assert(daemon_logged(&d, "status=CANCELLED"));
    ck_assert(daemon_logged(&d, "message=\"cancelled: its client has gone\""));
    ck_assert(daemon_logged(&d, "rank=-1 reason=\"the client of its job has gone\""));
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static int lines_logged(const char *event)
{
    char line[1024];
    int count = 0;
    FILE *file = fopen(d.log, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file))
        count += strstr(line, event) != NULL;
    fclose(file);
    return count;
}

// A hundred lines a second are logged, and the number of omitted ones.
START_TEST(test_refusals_do_not_fill_the_log)
{
    enum { REQUESTS = 5000, PER_SECOND = 100 };
    daemon_start(&d, NULL);
    struct wire_request request = daemon_request(METHOD_CANCEL);
    memset(&request.cancel, 7, sizeof(request.cancel));
    uint64_t began_ns = clock_now_ns();
    for (int i = 0; i < REQUESTS; i++) {
        struct wire_reply reply = daemon_call(&d, &request);
        expect_status(&reply, STATUS_NOT_FOUND);
        wire_reply_fini(&reply);
    }
    uint64_t seconds = (clock_now_ns() - began_ns) / NS_PER_S + 2;
    ck_assert_uint_le((uint64_t)lines_logged(" cancel id="), seconds * PER_SECOND);
    while (!daemon_logged(&d, "clients_log omitted=")) {
        struct wire_reply reply = daemon_call(&d, &request);
        wire_reply_fini(&reply);
        usleep(50000);
    }
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// A describe request as a frame.
static size_t frame_encode(uint8_t *bytes)
{
    static const uint8_t head[13] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};
    struct wire_request request = daemon_request(METHOD_DESCRIBE);
    size_t size;
    memcpy(bytes, head, sizeof(head));
    daemon_request_encode(&request, bytes + sizeof(head), &size);
    ck_assert_uint_lt(size, 200);
    bytes[8] = (uint8_t)(size + 4);
    return sizeof(head) + size;
}

// A client that sends requests without reading uses little memory and disturbs no other client. It
// loses its connection.
START_TEST(test_client_that_does_not_read)
{
    static const char *const arguments[] = {"--queue-max", "1", "--client-timeout",
                                            DAEMON_CLIENT_TIMEOUT, NULL};
    uint8_t bytes[13 + REQUEST_BYTES_MAX];
    size_t size = frame_encode(bytes);
    daemon_start(&d, arguments);
    long resident_kib = daemon_resident_kib(&d);
    int fd = daemon_connect(&d), sent = 0;
    while (send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) > 0 || errno == EAGAIN) {
        if (sent++ % 1000 == 0)
            daemon_ping_fresh(&d);
        if (sent % 100 == 0)
            ck_assert_int_lt(daemon_resident_kib(&d), resident_kib + GROWTH_MAX_KIB);
        usleep(100);
    }
    ck_assert_int_gt(sent, 100);
    ck_assert_int_eq(errno, EPIPE);
    ck_assert(daemon_logged(&d, "does not read its replies"));
    daemon_ping_fresh(&d);
    run_and_pass(&d, 2);
    close(fd);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// A client that sends and reads as fast as it can does not block others.
START_TEST(test_flood)
{
    daemon_start(&d, NULL);
    pid_t flood = early_clients_start("flood");
    for (int i = 0; i < 50; i++) {
        run_and_pass(&d, 2);
        daemon_ping_fresh(&d);
    }
    ck_assert_int_eq(waitpid(flood, NULL, WNOHANG), 0);
    kill(flood, SIGKILL);
    ck_assert_int_eq(waitpid(flood, NULL, 0), flood);
    daemon_ping_fresh(&d);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Replies that the client has not read at the end of the daemon are complete.
START_TEST(test_replies_outlive_the_daemon)
{
    enum { REQUESTS = 600 };
    uint8_t bytes[256], lead[9];
    char greeting[8];
    int unread = 1;
    daemon_start(&d, NULL);
    int fd = daemon_connect(&d);
    ck_assert_int_eq(recv(fd, greeting, 8, MSG_WAITALL), 8);
    for (int i = 0; i < REQUESTS; i++) {
        size_t size = frame_encode(bytes);
        ck_assert_int_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
    }
    while (unread > 0) {
        usleep(1000);
        ck_assert_int_eq(ioctl(fd, TIOCOUTQ, &unread), 0);
    }
    usleep(10000); // the daemon answers what it has read
    kill(d.pid, SIGTERM);
    for (int i = 0; i < REQUESTS; i++) {
        ck_assert_int_eq(recv(fd, lead, sizeof(lead), MSG_WAITALL), sizeof(lead));
        size_t size = (size_t)lead[7] << 8 | lead[8];
        ck_assert_uint_le(size, sizeof(bytes));
        ck_assert_int_eq(recv(fd, bytes, size, MSG_WAITALL), (ssize_t)size);
    }
    ck_assert(connection_ended(fd, 30000));
    close(fd);
    ck_assert_int_eq(daemon_wait(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_socket");
    TCase *tcase = tcase_create("socket");
    tcase_add_checked_fixture(tcase, daemon_setup, daemon_teardown);
    tcase_set_timeout(tcase,
                      600); // up to a thousand clients on a busy machine
    tcase_add_test(tcase, test_refusals_do_not_fill_the_log);
    tcase_add_test(tcase, test_strange_connections);
    tcase_add_test(tcase, test_too_many_connections);
    tcase_add_test(tcase, test_no_descriptors);
    tcase_add_test(tcase, test_clients_die_early);
    tcase_add_test(tcase, test_clients_die_in_a_request);
    tcase_add_test(tcase, test_client_gone_cancels_its_queue);
    tcase_add_test(tcase, test_cancel_on_disconnect);
    tcase_add_test(tcase, test_client_that_does_not_read);
    tcase_add_test(tcase, test_flood);
    tcase_add_test(tcase, test_replies_outlive_the_daemon);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
