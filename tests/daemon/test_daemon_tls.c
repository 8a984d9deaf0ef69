// SPDX-License-Identifier: Apache-2.0
// The daemon on a network with TLS: the wire, hostile clients.
#include "tests/support/runner.h"

#include <endian.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/daemon/tls_scene.h"

#include <nng/protocol/reqrep0/req.h>

#define PIPELINED 100

// ---- the wire ----------------------------------------------------------------------------------

// All requests are in one record. After the first read the socket is not readable again.
START_TEST(requests_of_one_record_are_all_answered)
{
    static uint8_t bytes[PIPELINED * 128];
    struct tls_client t;
    struct wire_request request = daemon_request(METHOD_STATUS);
    size_t size = 0;
    start(true, false);
    open_greeted(&t, &proper);
    for (int i = 0; i < PIPELINED; i++) {
        ck_assert_uint_lt(size, sizeof(bytes) - 128);
        size += net_frame(bytes + size, (uint32_t)i, &request, "");
    }
    ck_assert_uint_lt(size, 16384);
    ck_assert(tls_client_send(&t, bytes, size));
    for (int i = 0; i < PIPELINED; i++) {
        struct wire_reply reply = answer(&t);
        expect_status(&reply, STATUS_OK);
        wire_reply_fini(&reply);
    }
    tls_client_close(&t);
}
END_TEST

START_TEST(request_may_come_in_records_of_a_byte)
{
    static uint8_t bytes[1024];
    struct tls_client t;
    struct wire_request request = daemon_request(METHOD_STATUS);
    start(true, false);
    open_greeted(&t, &proper);
    size_t size = net_frame(bytes, 1, &request, "");
    for (size_t i = 0; i < size; i++)
        ck_assert(tls_client_send(&t, bytes + i, 1));
    struct wire_reply reply = answer(&t);
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
    tls_client_close(&t);
}
END_TEST

// Large requests, in one record and in several. The first read takes a part of a record, and the
// socket is then not readable for the rest. The requests are invalid, and each is answered.
START_TEST(large_requests_come_whole)
{
    static const size_t sizes[] = {5000, 16384 - 12, 20000, REQUEST_BYTES_MAX};
    static uint8_t bytes[12 + REQUEST_BYTES_MAX];
    struct tls_client t;
    start(true, false);
    open_greeted(&t, &proper);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t rest = htobe64(sizes[i] + 4);
        memset(bytes, 0xff, sizeof(bytes));
        memcpy(bytes, &rest, 8);
        ck_assert(tls_client_send(&t, bytes, 12 + sizes[i]));
        struct wire_reply reply = answer(&t);
        expect_status(&reply, STATUS_INVALID_ARGUMENT);
    }
    tls_client_close(&t);
}
END_TEST

// ---- hostile clients ---------------------------------------------------------------------------

// The first bytes of a ClientHello.
static const uint8_t hello_begun[] = {0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3};

START_TEST(garbage_instead_of_a_handshake)
{
    uint8_t noise[512];
    start(true, false);
    for (int i = 0; i < 30; i++) {
        int fd = net_connect(port);
        srand((unsigned)i);
        for (size_t at = 0; at < sizeof(noise); at++)
            noise[at] = (uint8_t)rand();
        if (i % 3 == 1) // the header of a valid record
            memcpy(noise, "\x16\x03\x01\x01\xf0\x01\0\x01\xec\x03\x03", 11);
        if (i % 3 == 2) // an alert, or application data
            memcpy(noise, i % 2 ? "\x15\x03\x03\0\x02" : "\x17\x03\x03\0\x40", 5);
        net_send(fd, noise, sizeof(noise));
        net_expect_closed(fd);
    }
    ck_assert(daemon_logged(&d, "it violates the TLS protocol"));
    expect(&proper, "", STATUS_OK);
}
END_TEST

START_TEST(clients_without_tls_get_no_answer)
{
    start(true, false);
    int fd = net_connect(port);
    net_send(fd, NET_GREETING, 8);
    net_expect_closed(fd);
    // The client of nng, without TLS.
    nng_socket plain;
    char plain_url[64];
    snprintf(plain_url, sizeof(plain_url), "tcp://127.0.0.1:%d", port);
    ck_assert_int_eq(nng_req0_open(&plain), 0);
    ck_assert_int_ne(nng_dial(plain, plain_url, NULL, 0), 0);
    nng_close(plain);
    expect(&proper, "", STATUS_OK);
}
END_TEST

