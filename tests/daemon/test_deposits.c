// SPDX-License-Identifier: Apache-2.0
// Wrong descriptors and tensors that do not fit are refused with a message. Neither these nor dying
// clients affect other clients.
#include "tests/support/runner.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/deposit.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/support/cases.h"

// ---- wrong descriptors --------------------------------------------------------------------------

static int connect_beside(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(name.sun_path, sizeof(name.sun_path), "%s%s", d.socket, DEPOSIT_SUFFIX);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

static void send_fds(int socket, const void *data, size_t size, const int *fds, int count)
{
    union {
        char bytes[CMSG_SPACE(64 * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    size_t bytes = (size_t)count * sizeof(int);
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(bytes)};
        memcpy(CMSG_DATA(header), fds, bytes);
    }
    ck_assert_int_eq(sendmsg(socket, &message, MSG_NOSIGNAL), (ssize_t)size);
}

// Hands in memory of inputs. The daemon may already have closed the connection.
static void hand_in_perhaps(int socket, const struct request_id *id, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {.align = {.cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct deposit_request request = {
        .magic = DEPOSIT_MAGIC, .version = DEPOSIT_VERSION, .kinds = DEPOSIT_GIVEN};
    struct iovec part = {&request, sizeof(request)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    memcpy(request.id, id->bytes, sizeof(request.id));
    memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
    (void)!sendmsg(socket, &message, MSG_NOSIGNAL);
}

// Hands in descriptors for a request and returns the daemon's reply.
static struct deposit_reply hand_in(int socket, const struct request_id *id, uint32_t kinds,
                                    const int *fds, int count)
{
    struct deposit_request request = {
        .magic = DEPOSIT_MAGIC, .version = DEPOSIT_VERSION, .kinds = kinds};
    struct deposit_reply reply = {.status = STATUS_COUNT};
    memcpy(request.id, id->bytes, sizeof(request.id));
    send_fds(socket, &request, sizeof(request), fds, count);
    ck_assert_int_eq(recv(socket, &reply, sizeof(reply), 0), sizeof(reply));
    return reply;
}

enum { INPUT_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };
#define BYTES 8192

static int memfd(int64_t bytes, int seals, bool fill)
{
    static const char zeros[BYTES];
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, bytes), 0);
    for (int64_t at = 0; fill && at < bytes; at += BYTES)
        ck_assert_int_gt(pwrite(fd, zeros, (size_t)(bytes - at < BYTES ? bytes - at : BYTES), at),
                         0);
    if (seals)
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static int reopened(int fd, int flags)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int opened = open(path, flags | O_CLOEXEC);
    close(fd);
    return opened;
}

static int fd_file(void)
{
    return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}
static int fd_path(void)
{
    return open("/", O_PATH | O_CLOEXEC);
}
static int fd_pipe(void)
{
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    close(ends[1]);
    return ends[0];
}
static int fd_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}
static int fd_shared_file(void)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    return fd;
}
static int fd_unsealed(void)
{
    return memfd(BYTES, 0, true);
}
static int fd_shrinking(void)
{
    return memfd(BYTES, F_SEAL_GROW | F_SEAL_WRITE, true);
}
static int fd_growing(void)
{
    return memfd(BYTES, F_SEAL_SHRINK | F_SEAL_WRITE, true);
}
static int fd_writable(void)
{
    return memfd(BYTES, F_SEAL_SHRINK | F_SEAL_GROW, true);
}
static int fd_holes(void)
{
    return memfd(64 * BYTES, INPUT_SEALS, false);
}
static int fd_empty(void)
{
    return memfd(0, INPUT_SEALS, false);
}
static int fd_good(void)
{
    return memfd(BYTES, INPUT_SEALS, true);
}
static int fd_good_wanted(void)
{
    return memfd(BYTES, F_SEAL_SHRINK | F_SEAL_GROW, false);
}
static int fd_read_only(void)
{
    return reopened(fd_good_wanted(), O_RDONLY);
}
static int fd_future(void)
{
    return memfd(BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE, false);
}

static const struct {
    uint32_t kinds;
    int (*make[3])(void); // ended by NULL
    const char *text;     // of the refusal; NULL: accepted
} hand_ins[] = {
    {DEPOSIT_GIVEN, {fd_good}, NULL},
    {DEPOSIT_WANTED, {fd_good_wanted}, NULL},
    {DEPOSIT_GIVEN | DEPOSIT_WANTED, {fd_good, fd_good_wanted}, NULL},
    {DEPOSIT_GIVEN, {fd_file}, "memory of inputs is no memfd"},
    {DEPOSIT_GIVEN, {fd_path}, "memory of inputs is no memfd"},
    {DEPOSIT_GIVEN, {fd_pipe}, "memory of inputs is no memfd"},
    {DEPOSIT_GIVEN, {fd_socket}, "memory of inputs is no memfd"},
    {DEPOSIT_WANTED, {fd_pipe}, "memory for what is wanted is no memfd"},
    {DEPOSIT_GIVEN, {fd_shared_file}, "is not sealed against shrinking"},
    {DEPOSIT_GIVEN, {fd_unsealed}, "is not sealed against shrinking"},
    {DEPOSIT_GIVEN, {fd_shrinking}, "is not sealed against shrinking"},
    {DEPOSIT_GIVEN, {fd_growing}, "is not sealed against growing"},
    {DEPOSIT_GIVEN, {fd_writable}, "is not sealed against writing"},
    {DEPOSIT_WANTED, {fd_unsealed}, "is not sealed against shrinking"},
    {DEPOSIT_GIVEN, {fd_holes}, "has holes"},
    {DEPOSIT_GIVEN, {fd_empty}, "has 0 bytes"},
    {DEPOSIT_WANTED, {fd_good}, "cannot be written"},
    {DEPOSIT_WANTED, {fd_read_only}, "cannot be written"},
    {DEPOSIT_WANTED, {fd_future}, "cannot be written"},
    {DEPOSIT_GIVEN, {NULL}, "0 descriptors came; accepted are 1"},
    {DEPOSIT_GIVEN | DEPOSIT_WANTED, {fd_good}, "1 descriptors came; accepted are 2"},
    {DEPOSIT_GIVEN, {fd_good, fd_good}, "2 descriptors came; accepted are 1"},
    {DEPOSIT_GIVEN | DEPOSIT_WANTED, {fd_good, fd_good_wanted, fd_good}, "3 descriptors came"},
    {0, {fd_good}, "kinds is 0"},
    {4, {fd_good}, "kinds is 4"},
};

START_TEST(descriptors_are_checked)
{
    int before = daemon_descriptors(&d);
    for (size_t i = 0; i < sizeof(hand_ins) / sizeof(*hand_ins); i++) {
        struct wire_request request = daemon_request(METHOD_RUN);
        int fds[3], count = 0, socket = connect_beside();
        while (count < 3 && hand_ins[i].make[count]) {
            fds[count] = hand_ins[i].make[count]();
            ck_assert_int_ge(fds[count++], 0);
        }
        struct deposit_reply reply = hand_in(socket, &request.id, hand_ins[i].kinds, fds, count);
        if (hand_ins[i].text)
            expect_text(reply.text, hand_ins[i].text);
        ck_assert_msg((reply.status == STATUS_OK) == !hand_ins[i].text, "%zu: %s", i, reply.text);
        while (count > 0)
            close(fds[--count]);
        close(socket);
    }
    run_and_pass(&d, 2);
    daemon_await_running(&d, 0);
    ck_assert_int_eq(daemon_rank_count(&d), 2);
    // The daemon has closed all received descriptors. Only the pool and this connection have some.
    struct wire_request request = daemon_request(METHOD_RUN);
    int socket = connect_beside(), fd = fd_good();
    ck_assert_uint_eq(hand_in(socket, &request.id, DEPOSIT_GIVEN, &fd, 1).status, STATUS_OK);
    int with_one = daemon_descriptors(&d);
    close(socket);
    close(fd);
    ck_assert_int_lt(with_one - before, 20);
}
END_TEST

START_TEST(invalid_messages_are_refused)
{
    static const char garbage[300] = "GET / HTTP/1.1";
    static const size_t sizes[] = {1, 14, sizeof(struct deposit_request),
                                   sizeof(struct deposit_request) + 1, sizeof(garbage)};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct deposit_reply reply;
        int socket = connect_beside(), fd = fd_good(), fds[40];
        for (int k = 0; k < 40; k++)
            fds[k] = fd;
        send_fds(socket, garbage, sizes[i], fds, 40);
        ck_assert_int_eq(recv(socket, &reply, sizeof(reply), 0), sizeof(reply));
        expect_text(reply.text, "no message of this socket");
        ck_assert_int_eq(recv(socket, &reply, sizeof(reply), 0), 0); // the connection is closed
        close(socket);
        close(fd);
    }
    run_and_pass(&d, 2);
}
END_TEST

