// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/channel.h"
#include "tests/support/runner.h"

static int ends[2];
static struct channel_frame frame;
static struct error error;
static _Alignas(16) uint8_t payload[CHANNEL_PAYLOAD_MAX];

static void channel_open(void)
{
    ck_assert_int_eq(channel_pair(ends, &error), STATUS_OK);
}

static enum status send_empty(enum channel_type type)
{
    return channel_send(ends[1], type, 1, 0, NULL, 0, &error);
}

// Sends any bytes, also those that channel_send() refuses.
static void send_raw(const void *bytes, size_t length)
{
    ck_assert_int_eq(send(ends[1], bytes, length, MSG_NOSIGNAL), (ssize_t)length);
}

static void assert_refused(enum status expected, const char *part)
{
    memset(&frame, 0x5a, sizeof(frame));
    ck_assert_int_eq(channel_recv(ends[0], &frame, payload, &error), expected);
    ck_assert_msg(strstr(error.text, part), "\"%s\" lacks \"%s\"", error.text, part);
    ck_assert_uint_eq(frame.magic, 0x5a5a5a5a); // untouched
}

static struct channel_frame good_header(uint32_t length)
{
    return (struct channel_frame){.magic = CHANNEL_MAGIC,
                                  .type = CHANNEL_REPORT,
                                  .version = CHANNEL_VERSION,
                                  .length = length};
}

START_TEST(frames_arrive_whole_and_in_order)
{
    static uint8_t sent[CHANNEL_PAYLOAD_MAX];
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (uint8_t)(i * 31 >> 3);
    ck_assert_int_eq(
        channel_send(ends[0], CHANNEL_CASE, 7, UINT64_C(1) << 40, sent, sizeof(sent), &error),
        STATUS_OK);
    ck_assert_int_eq(channel_send(ends[0], CHANNEL_PING, 8, 0, NULL, 0, &error), STATUS_OK);
    ck_assert_int_eq(channel_recv(ends[1], &frame, payload, &error), STATUS_OK);
    ck_assert_uint_eq(frame.type, CHANNEL_CASE);
    ck_assert_uint_eq(frame.generation, 7);
    ck_assert_uint_eq(frame.job, UINT64_C(1) << 40);
    ck_assert_uint_eq(frame.length, sizeof(sent));
    ck_assert_mem_eq(payload, sent, sizeof(sent));
    ck_assert_int_eq(channel_recv(ends[1], &frame, payload, &error), STATUS_OK);
    ck_assert_uint_eq(frame.type, CHANNEL_PING);
    ck_assert_uint_eq(frame.generation, 8);
    ck_assert_uint_eq(frame.length, 0);
}
END_TEST

