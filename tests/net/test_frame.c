// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/frame.h"

#include <string.h>

#include "tests/support/runner.h"

static const char *fault;
static struct frame frame;
static enum framing framing; // of the running test

// Writes the lead of a message with `size` bytes of content.
static size_t lead(uint8_t *data, uint64_t size)
{
    return frame_lead_write(framing, data, size);
}

static enum frame_result read_frame(const uint8_t *data, size_t size)
{
    return frame_read(framing, data, size, &frame, &fault);
}

static void assert_broken(enum frame_result result, const char *part)
{
    ck_assert_int_eq(result, FRAME_BROKEN);
    ck_assert_msg(strstr(fault, part), "\"%s\" lacks \"%s\"", fault, part);
}

START_TEST(greeting_comes_in_pieces)
{
    static const uint8_t right[] = {0, 'S', 'P', 0, 0, 0x30, 0, 0, 1};
    for (size_t size = 0; size < FRAME_GREETING_BYTES; size++)
        ck_assert_int_eq(frame_greeting_read(right, size, &fault), FRAME_PARTIAL);
    ck_assert_int_eq(frame_greeting_read(right, 8, &fault), FRAME_WHOLE);
    ck_assert_int_eq(frame_greeting_read(right, 9, &fault), FRAME_WHOLE);
}
END_TEST

START_TEST(a_wrong_greeting_is_refused_at_its_first_wrong_byte)
{
    for (size_t at = 0; at < FRAME_GREETING_BYTES; at++) {
        uint8_t wrong[] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
        wrong[at] ^= 1;
        ck_assert_int_eq(frame_greeting_read(wrong, at, &fault), FRAME_PARTIAL);
        assert_broken(frame_greeting_read(wrong, at + 1, &fault), "greeting");
    }
}
END_TEST

START_TEST(our_greeting_is_that_of_a_reply_socket)
{
    ck_assert_mem_eq(frame_greeting, "\0SP\0\0\x31\0\0", FRAME_GREETING_BYTES);
}
END_TEST

START_TEST(lead_has_type_and_length)
{
    uint8_t data[FRAME_LEAD_MAX];
    ck_assert_uint_eq(frame_lead_write(FRAMING_IPC, data, UINT64_C(0x0102030405060708)), 9);
    ck_assert_mem_eq(data, "\1\1\2\3\4\5\6\7\x8", 9);
}
END_TEST

START_TEST(lead_over_tcp_has_the_length_alone)
{
    uint8_t data[FRAME_LEAD_MAX];
    ck_assert_uint_eq(frame_lead_write(FRAMING_TCP, data, UINT64_C(0x0102030405060708)), 8);
    ck_assert_mem_eq(data, "\1\2\3\4\5\6\7\x8", 8);
}
END_TEST

START_TEST(frame_is_whole_at_its_last_byte)
{
    uint8_t with_type[] = "\1\0\0\0\0\0\0\0\x7\x80\0\0\x2"
                          "abc"
                          "\1\0";
    framing = (enum framing)_i;
    const uint8_t *data = with_type + (framing == FRAMING_TCP);
    size_t lead_bytes = frame_lead_bytes(framing), bytes = lead_bytes + 7;
    for (size_t size = 0; size < bytes; size++)
        ck_assert_int_eq(read_frame(data, size), FRAME_PARTIAL);
    for (size_t more = 0; more <= 2; more++) {
        ck_assert_int_eq(read_frame(data, bytes + more), FRAME_WHOLE);
        ck_assert_uint_eq(frame.bytes, bytes);
        ck_assert_uint_eq(frame.header_bytes, 4);
        ck_assert_ptr_eq(frame.header, data + lead_bytes);
        ck_assert_uint_eq(frame.body_bytes, 3);
        ck_assert_mem_eq(frame.body, "abc", 3);
    }
}
END_TEST

START_TEST(body_may_be_empty)
{
    uint8_t data[FRAME_LEAD_MAX + 4] = {0};
    framing = (enum framing)_i;
    size_t at = lead(data, 4);
    memcpy(data + at, "\x80\0\0\x2", 4);
    ck_assert_int_eq(read_frame(data, at + 4), FRAME_WHOLE);
    ck_assert_uint_eq(frame.body_bytes, 0);
}
END_TEST

START_TEST(an_unknown_type_is_refused_at_once)
{
    for (int type = 0; type < 256; type++) {
        uint8_t first = (uint8_t)type;
        if (type != 1)
            assert_broken(read_frame(&first, 1), "type");
    }
}
END_TEST

