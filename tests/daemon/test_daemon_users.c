// SPDX-License-Identifier: Apache-2.0
// Allowed users, administrators and shares of users. A child process acts as other users. The tests
// need root.
#include "tests/support/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"

// Two user ids. The users need not exist.
#define ALICE 61001
#define BOB   61002

// Opens the socket to all users, so that the daemon decides.
static void start_open(const char *const *arguments)
{
    daemon_start(&d, arguments);
    ck_assert_int_eq(chmod(d.folder, 0755), 0);
    ck_assert_int_eq(chmod(d.socket, 0666), 0);
}

// Makes a connection as this user; the kernel tells the daemon the uid. -1: the daemon closed it.
static int connect_as(uid_t uid)
{
    int pair[2], fd = -1;
    char control[CMSG_SPACE(sizeof(int))], byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        snprintf(name.sun_path, sizeof(name.sun_path), "%s", d.socket);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0 ||
            connect(fd, (struct sockaddr *)&name, sizeof(name)) != 0)
            _exit(1);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
        _exit(sendmsg(pair[1], &message, 0) != 1);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(recvmsg(pair[0], &message, 0), 1);
    const struct cmsghdr *received = CMSG_FIRSTHDR(&message);
    ck_assert_ptr_nonnull(received);
    memcpy(&fd, CMSG_DATA(received), sizeof(fd));
    close(pair[0]);
    close(pair[1]);
    char greeting[8];
    send(fd, "\0SP\0\0\x30\0\0", 8, MSG_NOSIGNAL);
    if (recv(fd, greeting, sizeof(greeting), MSG_WAITALL) == (ssize_t)sizeof(greeting))
        return fd;
    close(fd);
    return -1;
}

static void expect_reply(int fd, const struct wire_request *request, enum status status,
                         const char *part)
{
    daemon_send(fd, 1, request);
    struct wire_reply reply = daemon_receive(fd);
    expect_status(&reply, status);
    expect_text(reply.message, part);
    wire_reply_fini(&reply);
}

