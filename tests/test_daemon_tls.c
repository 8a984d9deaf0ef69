// SPDX-License-Identifier: Apache-2.0
// The daemon on a network with TLS: certificates on both sides, and clients that mean it no good.
#include "tests/runner.h"

#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/certificates.h"
#include "tests/daemon_fixture.h"
#include "tests/net_client.h"

#include <nng/protocol/reqrep0/req.h>

#define PIPELINED 100

static struct daemon d;
static int port;
static char url[64];
// Who signs; the daemon and a client with theirs; another who signs, whom nobody knows, and one
// with his.
static struct certificate ca, server, client, stranger, imposter;

static void setup(void)
{
    daemon_init(&d);
    port = net_free_port();
    snprintf(url, sizeof(url), "tls+tcp://127.0.0.1:%d", port);
    const struct certificate_kind authority = {.authority = true}, plain = {0};
    certificate_make(&ca, d.folder, "ca", "the one who signs", NULL, authority);
    certificate_make(&server, d.folder, "server", "127.0.0.1", &ca, plain);
    certificate_make(&client, d.folder, "client", "a client", &ca, plain);
    certificate_make(&stranger, d.folder, "stranger", "the one who signs", NULL, authority);
    certificate_make(&imposter, d.folder, "imposter", "127.0.0.1", &stranger, plain);
}

static void teardown(void)
{
    certificate_remove(&ca);
    certificate_remove(&server);
    certificate_remove(&client);
    certificate_remove(&stranger);
    certificate_remove(&imposter);
    net_file_remove(&d, "token");
    net_file_remove(&d, "settings");
    daemon_fini(&d);
}

// Clients have to have certificates; with it a token, or one of the two.
static void start(bool certificates, bool token)
{
    const char *arguments[DAEMON_ARGUMENTS_MAX] = {"--listen",  url,         "--tls-certificate",
                                                   server.file, "--tls-key", server.key_file};
    int count = 6;
    if (certificates) {
        arguments[count++] = "--tls-clients";
        arguments[count++] = ca.file;
    }
    if (token) {
        arguments[count++] = "--token-file";
        arguments[count++] = net_file(&d, "token", NET_TOKEN);
    }
    daemon_start(&d, arguments);
}

static const struct tls_client_options proper = {.trusted = &ca, .own = &client};

static void open_greeted(struct tls_client *t, const struct tls_client_options *options)
{
    char greeting[8];
    ck_assert_int_eq(tls_client_open(t, net_connect(port), options), 0);
    ck_assert(tls_client_send(t, NET_GREETING, 8));
    ck_assert(tls_client_read(t, greeting, 8));
    ck_assert_mem_eq(greeting, "\0SP\0\0\x31\0\0", 8);
}

static struct wire_reply answer(struct tls_client *t)
{
    static uint8_t bytes[REPLY_BYTES_MAX];
    uint64_t size;
    ck_assert(tls_client_read(t, &size, 8));
    size = be64toh(size);
    ck_assert_uint_le(size, sizeof(bytes));
    ck_assert(tls_client_read(t, bytes, size));
    return net_decode(bytes, size);
}

static struct wire_reply ask(struct tls_client *t, const struct wire_request *request,
                             const char *token)
{
    static uint8_t bytes[NET_MESSAGE_MAX];
    ck_assert(tls_client_send(t, bytes, net_frame(bytes, 1, request, token)));
    return answer(t);
}

static void expect(const struct tls_client_options *options, const char *token, enum status status)
{
    struct tls_client t;
    struct wire_request request = daemon_request(METHOD_STATUS);
    open_greeted(&t, options);
    struct wire_reply reply = ask(&t, &request, token);
    expect_status(&reply, status);
    wire_reply_fini(&reply);
    tls_client_close(&t);
}

// The handshake fails, on the client's side or as the daemon wants it, and this is logged.
static void expect_no_handshake(const struct tls_client_options *options, const char *logged)
{
    struct tls_client t;
    int result = tls_client_open(&t, net_connect(port), options);
    ck_assert_int_ne(result, 0);
    tls_client_close(&t);
    while (!daemon_logged(&d, logged))
        usleep(10000);
}