START_TEST(both_ends_have_the_documented_flags)
{
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(fcntl(ends[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ck_assert_int_eq(fcntl(ends[0], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    ck_assert_int_eq(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
    ck_assert_int_eq(channel_recv(ends[0], &frame, payload, &error), STATUS_NOT_FOUND);
}
END_TEST

START_TEST(sending_never_waits)
{
    int sent = 0;
    enum status status;
    while ((status = channel_send(ends[0], CHANNEL_CASE, 1, 1, payload, 4096, &error)) == STATUS_OK)
        ck_assert_int_lt(sent++, 100000);
    ck_assert_int_gt(sent, 0);
    ck_assert_int_eq(status, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(error.text, "CASE"));
    // The queued frames are complete.
    for (int i = 0; i < sent; i++)
        ck_assert_int_eq(channel_recv(ends[1], &frame, payload, &error), STATUS_OK);
}
END_TEST

START_TEST(sender_checks_what_it_sends)
{
    ck_assert_int_eq(
        channel_send(ends[0], CHANNEL_CASE, 1, 1, payload, CHANNEL_PAYLOAD_MAX + 1, &error),
        STATUS_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "65537"));
    ck_assert_int_eq(send_empty((enum channel_type)99), STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(send_empty((enum channel_type)0), STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(channel_recv(ends[0], &frame, payload, &error), STATUS_NOT_FOUND);
}
END_TEST

START_TEST(a_closed_end_is_noticed_after_the_last_frame)
{
    ck_assert_int_eq(send_empty(CHANNEL_READY), STATUS_OK);
    close(ends[1]);
    ck_assert_int_eq(channel_recv(ends[0], &frame, payload, &error), STATUS_OK);
    ck_assert_uint_eq(frame.type, CHANNEL_READY);
    assert_refused(STATUS_UNAVAILABLE, "closed");
    ck_assert_int_eq(channel_send(ends[0], CHANNEL_PING, 1, 0, NULL, 0, &error),
                     STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.text, "gone"));
}
END_TEST

START_TEST(short_datagram_is_refused)
{
    struct channel_frame header = good_header(0);
    send_raw(&header, sizeof(header) - 1);
    assert_refused(STATUS_DATA_LOSS, "23 bytes is shorter");
}
END_TEST

START_TEST(wrong_magic_is_refused)
{
    struct channel_frame header = good_header(0);
    header.magic = 0x12345678;
    send_raw(&header, sizeof(header));
    assert_refused(STATUS_DATA_LOSS, "0x12345678");
}
END_TEST

START_TEST(wrong_version_is_refused)
{
    struct channel_frame header = good_header(0);
    header.version = CHANNEL_VERSION + 1;
    send_raw(&header, sizeof(header));
    assert_refused(STATUS_FAILED_PRECONDITION, "version 2");
}
END_TEST

START_TEST(unknown_type_is_refused)
{
    struct channel_frame header = good_header(0);
    header.type = 0;
    send_raw(&header, sizeof(header));
    assert_refused(STATUS_DATA_LOSS, "type 0 is unknown");
    header.type = 0xffff;
    send_raw(&header, sizeof(header));
    assert_refused(STATUS_DATA_LOSS, "type 65535 is unknown");
}
END_TEST

START_TEST(wrong_length_is_refused)
{
    struct channel_frame header = good_header(5);
    uint8_t datagram[sizeof(header) + 4] = {0};
    memcpy(datagram, &header, sizeof(header));
    send_raw(datagram, sizeof(datagram));
    assert_refused(STATUS_DATA_LOSS, "announces 5 bytes of payload and carries 4");
    header.length = UINT32_MAX;
    memcpy(datagram, &header, sizeof(header));
    send_raw(datagram, sizeof(datagram));
    assert_refused(STATUS_DATA_LOSS, "announces 4294967295");
}
END_TEST

START_TEST(oversized_datagram_is_refused)
{
    static uint8_t datagram[sizeof(struct channel_frame) + CHANNEL_PAYLOAD_MAX + 1];
    struct channel_frame header = good_header(CHANNEL_PAYLOAD_MAX);
    memcpy(datagram, &header, sizeof(header));
    send_raw(datagram, sizeof(datagram));
    assert_refused(STATUS_DATA_LOSS, "longer than a frame");
}
END_TEST

// A hostile rank could send descriptors until the daemon has no more. The receiver closes them.
START_TEST(unexpected_descriptors_are_closed)
{
    struct channel_frame header = good_header(0);
    struct iovec part = {&header, sizeof(header)};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &ends[1], sizeof(int));
    ck_assert_int_gt(sendmsg(ends[1], &message, 0), 0);

    int next = dup(ends[0]);
    close(next);
    ck_assert_int_eq(channel_recv(ends[0], &frame, payload, &error), STATUS_OK);
    int after = dup(ends[0]);
    ck_assert_int_eq(after, next);
}
END_TEST

START_TEST(hello_is_compared_with_rank_and_build)
{
    struct channel_hello hello;
    channel_hello_fill(&hello, 4711, 2);
    frame = good_header(sizeof(hello));
    frame.type = CHANNEL_HELLO;
    ck_assert_int_eq(channel_hello_check(&frame, &hello, 2, &error), STATUS_OK);
    ck_assert_int_eq(channel_hello_check(&frame, &hello, 3, &error), STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "rank 3 introduces itself as rank 2");
    hello.build_id[0] ^= 1;
    ck_assert_int_eq(channel_hello_check(&frame, &hello, 2, &error), STATUS_FAILED_PRECONDITION);
    frame.length--;
    ck_assert_int_eq(channel_hello_check(&frame, &hello, 2, &error), STATUS_DATA_LOSS);
    frame.type = CHANNEL_READY;
    ck_assert_int_eq(channel_hello_check(&frame, &hello, 2, &error), STATUS_DATA_LOSS);
    ck_assert_ptr_nonnull(strstr(error.text, "READY instead of HELLO"));
}
END_TEST

START_TEST(a_wrong_size_is_refused_with_both_sizes)
{
    frame = good_header(10);
    ck_assert_int_eq(channel_expect(&frame, 10, &error), STATUS_OK);
    ck_assert_int_eq(channel_expect(&frame, 12, &error), STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "a REPORT frame carries 10 bytes of payload instead of 12");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("channel");
    TCase *frames = tcase_create("frames");
    tcase_add_checked_fixture(frames, channel_open, NULL);
    tcase_add_test(frames, frames_arrive_whole_and_in_order);
    tcase_add_test(frames, both_ends_have_the_documented_flags);
    tcase_add_test(frames, sending_never_waits);
    tcase_add_test(frames, sender_checks_what_it_sends);
    tcase_add_test(frames, a_closed_end_is_noticed_after_the_last_frame);
    tcase_add_test(frames, hello_is_compared_with_rank_and_build);
    tcase_add_test(frames, a_wrong_size_is_refused_with_both_sizes);
    suite_add_tcase(s, frames);
    TCase *hostile = tcase_create("hostile");
    tcase_add_checked_fixture(hostile, channel_open, NULL);
    tcase_add_test(hostile, short_datagram_is_refused);
    tcase_add_test(hostile, wrong_magic_is_refused);
    tcase_add_test(hostile, wrong_version_is_refused);
    tcase_add_test(hostile, unknown_type_is_refused);
    tcase_add_test(hostile, wrong_length_is_refused);
    tcase_add_test(hostile, oversized_datagram_is_refused);
    tcase_add_test(hostile, unexpected_descriptors_are_closed);
    suite_add_tcase(s, hostile);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
