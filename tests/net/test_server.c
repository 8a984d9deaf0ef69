// SPDX-License-Identifier: Apache-2.0
// The server's handling of bytes, and its end. tests/daemon/test_daemon_socket.c tests it in the
// daemon.
#include "tests/net/server_scene.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/limits.h"

// ---- valid requests ----------------------------------------------------------------------------

START_TEST(test_echo)
{
    server_begin(8, 8);
    echo = true;
    int fd = client_greet();
    client_ask(fd, 1, "hello");
    client_expect(fd, 1, "hello");
    client_ask(fd, 2, "");
    client_expect(fd, 2, "");
    close(fd);
    await(&gone_count, 1);
    ck_assert_uint_eq(gone[0], told[0].client);
}
END_TEST

START_TEST(test_header_is_returned)
{
    static const uint8_t request[] = "\1\0\0\0\0\0\0\0\x10\0\0\0\7\x12\x34\x56\x78\xfe\xdc\xba\x98"
                                     "text";
    uint8_t reply[25];
    server_begin(8, 8);
    echo = true;
    int fd = client_greet();
    client_send(fd, request, 25);
    ck_assert(client_read(fd, reply, 25));
    ck_assert_mem_eq(reply, request, 25);
    close(fd);
}
END_TEST

START_TEST(test_byte_by_byte)
{
    uint8_t bytes[64] = GREETING;
    char greeting[8];
    server_begin(8, 8);
    echo = true;
    size_t size = 8 + request_write(bytes + 8, 1, "slowly");
    int fd = client_connect();
    for (size_t i = 0; i < size; i++) {
        client_send(fd, bytes + i, 1);
        rounds(3);
    }
    ck_assert(client_read(fd, greeting, 8));
    client_expect(fd, 1, "slowly");
    close(fd);
}
END_TEST

START_TEST(test_pipelined)
{
    static uint8_t bytes[64 * 1000];
    size_t size = 0;
    server_begin(2000, 8);
    echo = true;
    int fd = client_greet();
    for (int i = 0; i < 1000; i++)
        size += request_write(bytes + size, (uint8_t)i, i % 2 ? "odd" : "even");
    client_send(fd, bytes, size);
    for (int i = 0; i < 1000; i++)
        client_expect(fd, (uint8_t)i, i % 2 ? "odd" : "even");
    close(fd);
}
END_TEST

START_TEST(test_largest_request)
{
    static uint8_t bytes[FRAME_BYTES_MAX];
    server_begin(8, 8);
    int fd = client_greet();
    frame_lead_write(FRAMING_IPC, bytes, REQUEST_BYTES_MAX + 4);
    bytes[FRAME_LEAD_MAX] = 0x80;
    client_send(fd, bytes, FRAME_LEAD_MAX + 4 + REQUEST_BYTES_MAX);
    await(&told_count, 1);
    ck_assert_uint_eq(told[0].size, REQUEST_BYTES_MAX);
    close(fd);
}
END_TEST

START_TEST(test_replies_in_any_order)
{
    server_begin(8, 8);
    int fd = client_greet();
    for (uint8_t i = 0; i < 4; i++)
        client_ask(fd, i, "x");
    await(&told_count, 4);
    for (int i = 3; i >= 0; i--)
        told_reply(i, "y", 1);
    for (int i = 3; i >= 0; i--)
        client_expect(fd, (uint8_t)i, "y");
    close(fd);
}
END_TEST

// ---- invalid input -----------------------------------------------------------------------------

static const struct {
    const char *data;
    size_t size;
} hostile[] = {
    {"G", 1},                                            // another protocol
    {"\0SP\0\0\x10\0\0", 8},                             // a pair socket
    {"\0SP\0\0\x31\0\0", 8},                             // a reply socket
    {GREETING "\7", 9},                                  // no such frame
    {GREETING "\1\xff\xff\xff\xff\xff\xff\xff\xff", 17}, // a request of 16 EiB
    {GREETING "\1\0\0\0\0\0\1\0\x41", 17},               // a byte too long
    {GREETING "\1\0\0\0\0\0\0\0\0", 17},                 // no header
    {GREETING "\1\0\0\0\0\0\0\0\4\x7f\xff\xff\xff", 21}, // no end of the header
    {GREETING "\1\0\0\0\0\0\0\0\3\x80\0\0", 20},         // not a word
};

START_TEST(test_hostile_bytes)
{
    char greeting[8];
    server_begin(8, 8);
    int fd = client_connect();
    client_send(fd, hostile[_i].data, hostile[_i].size);
    ck_assert(client_read(fd, greeting, 8));
    ck_assert(client_closed(fd));
    ck_assert_int_eq(gone_count, 1);
    ck_assert_int_eq(told_count, 0);
    close(fd);
    assert_served();
}
END_TEST