START_TEST(old_versions_are_refused)
{
    struct tls_client_options options = proper;
    start(true, false);
    for (options.version_max = TLS1_VERSION; options.version_max <= TLS1_1_VERSION;
         options.version_max++)
        expect_no_handshake(&options, "nothing older than TLS 1.2");
    for (; options.version_max <= TLS1_3_VERSION; options.version_max++)
        expect(&options, "", STATUS_OK);
}
END_TEST

START_TEST(tls_version_min_1_3_refuses_1_2)
{
    struct tls_client_options options = proper;
    net_file(&d, "settings", "tls-version-min: 1.3\n");
    char settings[160];
    snprintf(settings, sizeof(settings), "%s/settings", d.folder);
    daemon_start(&d, (const char *[]){"--config", settings, "--listen", url, "--tls-certificate",
                                      server.file, "--tls-key", server.key_file, "--tls-clients",
                                      ca.file, NULL});
    expect(&proper, "", STATUS_OK);
    options.version_max = TLS1_2_VERSION;
    expect_no_handshake(&options, "it speaks TLS 1.2 or older, and tls-version-min is 1.3");
}
END_TEST

// Clients that send nothing, half a ClientHello, a handshake without a greeting, or half a request.
START_TEST(latecomers_are_closed)
{
    struct tls_client quiet, begun, idle;
    char byte;
    start_with(true, false, DAEMON_CLIENT_TIMEOUT);
    int silent = net_connect(port), half = net_connect(port);
    net_send(half, hello_begun, sizeof(hello_begun));
    ck_assert(tls_client_open(&quiet, net_connect(port), &proper));
    open_greeted(&begun, &proper);
    open_greeted(&idle, &proper);
    ck_assert(tls_client_send(&begun, "\0\0\0\0\0\0\0\x10\x80\0", 10));
    daemon_ping_fresh(&d); // they delay no other client
    net_expect_closed(silent);
    net_expect_closed(half);
    ck_assert(tls_client_read(&quiet, (char[8]){0}, 8));
    ck_assert(!tls_client_read(&quiet, &byte, 1));
    ck_assert(!tls_client_read(&begun, &byte, 1));
    struct wire_request request = daemon_request(METHOD_STATUS);
    struct wire_reply reply = ask(&idle, &request, "");
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
    tls_client_close(&quiet);
    tls_client_close(&begun);
    tls_client_close(&idle);
}
END_TEST