START_TEST(connections_are_bounded)
{
    enum { MANY = 64 };
    int sockets[MANY], taken = 0, refused = 0;
    for (int i = 0; i < MANY; i++) {
        struct wire_request request = daemon_request(METHOD_RUN);
        int fd = fd_good();
        struct deposit_reply reply = {.status = STATUS_COUNT};
        sockets[i] = connect_beside();
        hand_in_perhaps(sockets[i], &request.id, fd);
        ck_assert_int_eq(recv(sockets[i], &reply, sizeof(reply), 0), sizeof(reply));
        if (reply.status != STATUS_OK)
            expect_text(reply.text, "too many clients hand in tensors");
        taken += reply.status == STATUS_OK;
        refused += reply.status == STATUS_RESOURCE_EXHAUSTED;
        close(fd);
    }
    ck_assert_int_ge(taken, 1);
    ck_assert_int_le(taken, 16);
    ck_assert_int_eq(taken + refused, MANY);
    run_and_pass(&d, 2);
    for (int i = 0; i < MANY; i++)
        close(sockets[i]);
}
END_TEST

// ---- requests -----------------------------------------------------------------------------------

#define CALLS_MAX 40

// Hands in memory until it is refused. Submits a case for each deposit if `calls` is not NULL;
// deposits without a case end with their connections. Returns the number of accepted deposits.
static int hand_in_many(struct call *calls)
{
    int sockets[CALLS_MAX], accepted = 0, count = 0;
    while (count < CALLS_MAX && accepted == count) {
        struct wire_request request = daemon_request(METHOD_RUN);
        int64_t given, wanted;
        request.attends = true;
        places_init(&request.places);
        request.places.wanted[WHOLE_OUT] = 0;
        places_lay_out(&request.run, &request.places, &given, &wanted);
        int fd = memfd(wanted, F_SEAL_SHRINK | F_SEAL_GROW, false);
        sockets[count] = connect_beside();
        struct deposit_reply reply = hand_in(sockets[count++], &request.id, DEPOSIT_WANTED, &fd, 1);
        close(fd);
        if (reply.status != STATUS_OK)
            continue;
        if (calls) {
            calls[accepted] = daemon_call_begin(&d, &request);
            daemon_await_running(&d, 1);
            daemon_await_queued(&d, accepted);
        }
        accepted++;
    }
    for (int i = 0; i < count; i++)
        close(sockets[i]);
    return accepted;
}