// ---- who comes in ------------------------------------------------------------------------------

START_TEST(certificates_open_the_door)
{
    struct tls_client t;
    start(true, false);
    open_greeted(&t, &proper);
    struct wire_request request = daemon_request(METHOD_RUN);
    struct wire_reply reply = ask(&t, &request, "");
    expect_pass(&reply);
    tls_client_close(&t);
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(other_certificates_do_not)
{
    struct certificate expired, alone;
    certificate_make(&expired, d.folder, "expired", "a client", &ca,
                     (struct certificate_kind){.expired = true});
    certificate_make(&alone, d.folder, "alone", "a client", NULL, (struct certificate_kind){0});
    start(true, false);
    expect_no_handshake(&(struct tls_client_options){.trusted = &ca}, "it has no certificate");
    expect_no_handshake(&(struct tls_client_options){.trusted = &ca, .own = &expired},
                        "its certificate has expired");
    const char *unsigned_text = "its certificate is not signed by one of those in tls-clients";
    expect_no_handshake(&(struct tls_client_options){.trusted = &ca, .own = &alone}, unsigned_text);
    expect_no_handshake(&(struct tls_client_options){.trusted = &ca, .own = &imposter},
                        unsigned_text);
    // A right certificate with the key of another.
    struct certificate mixed = client;
    memcpy(mixed.key_file, imposter.key_file, sizeof(mixed.key_file));
    expect_no_handshake(&(struct tls_client_options){.trusted = &ca, .own = &mixed},
                        "it does not speak TLS 1.2 as it should");
    expect(&proper, "", STATUS_OK);
    certificate_remove(&expired);
    certificate_remove(&alone);
}
END_TEST

// Even those that would lead to one that is trusted: they are to be in tls-clients.
START_TEST(chains_of_certificates_are_refused)
{
    struct certificate between, below;
    certificate_make(&between, d.folder, "between", "one in between", &ca,
                     (struct certificate_kind){.authority = true});
    certificate_make(&below, d.folder, "below", "a client", &between, (struct certificate_kind){0});
    start(true, false);
    expect_no_handshake(
        &(struct tls_client_options){.trusted = &ca, .own = &below, .above = &between},
        "it has sent more certificates than its own");
    expect(&proper, "", STATUS_OK);
    ck_assert_int_eq(daemon_stop(&d), 0);
    // Where tls-clients has it the client needs to send nothing but its own.
    ck_assert_int_eq(rename(between.file, ca.file), 0);
    start(true, false);
    expect(&(struct tls_client_options){.own = &below}, "", STATUS_OK);
    certificate_remove(&between);
    certificate_remove(&below);
}
END_TEST

START_TEST(client_may_refuse_the_daemon)
{
    start(true, false);
    expect_no_handshake(&(struct tls_client_options){.trusted = &stranger, .own = &client},
                        "TLS handshake");
    expect(&proper, "", STATUS_OK);
}
END_TEST

START_TEST(token_alone_opens_the_door)
{
    const struct tls_client_options nameless = {.trusted = &ca};
    start(false, true);
    expect(&nameless, NET_TOKEN, STATUS_OK);
    expect(&nameless, "", STATUS_UNAUTHENTICATED);
    expect(&nameless, "some other token", STATUS_UNAUTHENTICATED);
    // A certificate that nobody has asked for is of no account.
    expect(&(struct tls_client_options){.trusted = &ca, .own = &imposter}, "",
           STATUS_UNAUTHENTICATED);
}
END_TEST

START_TEST(both_are_needed_where_both_are_set)
{
    start(true, true);
    expect(&proper, NET_TOKEN, STATUS_OK);
    expect(&proper, "", STATUS_UNAUTHENTICATED);
    expect_no_handshake(&(struct tls_client_options){.trusted = &ca}, "it has no certificate");
}
END_TEST

START_TEST(third_refusal_costs_the_connection)
{
    struct tls_client t;
    char byte;
    start(false, true);
    open_greeted(&t, &(struct tls_client_options){.trusted = &ca});
    struct wire_request request = daemon_request(METHOD_STATUS);
    for (int i = 0; i < 3; i++) {
        struct wire_reply reply = ask(&t, &request, "not the token of this daemon");
        expect_status(&reply, STATUS_UNAUTHENTICATED);
    }
    ck_assert(!tls_client_read(&t, &byte, 1));
    tls_client_close(&t);
}
END_TEST

START_TEST(certificates_are_read_again_on_sighup)
{
    struct tls_client before;
    struct wire_request request = daemon_request(METHOD_STATUS);
    start(true, false);
    open_greeted(&before, &proper);
    // The daemon's are now another's; whoever is there stays.
    ck_assert_int_eq(rename(imposter.file, server.file), 0);
    ck_assert_int_eq(rename(imposter.key_file, server.key_file), 0);
    kill(d.pid, SIGHUP);
    while (!daemon_logged(&d, "reloaded "))
        usleep(10000);
    expect(&(struct tls_client_options){.trusted = &stranger, .own = &client}, "", STATUS_OK);
    struct wire_reply reply = ask(&before, &request, "");
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
    tls_client_close(&before);
    // Files that cannot be used change nothing.
    unlink(server.key_file);
    kill(d.pid, SIGHUP);
    while (!daemon_logged(&d, "action=kept_as_it_was"))
        usleep(10000);
    expect(&(struct tls_client_options){.trusted = &stranger, .own = &client}, "", STATUS_OK);
}
END_TEST

// ---- the wire ----------------------------------------------------------------------------------

// All of them are in one record: after the first the kernel has nothing more to tell.
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

// Requests that fill one record, of which the first read takes a part and the kernel knows no rest,
// and several; they are nonsense, and are answered so.
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

// Bytes of a ClientHello, as long as they announce to be or not.
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
        if (i % 3 == 1) // a record, at least
            memcpy(noise, "\x16\x03\x01\x01\xf0\x01\0\x01\xec\x03\x03", 11);
        if (i % 3 == 2) // an alert, or what follows a handshake
            memcpy(noise, i % 2 ? "\x15\x03\x03\0\x02" : "\x17\x03\x03\0\x40", 5);
        net_send(fd, noise, sizeof(noise));
        net_expect_closed(fd);
    }
    ck_assert(daemon_logged(&d, "it does not speak TLS 1.2 as it should"));
    expect(&proper, "", STATUS_OK);
}
END_TEST