// Renegotiation is refused. Neither renegotiation nor many key updates block other clients.
START_TEST(renegotiation_is_refused)
{
    struct tls_client t;
    struct tls_client_options older = proper;
    older.version_max = TLS1_2_VERSION;
    start(true, false);
    open_greeted(&t, &older);
    ck_assert(!(SSL_renegotiate(t.ssl) == 1 && tls_client_step(&t)));
    tls_client_close(&t);
    open_greeted(&t, &proper);
    for (int i = 0; i < 5000; i++) {
        if (SSL_key_update(t.ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1 || !tls_client_step(&t))
            break;
    }
    daemon_ping_fresh(&d);
    tls_client_close(&t);
    run_and_pass(&d, 1);
}
END_TEST

// Many clients wait for a handshake when others connect.
START_TEST(flood_of_whole_handshakes_leaves_the_unix_socket_its_share)
{
    enum { FLOOD = 300 };
    static struct tls_client clients[FLOOD];
    int served = 0;
    start(true, false);
    for (int i = 0; i < FLOOD; i++) {
        int fd = net_connect(port);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        tls_client_prepare(&clients[i], fd, &proper);
        tls_client_step(&clients[i]);
    }
    daemon_ping_fresh(&d);
    run_and_pass(&d, 2);
    for (int i = 0; i < FLOOD; i++) {
        fcntl(clients[i].fd, F_SETFL, 0);
        served += tls_client_step(&clients[i]);
        daemon_ping_fresh(&d);
        tls_client_close(&clients[i]);
    }
    ck_assert_int_eq(served, FLOOD);
}
END_TEST

// The clients begin a handshake and do not continue it.
START_TEST(flood_of_handshakes_leaves_the_unix_socket_its_share)
{
    enum { FLOOD = 700 };
    static int fds[FLOOD];
    start(true, false);
    for (int i = 0; i < FLOOD; i++) {
        fds[i] = net_connect(port);
        net_send(fds[i], hello_begun, i % 2 ? sizeof(hello_begun) : 1);
    }
    while (!daemon_logged(&d, "client_refused address=127.0.0.1:"))
        usleep(10000);
    daemon_ping_fresh(&d);
    run_and_pass(&d, 2);
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    for (bool served = false; !served;) {
        struct tls_client t;
        served = tls_client_open(&t, net_connect(port), &proper);
        tls_client_close(&t);
    }
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // they add memory

// The memory of a session after its handshake, and of one that announces a very large message.
START_TEST(memory_of_a_session_is_bounded)
{
    enum { SESSIONS = 200, WHOLE_KIB = 64, BEGUN_KIB = 200 };
    static const uint8_t huge[] = {0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3};
    static const uint8_t huger[] = {0x16, 3, 1, 0x40, 0, 1, 1, 0xff, 0xfc, 3, 3};
    static struct tls_client clients[SESSIONS];
    static uint8_t bytes[5 + 16384];
    int fds[SESSIONS];
    start(true, false);
    expect(&proper, "", STATUS_OK);
    long before_kib = daemon_resident_kib(&d);
    for (int i = 0; i < SESSIONS; i++)
        open_greeted(&clients[i], &proper);
    ck_assert_int_le(daemon_resident_kib(&d) - before_kib, SESSIONS * WHOLE_KIB);
    for (int i = 0; i < SESSIONS; i++)
        tls_client_close(&clients[i]);
    for (int i = 0; i < SESSIONS; i++) {
        const uint8_t *hello = i % 2 ? huge : huger;
        fds[i] = net_connect(port);
        memcpy(bytes, hello, sizeof(huge));
        net_send(fds[i], bytes, sizeof(bytes) - 1);
    }
    daemon_ping_fresh(&d);
    ck_assert_int_le(daemon_resident_kib(&d) - before_kib, SESSIONS * BEGUN_KIB);
    for (int i = 0; i < SESSIONS; i++)
        close(fds[i]);
}
END_TEST
#endif

// The memory of sessions is freed.
START_TEST(sessions_leave_no_memory_behind)
{
    start(true, false);
    for (int i = 0; i < 50; i++)
        expect(&proper, "", STATUS_OK);
    long before_kib = daemon_resident_kib(&d);
    int descriptors = daemon_descriptors(&d);
    for (int i = 0; i < 200; i++) {
        if (i % 2)
            expect(&proper, "", STATUS_OK);
        else
            close(net_connect(port));
    }
    daemon_ping_fresh(&d);
    long more_kib = daemon_resident_kib(&d) - before_kib;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ck_assert_int_le(more_kib, 2048);
#else
    (void)more_kib; // sanitizers keep freed memory
#endif
    ck_assert_int_le(daemon_descriptors(&d), descriptors + 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_tls");
    TCase *tcase = tcase_create("tls");
    tcase_add_checked_fixture(tcase, tls_setup, tls_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, requests_of_one_record_are_all_answered);
    tcase_add_test(tcase, request_may_come_in_records_of_a_byte);
    tcase_add_test(tcase, large_requests_come_whole);
    tcase_add_test(tcase, garbage_instead_of_a_handshake);
    tcase_add_test(tcase, clients_without_tls_get_no_answer);
    tcase_add_test(tcase, old_versions_are_refused);
    tcase_add_test(tcase, tls_version_min_1_3_refuses_1_2);
    tcase_add_test(tcase, latecomers_are_closed);
    tcase_add_test(tcase, renegotiation_is_refused);
    tcase_add_test(tcase, flood_of_handshakes_leaves_the_unix_socket_its_share);
    tcase_add_test(tcase, flood_of_whole_handshakes_leaves_the_unix_socket_its_share);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(tcase, memory_of_a_session_is_bounded);
#else
    runner_skip("memory_of_a_session_is_bounded", "sanitizers add memory");
#endif
    tcase_add_test(tcase, sessions_leave_no_memory_behind);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