// Deposits count before and after their requests have arrived.
START_TEST(one_user_may_have_half_of_the_deposits)
{
    struct call calls[CALLS_MAX];
    int before = hand_in_many(NULL);
    ck_assert_int_ge(before, 1);
    pid_t rank = daemon_hold(&d, 2);
    int queued = hand_in_many(calls);
    ck_assert_int_eq(queued, before);
    daemon_release(rank);
    for (int i = 0; i < queued; i++) {
        struct wire_reply reply = daemon_call_end(&calls[i]);
        ck_assert_msg(reply.status == STATUS_OK, "%s", reply.message);
        wire_reply_fini(&reply);
    }
    ck_assert_int_eq(hand_in_many(NULL), before);
}
END_TEST

static struct wire_request request_small(void)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    cases_set(&request.run, "training", "false");
    cases_set(&request.run, "seqlen", "512");
    request.attends = true;
    places_init(&request.places);
    return request;
}

static void expect_refusal(const struct wire_request *request, enum status status, const char *text)
{
    struct wire_reply reply = daemon_call(&d, request);
    ck_assert_msg(reply.status == status, "%s: %s", status_name(reply.status), reply.message);
    expect_text(reply.message, text);
    wire_reply_fini(&reply);
}

START_TEST(requests_without_their_memory_are_refused)
{
    struct wire_request request = request_small();
    request.places.given[WHOLE_Q] = 0;
    expect_refusal(&request, STATUS_NOT_FOUND, "no memory was handed in");
    // Memory for another request does not count.
    struct wire_request other = daemon_request(METHOD_RUN);
    int socket = connect_beside(), fd = fd_good();
    ck_assert_uint_eq(hand_in(socket, &other.id, DEPOSIT_GIVEN, &fd, 1).status, STATUS_OK);
    expect_refusal(&request, STATUS_NOT_FOUND, "no memory was handed in");
    close(socket);
    close(fd);
    run_and_pass(&d, 2);
}
END_TEST