START_TEST(plain_clients_are_told_nothing)
{
    start(true, false);
    int fd = net_connect(port);
    net_send(fd, NET_GREETING, 8);
    net_expect_closed(fd);
    // The client library of SP sockets, without TLS.
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
    struct tls_client t;
    start(true, false);
    for (int version = 1; version <= 2; version++) {
        int result = tls_client_open(
            &t, net_connect(port),
            &(struct tls_client_options){.trusted = &ca, .own = &client, .version_max = version});
        ck_assert_int_ne(result, 0);
        tls_client_close(&t);
    }
    expect(&proper, "", STATUS_OK);
}
END_TEST

// Nothing at all, half a ClientHello, a handshake without a greeting, half a request in a record of
// its own.
START_TEST(latecomers_are_closed)
{
    struct tls_client quiet, begun, idle;
    char byte;
    start(true, false);
    int silent = net_connect(port), half = net_connect(port);
    net_send(half, hello_begun, sizeof(hello_begun));
    ck_assert_int_eq(tls_client_open(&quiet, net_connect(port), &proper), 0);
    open_greeted(&begun, &proper);
    open_greeted(&idle, &proper);
    ck_assert(tls_client_send(&begun, "\0\0\0\0\0\0\0\x10\x80\0", 10));
    daemon_ping_fresh(&d); // nobody waits for them
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

// A client that asks for one handshake after the other, and another that sends warnings only, get
// what they may have and keep nobody from being served.
START_TEST(handshakes_once_are_enough)
{
    struct tls_client t;
    start(true, false);
    open_greeted(
        &t, &(struct tls_client_options){.trusted = &ca, .own = &client, .renegotiates = true});
    for (int i = 0; i < 20; i++) {
        if (mbedtls_ssl_renegotiate(&t.ssl) != 0)
            break;
        ck_assert_int_lt(i, 19);
    }
    tls_client_close(&t);
    open_greeted(&t, &proper);
    for (int i = 0; i < 20000; i++) {
        if (mbedtls_ssl_send_alert_message(&t.ssl, MBEDTLS_SSL_ALERT_LEVEL_WARNING,
                                           MBEDTLS_SSL_ALERT_MSG_USER_CANCELED) != 0)
            break;
    }
    daemon_ping_fresh(&d);
    tls_client_close(&t);
    run_and_pass(&d, 1);
}
END_TEST

// Everybody goes away in the middle of it.
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
        served = tls_client_open(&t, net_connect(port), &proper) == 0;
        tls_client_close(&t);
    }
}
END_TEST