START_TEST(test_good_request_before_bad_bytes)
{
    server_begin(8, 8);
    int fd = client_greet();
    client_ask(fd, 1, "good");
    client_send(fd, "bad", 3);
    await(&gone_count, 1);
    ck_assert_int_eq(told_count, 1);
    told_reply(0, "x", 1); // the client is gone
    close(fd);
}
END_TEST

START_TEST(test_dies_in_each_byte)
{
    uint8_t bytes[64] = GREETING;
    server_begin(8, 8);
    size_t size = 8 + request_write(bytes + 8, 1, "short");
    for (size_t part = 0; part <= size; part++) {
        gone_count = 0;
        int fd = client_connect();
        client_send(fd, bytes, part);
        rounds((int)part % 3);
        close(fd);
        await(&gone_count, 1);
    }
    ck_assert_int_eq(told_count, 1);
    told_drop(0);
    assert_served();
}
END_TEST

START_TEST(test_late)
{
    server_begin(8, 8);
    int silent = client_connect(), half = client_greet(), idle = client_greet();
    client_send(half, "\1\0\0", 3);
    rounds(5);
    uint64_t began_ns = clock_now_ns();
    tick_at(began_ns + 9 * NS_PER_S);
    ck_assert_int_eq(gone_count, 0);
    // After a stall of the loop no connection is closed for slowness.
    server_tick(server, began_ns + 11 * NS_PER_S);
    ck_assert_int_eq(gone_count, 0);
    tick_at(began_ns + 11 * NS_PER_S);
    ck_assert_int_eq(gone_count, 2);
    char greeting[8];
    ck_assert(client_read(silent, greeting, 8));
    ck_assert(client_closed(silent) && client_closed(half) && !client_closed(idle));
    close(silent);
    close(half);
    close(idle);
}
END_TEST

// The time limit of a frame begins with its first byte. Later bytes do not extend it.
START_TEST(test_dripping)
{
    static const uint8_t frame[] = "\1\0\0\0\0\0\0\0\x10\x80\0\0\1 and so on";
    server_begin(8, 8);
    int fd = client_greet();
    client_send(fd, frame, 1);
    rounds(3);
    uint64_t begun_ns = clock_now_ns(); // the frame began just before
    usleep(10000);
    for (int i = 1; i < 9; i++) {
        client_send(fd, frame + i, 1);
        rounds(3);
    }
    tick_at(begun_ns + 9 * NS_PER_S);
    ck_assert_int_eq(gone_count, 0);
    tick_at(begun_ns + 10 * NS_PER_S + 1);
    ck_assert_int_eq(gone_count, 1);
    ck_assert(client_closed(fd));
    close(fd);
}
END_TEST

// A client that shuts down its sending side counts as gone.
START_TEST(test_half_closed)
{
    server_begin(8, 8);
    int fd = client_greet();
    client_ask(fd, 1, "x");
    await(&told_count, 1);
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    await(&gone_count, 1);
    told_reply(0, "x", 1);
    ck_assert(client_closed(fd));
    close(fd);
    assert_served();
}
END_TEST

static int descriptors_count(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

// Sends bytes with as many descriptors as a message may carry.
static void descriptors_send(int fd, const void *data, size_t size)
{
    enum { COUNT = 253 };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(COUNT * sizeof(int))];
    } control;
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(COUNT * sizeof(int));
    for (int i = 0; i < COUNT; i++)
        memcpy(CMSG_DATA(header) + (size_t)i * sizeof(int), &(int){STDERR_FILENO}, sizeof(int));
    ck_assert_int_eq(sendmsg(fd, &message, MSG_NOSIGNAL), (ssize_t)size);
}

// Descriptors in a message are ignored, and the request is served.
START_TEST(test_descriptors_sent_along)
{
    uint8_t bytes[64];
    server_begin(8, 8);
    echo = true;
    int fd = client_greet(), before = descriptors_count();
    for (uint8_t i = 1; i < 20; i++) {
        descriptors_send(fd, bytes, request_write(bytes, i, "taken"));
        client_expect(fd, i, "taken");
    }
    ck_assert_int_eq(descriptors_count(), before);
    close(fd);
}
END_TEST

// Out-of-band data is not part of the stream.
START_TEST(test_out_of_band)
{
    uint8_t bytes[64];
    server_begin(8, 8);
    echo = true;
    int fd = client_greet();
    size_t size = request_write(bytes, 1, "whole");
    client_send(fd, bytes, size / 2);
    ssize_t sent = send(fd, "!", 1, MSG_OOB | MSG_NOSIGNAL);
    ck_assert_msg(sent == 1 || errno == EOPNOTSUPP, "%s", strerror(errno));
    client_send(fd, bytes + size / 2, size - size / 2);
    client_expect(fd, 1, "whole");
    close(fd);
    assert_served();
}
END_TEST