static const struct {
    int64_t given, wanted; // offsets of q and out
    const char *text;
} offsets[] = {
    {0, PLACE_NONE, "bytes from byte 0 on, its memory has 8192"}, // q is larger
    {INT64_MAX - 3, PLACE_NONE, "its memory has 8192"},
    {2, PLACE_NONE, "given q lies at byte 2; accepted are multiples of 4"},
    {PLACE_NONE, 0, "the memory handed in is not that of the tensors"},
};

START_TEST(tensors_outside_of_their_memory_are_refused)
{
    for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
        struct wire_request request = request_small();
        int socket = connect_beside(), fd = fd_good();
        request.places.given[WHOLE_Q] = offsets[i].given;
        request.places.wanted[WHOLE_OUT] = offsets[i].wanted;
        ck_assert_uint_eq(hand_in(socket, &request.id, DEPOSIT_GIVEN, &fd, 1).status, STATUS_OK);
        expect_refusal(&request, STATUS_INVALID_ARGUMENT, offsets[i].text);
        close(socket);
        close(fd);
    }
    run_and_pass(&d, 2);
}
END_TEST

// A child hands in valid memory. It ends at once, or (`runs`) while its case runs.
static void child_dies(bool runs)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct wire_request request = daemon_request(METHOD_RUN);
        int64_t given, wanted;
        request.attends = true;
        places_init(&request.places);
        request.places.given[WHOLE_Q] = request.places.wanted[WHOLE_OUT] = 0;
        places_lay_out(&request.run, &request.places, &given, &wanted);
        int fds[2] = {memfd(given, INPUT_SEALS, true),
                      memfd(wanted, F_SEAL_SHRINK | F_SEAL_GROW, false)};
        struct deposit_reply taken =
            hand_in(connect_beside(), &request.id, DEPOSIT_GIVEN | DEPOSIT_WANTED, fds, 2);
        if (taken.status != STATUS_OK)
            _exit(1);
        if (runs) {
            daemon_send(daemon_connect(&d), 0x80000001, &request);
            sleep(60); // killed by the parent
        }
        _exit(0);
    }
    if (runs) {
        daemon_await_running(&d, 1);
        kill(child, SIGKILL);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, runs ? SIGKILL : 0);
}

START_TEST(dead_clients_leave_no_deposits)
{
    run_and_pass(&d, 2);
    int before = daemon_descriptors(&d);
    for (int i = 0; i < 3; i++)
        child_dies(false);
    // The case continues. The daemon keeps its memory until the end of the case.
    pid_t rank = daemon_hold(&d, 2);
    child_dies(true);
    daemon_release(rank);
    daemon_await_running(&d, 0);
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_descriptors(&d), before);
    ck_assert_int_eq(daemon_rank_count(&d), 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deposits");
    TCase *tcase = tcase_create("daemon");
    tcase_add_checked_fixture(tcase, daemon_setup_started, daemon_teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, descriptors_are_checked);
    tcase_add_test(tcase, invalid_messages_are_refused);
    tcase_add_test(tcase, connections_are_bounded);
    tcase_add_test(tcase, one_user_may_have_half_of_the_deposits);
    tcase_add_test(tcase, requests_without_their_memory_are_refused);
    tcase_add_test(tcase, tensors_outside_of_their_memory_are_refused);
    tcase_add_test(tcase, dead_clients_leave_no_deposits);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