// What sessions take is given back.
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
    (void)more_kib; // these keep memory that was given back
#endif
    ck_assert_int_le(daemon_descriptors(&d), descriptors + 2);
}
END_TEST

// ---- refused at the start ----------------------------------------------------------------------

static void expect_no_start(const char *part, const char *certificate, const char *key,
                            const char *clients)
{
    char text[2048], path[128];
    snprintf(path, sizeof(path), "%s/socket", d.folder);
    const char *arguments[] = {"--socket",          path,        "--listen",  url,
                               "--tls-certificate", certificate, "--tls-key", key,
                               "--tls-clients",     clients,     NULL};
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 1);
    expect_text(text, part);
}

START_TEST(files_that_cannot_be_used_are_refused)
{
    const char *none = "/nonexistent/file", *text = net_file(&d, "token", NET_TOKEN);
    expect_no_start("tls-certificate: /nonexistent/file", none, server.key_file, ca.file);
    expect_no_start("tls-key: /nonexistent/file", server.file, none, ca.file);
    expect_no_start("tls-clients: /nonexistent/file", server.file, server.key_file, none);
    expect_no_start("tls-certificate: ", text, server.key_file, ca.file);
    expect_no_start("tls-key: ", server.file, text, ca.file);
    expect_no_start("is not the key of the first certificate", server.file, client.key_file,
                    ca.file);
    ck_assert_int_eq(chmod(server.key_file, 0644), 0);
    expect_no_start("chmod 0600", server.file, server.key_file, ca.file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_tls");
    TCase *tcase = tcase_create("tls");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, certificates_open_the_door);
    tcase_add_test(tcase, other_certificates_do_not);
    tcase_add_test(tcase, chains_of_certificates_are_refused);
    tcase_add_test(tcase, client_may_refuse_the_daemon);
    tcase_add_test(tcase, token_alone_opens_the_door);
    tcase_add_test(tcase, both_are_needed_where_both_are_set);
    tcase_add_test(tcase, third_refusal_costs_the_connection);
    tcase_add_test(tcase, certificates_are_read_again_on_sighup);
    tcase_add_test(tcase, requests_of_one_record_are_all_answered);
    tcase_add_test(tcase, request_may_come_in_records_of_a_byte);
    tcase_add_test(tcase, large_requests_come_whole);
    tcase_add_test(tcase, garbage_instead_of_a_handshake);
    tcase_add_test(tcase, plain_clients_are_told_nothing);
    tcase_add_test(tcase, old_versions_are_refused);
    tcase_add_test(tcase, latecomers_are_closed);
    tcase_add_test(tcase, handshakes_once_are_enough);
    tcase_add_test(tcase, flood_of_handshakes_leaves_the_unix_socket_its_share);
    tcase_add_test(tcase, sessions_leave_no_memory_behind);
    tcase_add_test(tcase, files_that_cannot_be_used_are_refused);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