START_TEST(test_gone_after_its_requests)
{
    server_begin(8, 8);
    int fd = client_greet();
    for (uint8_t i = 0; i < 3; i++)
        client_ask(fd, i, "last");
    close(fd);
    await(&gone_count, 1);
    ck_assert_int_eq(told_count, 3);
    told_reply(0, "x", 1);
    told_drop(1); // the third request stays open until the end of the server
}
END_TEST

// ---- memory ------------------------------------------------------------------------------------

// A failed allocation ends at most its own connection.
START_TEST(test_memory_is_short)
{
    static uint8_t reply[REPLY_BYTES_MAX];
    server_begin(REQUESTS_MAX, 8);
    for (int failing = 0; failing < 12; failing++) {
        int fd = client_connect(), before = told_count;
        gone_count = 0;
        uint8_t bytes[128] = GREETING;
        size_t size = 8 + request_write(bytes + 8, 1, "a");
        size += request_write(bytes + size, 2, "b");
        ck_assert_int_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
        allocations_left = failing;
        rounds(10);
        for (int i = before; i < told_count; i++)
            told_reply(i, reply, sizeof(reply));
        rounds(10);
        bool failed = allocations_left < 0;
        allocations_left = -1;
        ck_assert_msg(failed == (gone_count == 1 || told_count == before),
                      "allocation %d: failed %d gone %d told %d", failing, failed, gone_count,
                      told_count - before);
        close(fd);
        assert_served();
    }
}
END_TEST

// ---- the end -----------------------------------------------------------------------------------

static int finished;

static void on_finished(void *context)
{
    (void)context;
    finished++;
}

START_TEST(test_finish_with_nothing_to_write)
{
    server_begin(8, 8);
    int fd = client_greet();
    server_finish(server, on_finished, NULL);
    ck_assert_int_eq(finished, 1);
    client_ask(fd, 1, "late");
    rounds(10);
    ck_assert_int_eq(told_count, 0);
    close(fd);
    rounds(10);
    ck_assert_int_eq(finished, 1);
}
END_TEST

START_TEST(test_finish_waits_for_the_last_reply)
{
    static uint8_t reply[REPLY_BYTES_MAX];
    server_begin(8, 8);
    int fd = client_greet();
    client_ask(fd, 1, "x");
    await(&told_count, 1);
    told_reply(0, reply, sizeof(reply));
    server_finish(server, on_finished, NULL);
    rounds(20);
    ck_assert_int_eq(finished, 0);
    ck_assert(client_read(fd, reply, FRAME_LEAD_MAX + 4));
    ck_assert(client_read(fd, reply, sizeof(reply)));
    rounds(5);
    ck_assert_int_eq(finished, 1);
    close(fd);
}
END_TEST

START_TEST(test_finish_gives_up)
{
    static uint8_t reply[REPLY_BYTES_MAX];
    server_begin(8, 8);
    int fds[] = {client_greet(), client_greet()};
    for (int i = 0; i < 2; i++) {
        client_ask(fds[i], 1, "x");
        await(&told_count, i + 1);
        told_reply(i, reply, sizeof(reply));
    }
    server_finish(server, on_finished, NULL);
    close(fds[0]); // one is gone, one does not read
    rounds(5);
    ck_assert_int_eq(finished, 0);
    tick_at(clock_now_ns() + 6 * NS_PER_S);
    ck_assert_int_eq(finished, 1);
    close(fds[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server");
    TCase *tcase = tcase_create("server");
    tcase_add_checked_fixture(tcase, scene_setup, scene_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_echo);
    tcase_add_test(tcase, test_header_is_returned);
    tcase_add_test(tcase, test_byte_by_byte);
    tcase_add_test(tcase, test_pipelined);
    tcase_add_test(tcase, test_largest_request);
    tcase_add_test(tcase, test_replies_in_any_order);
    tcase_add_loop_test(tcase, test_hostile_bytes, 0, sizeof(hostile) / sizeof(hostile[0]));
    tcase_add_test(tcase, test_good_request_before_bad_bytes);
    tcase_add_test(tcase, test_dies_in_each_byte);
    tcase_add_test(tcase, test_late);
    tcase_add_test(tcase, test_dripping);
    tcase_add_test(tcase, test_half_closed);
    tcase_add_test(tcase, test_descriptors_sent_along);
    tcase_add_test(tcase, test_out_of_band);
    tcase_add_test(tcase, test_gone_after_its_requests);
    tcase_add_test(tcase, test_memory_is_short);
    tcase_add_test(tcase, test_finish_with_nothing_to_write);
    tcase_add_test(tcase, test_finish_waits_for_the_last_reply);
    tcase_add_test(tcase, test_finish_gives_up);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