// A type byte makes a length of at least 2^56.
START_TEST(a_frame_of_the_other_framing_is_refused)
{
    static uint8_t data[64];
    framing = FRAMING_IPC;
    size_t size = lead(data, 4) + 4;
    framing = FRAMING_TCP;
    assert_broken(read_frame(data, size), "too long");
    lead(data, 4);
    framing = FRAMING_IPC;
    assert_broken(read_frame(data, 1), "type");
}
END_TEST

START_TEST(the_length_is_checked_before_the_body)
{
    static const uint64_t too_long[] = {FRAME_HEADER_MAX + REQUEST_BYTES_MAX + 1, UINT64_C(1) << 32,
                                        UINT64_C(1) << 63, UINT64_MAX};
    uint8_t data[FRAME_LEAD_MAX];
    framing = (enum framing)_i;
    for (size_t i = 0; i < sizeof(too_long) / sizeof(too_long[0]); i++) {
        size_t lead_bytes = lead(data, too_long[i]);
        ck_assert_int_eq(read_frame(data, lead_bytes - 1), FRAME_PARTIAL);
        assert_broken(read_frame(data, lead_bytes), "too long");
    }
    size_t lead_bytes = lead(data, FRAME_HEADER_MAX + REQUEST_BYTES_MAX);
    ck_assert_int_eq(read_frame(data, lead_bytes), FRAME_PARTIAL);
}
END_TEST

// Hops, then the number of the request.
static enum frame_result hops_read(uint8_t *data, size_t hops, size_t body)
{
    size_t at = lead(data, 4 * (hops + 1) + body);
    memset(data + at, 0x7f, 4 * hops);
    memset(data + at + 4 * hops, 0xff, 4 + body);
    return read_frame(data, at + 4 * (hops + 1) + body);
}

START_TEST(header_holds_hops)
{
    static uint8_t data[FRAME_BYTES_MAX + 64];
    framing = (enum framing)_i;
    for (size_t hops = 0; hops <= FRAME_HOPS_MAX; hops++) {
        ck_assert_int_eq(hops_read(data, hops, 8), FRAME_WHOLE);
        ck_assert_uint_eq(frame.header_bytes, 4 * (hops + 1));
        ck_assert_uint_eq(frame.body_bytes, 8);
    }
    assert_broken(hops_read(data, FRAME_HOPS_MAX + 1, 8), "does not end");
    assert_broken(hops_read(data, 1000, 8), "does not end");
}
END_TEST

START_TEST(header_must_end)
{
    static uint8_t data[128];
    framing = (enum framing)_i;
    for (size_t size = 0; size < 64; size++)
        assert_broken(read_frame(data, lead(data, size) + size), "does not end");
    size_t at = lead(data, 3);
    data[at] = 0x80; // three bytes are not a word
    assert_broken(read_frame(data, at + 3), "does not end");
}
END_TEST

START_TEST(body_has_its_bound_with_any_header)
{
    static uint8_t data[FRAME_BYTES_MAX + 64];
    framing = (enum framing)_i;
    ck_assert_int_eq(hops_read(data, 0, REQUEST_BYTES_MAX), FRAME_WHOLE);
    ck_assert_int_eq(hops_read(data, FRAME_HOPS_MAX, REQUEST_BYTES_MAX), FRAME_WHOLE);
    ck_assert_uint_eq(frame.bytes, FRAME_BYTES_MAX - (framing == FRAMING_TCP));
    assert_broken(hops_read(data, 0, REQUEST_BYTES_MAX + 1), "too long");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("frame");
    TCase *tcase = tcase_create("frame");
    tcase_add_test(tcase, greeting_comes_in_pieces);
    tcase_add_test(tcase, a_wrong_greeting_is_refused_at_its_first_wrong_byte);
    tcase_add_test(tcase, our_greeting_is_that_of_a_reply_socket);
    tcase_add_test(tcase, lead_has_type_and_length);
    tcase_add_test(tcase, lead_over_tcp_has_the_length_alone);
    tcase_add_loop_test(tcase, frame_is_whole_at_its_last_byte, FRAMING_IPC, FRAMING_TCP + 1);
    tcase_add_loop_test(tcase, body_may_be_empty, FRAMING_IPC, FRAMING_TCP + 1);
    tcase_add_test(tcase, an_unknown_type_is_refused_at_once);
    tcase_add_test(tcase, a_frame_of_the_other_framing_is_refused);
    tcase_add_loop_test(tcase, the_length_is_checked_before_the_body, FRAMING_IPC, FRAMING_TCP + 1);
    tcase_add_loop_test(tcase, header_holds_hops, FRAMING_IPC, FRAMING_TCP + 1);
    tcase_add_loop_test(tcase, header_must_end, FRAMING_IPC, FRAMING_TCP + 1);
    tcase_add_loop_test(tcase, body_has_its_bound_with_any_header, FRAMING_IPC, FRAMING_TCP + 1);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