START_TEST(test_allow_users)
{
    static const char *const arguments[] = {"--allow-users", "1,61001", NULL};
    start_open(arguments);
    struct wire_request request = daemon_request(METHOD_STATUS);
    int alice = connect_as(ALICE), bob = connect_as(BOB);
    expect_reply(alice, &request, STATUS_OK, "");
    expect_reply(bob, &request, STATUS_PERMISSION_DENIED, "61002");
    request = daemon_request(METHOD_RUN);
    expect_reply(bob, &request, STATUS_PERMISSION_DENIED, "allow-users");
    expect_reply(alice, &request, STATUS_OK, "");
    daemon_ping_fresh(&d); // root
    close(alice);
    close(bob);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Repeated requests of one user leave room for those of others.
START_TEST(test_share_of_repeated_requests)
{
    start_open(NULL);
    struct wire_request hers = daemon_request_long(2), his = daemon_request_long(2);
    struct wire_request cancel = daemon_request(METHOD_CANCEL);
    his.run.seed++;
    int alice = connect_as(ALICE), again = connect_as(ALICE);
    int bob = connect_as(BOB), bob_again = connect_as(BOB);
    daemon_send(alice, 1, &hers);
    daemon_await_running(&d, 1);
    for (uint32_t i = 0; i < ATTACHED_MAX; i++)
        daemon_send(again, i, &hers);
    for (int i = 0; i < ATTACHED_MAX - ATTACHED_MAX / 4; i++) {
        struct wire_reply reply = daemon_receive(again);
        expect_status(&reply, STATUS_RESOURCE_EXHAUSTED);
        expect_text(reply.message, "256 repeated requests of this user");
        wire_reply_fini(&reply);
    }
    daemon_send(bob, 1, &his);
    daemon_ping_fresh(&d);
    daemon_send(bob_again, 1, &his);
    daemon_ping_fresh(&d);
    cancel.cancel = his.id;
    expect_reply(bob, &cancel, STATUS_OK, "");
    struct wire_reply reply = daemon_receive(bob_again);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    cancel.cancel = hers.id; // as root
    reply = daemon_call(&d, &cancel);
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
    close(alice);
    close(again);
    close(bob);
    close(bob_again);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static uint64_t order_as(int fd, enum wire_order_kind kind, int device)
{
    struct wire_request request = daemon_request(METHOD_ORDER);
    request.order = (struct wire_order){.kind = kind, .device = device};
    daemon_send(fd, 5, &request);
    struct wire_reply reply = daemon_receive(fd);
    expect_status(&reply, STATUS_OK);
    uint64_t done = reply.done;
    wire_reply_fini(&reply);
    return done;
}

// Only the administrators of the settings may give orders.
START_TEST(test_administrators)
{
    static const char *const arguments[] = {"--admin-users", "61001", "--devices", "2", NULL};
    start_open(arguments);
    int alice = connect_as(ALICE), bob = connect_as(BOB);
    struct wire_request request = daemon_request(METHOD_ORDER);
    request.order = (struct wire_order){.kind = ORDER_DRAIN_DEVICE, .device = 0};
    expect_reply(bob, &request, STATUS_PERMISSION_DENIED, "uid=61002 is not an administrator");
    request.order.device = 2;
    expect_reply(alice, &request, STATUS_INVALID_ARGUMENT,
                 "device is 2; this daemon has devices 0, 1");

    // The running case continues; the next one is refused.
    struct wire_request his = daemon_request_long(2), next = daemon_request(METHOD_RUN);
    daemon_send(bob, 1, &his);
    daemon_await_running(&d, 1);
    ck_assert_uint_eq(order_as(alice, ORDER_DRAIN_DEVICE, 1), 1);
    ck_assert_uint_eq(daemon_status(&d).devices_out, 2);
    ck_assert_int_eq(daemon_status(&d).running, 1);
    expect_reply(alice, &next, STATUS_UNAVAILABLE, "an administrator has taken devices out of use");

    // An administrator cancels another user's request.
    struct wire_request cancel = daemon_request(METHOD_CANCEL);
    cancel.cancel = his.id;
    expect_reply(alice, &cancel, STATUS_OK, "");
    struct wire_reply reply = daemon_receive(bob);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    ck_assert_uint_eq(order_as(alice, ORDER_ENABLE_DEVICE, 1), 0);
    next = daemon_request(METHOD_RUN);
    expect_reply(alice, &next, STATUS_OK, "");
    ck_assert_uint_eq(order_as(alice, ORDER_UNPOISON, 0), 0);
    ck_assert_uint_eq(order_as(alice, ORDER_RELOAD, 0), RELOAD_APPLIED);
    while (!daemon_logged(&d, " users_allowed=0 subjects_allowed=0 administrators=1 "))
        usleep(1000);
    ck_assert(daemon_logged(&d, "order kind=drain device=1 uid=61001"));
    close(alice);
    close(bob);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static struct wire_open_request first_open(int fd)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    daemon_send(fd, 77, &request);
    struct wire_reply reply = daemon_receive(fd);
    expect_status(&reply, STATUS_OK);
    ck_assert_int_eq(reply.pools.open_count, 1);
    ck_assert_int_eq(reply.pools.open[0].rank_count, 2);
    struct wire_open_request open = reply.pools.open[0];
    wire_reply_fini(&reply);
    return open;
}

START_TEST(test_status_shows_a_user_what_is_theirs)
{
    start_open(NULL);
    struct wire_request request = daemon_request_long(2);
    int alice = connect_as(ALICE), bob = connect_as(BOB), again = connect_as(ALICE);
    daemon_send(alice, 1, &request);
    daemon_await_running(&d, 1);
    struct wire_open_request open = first_open(again);
    ck_assert_uint_eq(strlen(open.id), 32);
    expect_text(open.user, "uid=61001 pid=");
    expect_text(open.case_text, "w2");
    ck_assert(open.running && open.run_ns > 0 && open.age_ns >= open.run_ns);
    open = first_open(bob);
    ck_assert_str_eq(open.id, "");
    ck_assert_str_eq(open.user, "uid=61001");
    ck_assert_str_eq(open.case_text, "");
    ck_assert(open.running);
    int root = connect_as(0);
    open = first_open(root);
    ck_assert_uint_eq(strlen(open.id), 32);
    close(root);
    close(again);
    close(alice);
    close(bob);
    daemon_signal_rank(&d, 2, 0, SIGKILL);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// The event of the end of the last case, as this client sees it.
static struct wire_event told_of_end(int fd)
{
    struct wire_request request = daemon_request(METHOD_WATCH);
    request.watch = (struct wire_watch){.recent = 1, .kinds = 1 << EVENT_FINISHED};
    daemon_send(fd, 78, &request);
    struct wire_reply reply = daemon_receive(fd);
    expect_status(&reply, STATUS_OK);
    ck_assert_int_eq(reply.events.count, 1);
    struct wire_event event = reply.events.list[0];
    wire_reply_fini(&reply);
    return event;
}

START_TEST(test_events_show_a_user_what_is_theirs)
{
    start_open(NULL);
    struct wire_request request = daemon_request_long(2), cancel = daemon_request(METHOD_CANCEL);
    int alice = connect_as(ALICE), bob = connect_as(BOB), root = connect_as(0);
    daemon_send(alice, 1, &request);
    daemon_await_running(&d, 1);
    cancel.cancel = request.id;
    expect_reply(root, &cancel, STATUS_OK, "");
    struct wire_reply reply = daemon_receive(alice);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    for (int i = 0; i < 2; i++) {
        struct wire_event event = told_of_end(i ? root : alice);
        ck_assert_uint_eq(strlen(event.id), 32);
        expect_text(event.user, "uid=61001 pid=");
        expect_text(event.case_text, "w2");
        expect_text(event.text, "cancelled");
    }
    struct wire_event event = told_of_end(bob);
    ck_assert_str_eq(event.id, "");
    ck_assert_str_eq(event.user, "uid=61001");
    ck_assert_str_eq(event.case_text, "");
    ck_assert_str_eq(event.text, "");
    ck_assert_int_eq(event.code, STATUS_CANCELLED);
    close(root);
    close(alice);
    close(bob);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_share_of_the_queue)
{
    static const char *const arguments[] = {"--queue-max", "4", NULL};
    start_open(arguments);
    struct wire_request request = daemon_request_long(2), more = daemon_request(METHOD_RUN);
    int alice = connect_as(ALICE), bob = connect_as(BOB);
    daemon_send(alice, 1, &request);
    daemon_await_running(&d, 1);
    struct wire_request last = daemon_request(METHOD_RUN);
    daemon_send(alice, 2, &last);
    daemon_await_queued(&d, 1);
    expect_reply(alice, &more, STATUS_RESOURCE_EXHAUSTED, "(user-queue-max)");
    daemon_send(bob, 1, &more);
    daemon_await_queued(&d, 2);

    // A user cannot cancel or repeat another user's request. Root can cancel it.
    struct wire_request cancel = daemon_request(METHOD_CANCEL);
    cancel.cancel = request.id;
    int meddler = connect_as(BOB);
    expect_reply(meddler, &cancel, STATUS_PERMISSION_DENIED, "another user");
    expect_reply(meddler, &request, STATUS_ALREADY_EXISTS, "another user");
    struct wire_reply reply = daemon_call(&d, &cancel);
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
    reply = daemon_receive(alice);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    reply = daemon_receive(bob);
    expect_pass(&reply);
    close(alice);
    close(bob);
    close(meddler);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_connections_of_one_user)
{
    enum { LIMIT = CLIENTS_MAX / 2 };
    static int fds[LIMIT];
    start_open(NULL);
    for (int i = 0; i < LIMIT; i++) {
        fds[i] = connect_as(ALICE);
        ck_assert_int_ge(fds[i], 0);
    }
    ck_assert_int_eq(connect_as(ALICE), -1);
    int bob = connect_as(BOB);
    struct wire_request request = daemon_request(METHOD_STATUS);
    expect_reply(bob, &request, STATUS_OK, "");
    expect_reply(fds[LIMIT - 1], &request, STATUS_OK, "");
    for (int i = 0; i < LIMIT; i++)
        close(fds[i]);
    close(bob);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_users");
    TCase *tcase = tcase_create("users");
    tcase_add_checked_fixture(tcase, daemon_setup, daemon_teardown);
    tcase_set_timeout(tcase, 120);
    if (geteuid() == 0) {
        tcase_add_test(tcase, test_allow_users);
        tcase_add_test(tcase, test_share_of_repeated_requests);
        tcase_add_test(tcase, test_administrators);
        tcase_add_test(tcase, test_status_shows_a_user_what_is_theirs);
        tcase_add_test(tcase, test_events_show_a_user_what_is_theirs);
        tcase_add_test(tcase, test_share_of_the_queue);
        tcase_add_test(tcase, test_connections_of_one_user);
    }
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
