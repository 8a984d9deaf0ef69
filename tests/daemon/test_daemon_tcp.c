// SPDX-License-Identifier: Apache-2.0
// The daemon on a network without TLS: the token, the wire, hostile clients.
#include "tests/support/runner.h"

#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/daemon/net_client.h"
#include "tests/support/port.h"

#define FLOOD 700

static int port;
static char url[64];

static void setup(void)
{
    daemon_init(&d);
    port = port_free();
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", port);
}

static void teardown(void)
{
    net_file_remove(&d, "token");
    net_file_remove(&d, "settings");
    daemon_fini(&d);
}

static void start(void)
{
    daemon_start(&d, (const char *[]){"--listen", url, "--token-file",
                                      net_file(&d, "token", NET_TOKEN "\n"), NULL});
}

static int greeted(void)
{
    int fd = net_connect(port);
    net_greet(fd);
    return fd;
}

// ---- the token ---------------------------------------------------------------------------------

START_TEST(requests_with_the_token_are_served)
{
    start();
    int fd = greeted();
    struct wire_request request = daemon_request(METHOD_RUN);
    net_ask(fd, 1, &request, NET_TOKEN);
    struct wire_reply reply = net_answer(fd);
    expect_pass(&reply);
    // The repeated request gets the same answer.
    net_ask(fd, 2, &request, NET_TOKEN);
    reply = net_answer(fd);
    expect_pass(&reply);
    close(fd);
    ck_assert_uint_eq(daemon_status(&d).passed, 1);
    ck_assert(daemon_logged(&d, "listening url=tcp://127.0.0.1:"));
}
END_TEST

START_TEST(the_unix_socket_requires_no_token)
{
    start();
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Wrong tokens are refused. The log contains no part of them.
START_TEST(other_tokens_are_refused)
{
    static char longer[TOKEN_BYTES_MAX + 64];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[TOKEN_BYTES_MAX] = '\0';
    static const char *const wrong[] = {"",
                                        "a token that nobody guesses, 43",
                                        "a token that nobody guesses, 4",
                                        NET_TOKEN "2",
                                        "A TOKEN THAT NOBODY GUESSES, 42",
                                        NET_TOKEN "\n",
                                        "short",
                                        longer};
    start();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int fd = greeted();
        net_expect(fd, wrong[i], STATUS_UNAUTHENTICATED);
        net_expect(fd, NET_TOKEN, STATUS_OK);
        close(fd);
    }
    longer[TOKEN_BYTES_MAX] = 'x'; // too long for a token
    int fd = greeted();
    net_expect(fd, longer, STATUS_UNAUTHENTICATED);
    close(fd);
    ck_assert(daemon_logged(&d, "client_unauthenticated client="));
    ck_assert(daemon_logged(&d, "address=127.0.0.1:"));
    ck_assert(!daemon_logged(&d, "nobody guesses"));
    ck_assert(!daemon_logged(&d, "xxxx"));
}
END_TEST

START_TEST(a_refusal_says_only_what_to_do)
{
    start();
    int fd = greeted();
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = 1000; // invalid, too
    net_ask(fd, 1, &request, "");
    struct wire_reply reply = net_answer(fd);
    expect_status(&reply, STATUS_UNAUTHENTICATED);
    expect_text(reply.message, "--token-file");
    net_ask(fd, 1, &request, "a wrong token, all of it");
    reply = net_answer(fd);
    expect_status(&reply, STATUS_UNAUTHENTICATED);
    expect_text(reply.message, "the token is wrong");
    ck_assert_ptr_null(strstr(reply.message, "a wrong token"));
    net_ask(fd, 1, &request, NET_TOKEN);
    reply = net_answer(fd);
    expect_status(&reply, STATUS_INVALID_ARGUMENT);
    expect_text(reply.message, "world_size");
    close(fd);
}
END_TEST

START_TEST(third_refusal_costs_the_connection)
{
    start();
    int fd = greeted(), other = greeted();
    for (int i = 0; i < 3; i++)
        net_expect(fd, i == 1 ? "" : "not the token of this daemon", STATUS_UNAUTHENTICATED);
    net_expect_closed(fd);
    net_expect(other, NET_TOKEN, STATUS_OK);
    close(other);
    ck_assert(daemon_logged(&d, "reason=\"it has not presented the token"));
}
END_TEST

// Requests that arrive with the third are not read.
START_TEST(what_follows_the_third_refusal_is_dropped)
{
    static uint8_t bytes[16][512];
    start();
    struct wire_request request = daemon_request(METHOD_STATUS);
    int fd = greeted();
    for (int i = 0; i < 16; i++)
        net_send(fd, bytes[i], net_frame(bytes[i], 1, &request, i < 3 ? "" : NET_TOKEN));
    for (int i = 0; i < 3; i++) {
        struct wire_reply reply = net_answer(fd);
        expect_status(&reply, STATUS_UNAUTHENTICATED);
    }
    char byte;
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    close(fd);
}
END_TEST

START_TEST(token_is_read_again_on_sighup)
{
    start();
    int fd = greeted();
    net_file(&d, "token", "another one, just as good");
    kill(d.pid, SIGHUP);
    while (!daemon_logged(&d, "reloaded "))
        usleep(10000);
    net_expect(fd, NET_TOKEN, STATUS_UNAUTHENTICATED);
    net_expect(fd, "another one, just as good", STATUS_OK);
    // One that cannot be used changes nothing.
    net_file(&d, "token", "short");
    kill(d.pid, SIGHUP);
    while (!daemon_logged(&d, "action=kept_as_it_was"))
        usleep(10000);
    net_expect(fd, "another one, just as good", STATUS_OK);
    close(fd);
}
END_TEST

// ---- rights of network clients -----------------------------------------------------------------

// The user of the daemon is an administrator on the unix socket, but not over the network.
START_TEST(network_clients_are_no_administrators)
{
    start();
    struct wire_request request = daemon_request_long(2);
    struct call call = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    struct wire_request cancel = daemon_request(METHOD_CANCEL);
    cancel.cancel = request.id;
    int fd = greeted();
    net_ask(fd, 1, &cancel, NET_TOKEN);
    struct wire_reply reply = net_answer(fd);
    expect_status(&reply, STATUS_PERMISSION_DENIED);
    close(fd);
    reply = daemon_call(&d, &cancel);
    expect_status(&reply, STATUS_OK);
    reply = daemon_call_end(&call);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
}
END_TEST

START_TEST(allow_users_applies_to_the_unix_socket)
{
    daemon_start(&d,
                 (const char *[]){"--listen", url, "--token-file", net_file(&d, "token", NET_TOKEN),
                                  "--allow-users", "61001", NULL});
    int fd = greeted();
    net_expect(fd, NET_TOKEN, STATUS_OK);
    close(fd);
}
END_TEST

START_TEST(cases_of_a_client_that_is_gone_are_cancelled)
{
    start();
    struct wire_request running = daemon_request_long(2), queued = daemon_request_long(2);
    struct call call = daemon_call_begin(&d, &running);
    daemon_await_running(&d, 1);
    int fd = greeted();
    net_ask(fd, 1, &queued, NET_TOKEN);
    daemon_await_queued(&d, 1);
    close(fd);
    daemon_await_queued(&d, 0);
    struct wire_request cancel = daemon_request(METHOD_CANCEL);
    cancel.cancel = running.id;
    struct wire_reply reply = daemon_call(&d, &cancel);
    expect_status(&reply, STATUS_OK);
    reply = daemon_call_end(&call);
    wire_reply_fini(&reply);
}
END_TEST

// ---- hostile bytes -----------------------------------------------------------------------------

struct bytes {
    const char *data;
    size_t size;
};
#define BYTES(text)                                                                                \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static const struct bytes instead_of_a_greeting[] = {
    BYTES("GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
    BYTES("\0SP\0\0\x31\0\0"),                         // a greeting of the replying side
    BYTES("\0SP\0\0\x10\0\0"),                         // of another protocol
    BYTES("\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"), // TLS where there is none
    BYTES("\xff\xff\xff\xff\xff\xff\xff\xff"),
};

static const struct bytes instead_of_a_frame[] = {
    BYTES("\xff\xff\xff\xff\xff\xff\xff\xff"),
    BYTES("\0\0\0\0\0\1\0\x41"),       // one byte too long
    BYTES("\0\0\0\0\0\0\0\0"),         // no header
    BYTES("\0\0\0\0\0\0\0\3\x80\0\0"), // a header without an end
    BYTES("\0\0\0\0\0\0\0\4\0\0\0\1"),
    BYTES("\1\0\0\0\0\0\0\0\x4\x80\0\0\1"), // a frame of a unix socket
};

START_TEST(broken_bytes_cost_the_connection)
{
    start();
    size_t greetings = sizeof(instead_of_a_greeting) / sizeof(instead_of_a_greeting[0]);
    size_t frames = sizeof(instead_of_a_frame) / sizeof(instead_of_a_frame[0]);
    for (size_t i = 0; i < greetings; i++) {
        int fd = net_connect(port);
        net_send(fd, instead_of_a_greeting[i].data, instead_of_a_greeting[i].size);
        net_expect_closed(fd);
    }
    for (size_t i = 0; i < frames; i++) {
        int fd = greeted();
        net_send(fd, instead_of_a_frame[i].data, instead_of_a_frame[i].size);
        net_expect_closed(fd);
    }
    ck_assert(daemon_logged(&d, "client_dropped client="));
    int fd = greeted();
    net_expect(fd, NET_TOKEN, STATUS_OK);
    close(fd);
    run_and_pass(&d, 1);
}
END_TEST

// A malformed request gets the same answer as every request without the token.
START_TEST(nonsense_in_a_frame_is_answered)
{
    start();
    int fd = greeted();
    net_send(fd, "\0\0\0\0\0\0\0\x8\x80\0\0\1\xff\xff\xff\xff", 16);
    struct wire_reply reply = net_answer(fd);
    expect_status(&reply, STATUS_UNAUTHENTICATED);
    net_expect(fd, NET_TOKEN, STATUS_OK);
    close(fd);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) &&                                                              \
    !defined(__SANITIZE_THREAD__) // sanitizers are preloaded themselves

// A frame around these bytes.
static size_t framed(uint8_t *bytes, const void *data, size_t size)
{
    uint64_t rest = htobe64(size + 4);
    memcpy(bytes, &rest, 8);
    memcpy(bytes + 8, "\x80\0\0\1", 4);
    memcpy(bytes + 12, data, size);
    return 12 + size;
}

// Sends a case and the token (NULL: none), then an unknown field that makes it `filler` bytes long,
// or without filler 16 bytes that are no protobuf. Returns the status of the reply.
static enum status answered(size_t filler, const char *token)
{
    static uint8_t data[REQUEST_BYTES_MAX], bytes[NET_MESSAGE_MAX];
    struct wire_request request = daemon_request(METHOD_RUN);
    size_t size = net_frame(data, 1, &request, token ? token : "") - 12;
    memmove(data, data + 12, size);
    if (filler > 0) { // field 15, of bytes
        filler -= size + 4;
        memcpy(data + size,
               (uint8_t[]){0x7a, (uint8_t)(filler | 0x80), (uint8_t)(filler >> 7 | 0x80),
                           (uint8_t)(filler >> 14)},
               4);
        memset(data + size + 4, 'x', filler);
        size += 4 + filler;
    } else {
        memset(data + size, 0xff, 16);
        size += 16;
    }
    int fd = greeted();
    net_send(fd, bytes, framed(bytes, data, size));
    struct wire_reply reply = net_answer(fd);
    close(fd);
    if (reply.status == STATUS_UNAUTHENTICATED)
        ck_assert_mem_eq(&reply.id, &request.id, sizeof(reply.id));
    enum status status = reply.status;
    wire_reply_fini(&reply);
    return status;
}

// The preloaded library records the first decoded message instead of decoding it.
START_TEST(nothing_is_decoded_without_the_token)
{
    char library[4096], mark[160];
    struct wire_request request = daemon_request(METHOD_STATUS);
    ck_assert(runner_build(library, sizeof(library), "tests/daemon/.libs/fail_calls.so"));
    snprintf(mark, sizeof(mark), "%s/mark", d.folder);
    setenv("LD_PRELOAD", library, 1);
    setenv("CPATTN_FAIL", "unpack 1", 1);
    setenv("CPATTN_FAIL_FILE", mark, 1);
    start();
    unsetenv("LD_PRELOAD");
    for (int wrong = 0; wrong < 2; wrong++) {
        const char *token = wrong ? "not the token of this daemon" : NULL;
        ck_assert_int_eq(answered(0, token), STATUS_UNAUTHENTICATED);
        ck_assert_int_eq(answered(REQUEST_BYTES_MAX, token), STATUS_UNAUTHENTICATED);
        int fd = greeted();
        net_expect(fd, token ? token : "", STATUS_UNAUTHENTICATED);
        close(fd);
    }
    ck_assert_int_ne(access(mark, F_OK), 0);
    ck_assert_int_eq(answered(0, NET_TOKEN), STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(access(mark, F_OK), 0);
    unlink(mark);
    int fd = greeted();
    net_ask(fd, 1, &request, NET_TOKEN);
    struct wire_reply reply = net_answer(fd);
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
    close(fd);
}
END_TEST
#endif

START_TEST(latecomers_are_closed)
{
    daemon_start(&d, (const char *[]){"--listen", url, "--token-file",
                                      net_file(&d, "token", NET_TOKEN "\n"), "--client-timeout",
                                      DAEMON_CLIENT_TIMEOUT, NULL});
    int silent = net_connect(port), half = net_connect(port), begun = greeted();
    net_send(half, NET_GREETING, 5);
    net_send(begun, "\0\0\0\0\0\0\0\x10\x80\0", 10);
    int idle = greeted();
    net_expect_closed(silent);
    net_expect_closed(half);
    net_expect_closed(begun);
    ck_assert(daemon_logged(&d, "it has not greeted in time"));
    ck_assert(daemon_logged(&d, "its request was not complete in time"));
    net_expect(idle, NET_TOKEN, STATUS_OK); // an idle client may stay
    close(idle);
}
END_TEST

// Half of the connections are reserved for the unix socket.
START_TEST(flood_leaves_the_unix_socket_its_share)
{
    static int fds[FLOOD];
    start();
    for (int i = 0; i < FLOOD; i++)
        fds[i] = net_connect(port);
    while (!daemon_logged(&d, "client_refused address=127.0.0.1:"))
        usleep(10000);
    daemon_ping_fresh(&d);
    run_and_pass(&d, 2);
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    int fd = -1;
    for (bool served = false; !served; close(fd)) {
        char greeting[8];
        fd = net_connect(port);
        served = recv(fd, greeting, 8, MSG_WAITALL) == 8;
    }
}
END_TEST

// ---- refused at the start ----------------------------------------------------------------------

static void expect_no_start(int status, const char *part, const char *const *arguments)
{
    char text[2048], path[128];
    const char *all[DAEMON_ARGUMENTS_MAX + 1] = {"--socket", path};
    snprintf(path, sizeof(path), "%s/socket", d.folder);
    for (int i = 0; arguments[i]; i++)
        all[i + 2] = arguments[i];
    ck_assert_int_eq(daemon_run(all, text, sizeof(text)), status);
    expect_text(text, part);
    ck_assert_ptr_null(strstr(text, "short"));
}
#define NO_START(status, part, ...)                                                                \
    expect_no_start(status, part, (const char *[]){__VA_ARGS__, NULL})

START_TEST(ports_without_authentication_are_refused)
{
    const char *token = net_file(&d, "token", NET_TOKEN);
    NO_START(64, "name a file with a token", "--listen", url);
    NO_START(64, "there is TLS only with", "--listen", url, "--token-file", token, "--tls-clients",
             token);
    NO_START(64, "only network clients present a token", "--token-file", token);
    NO_START(64, "needs the certificate of this daemon", "--listen", "tls+tcp://127.0.0.1:4433");
    NO_START(64, "name the authorities", "--listen", "tls+tcp://127.0.0.1:4433",
             "--tls-certificate", token, "--tls-key", token);
    // The same in a file of settings.
    char settings[128];
    snprintf(settings, sizeof(settings), "listen: %s\n", url);
    NO_START(64, "name a file with a token", "--config", net_file(&d, "settings", settings));
}
END_TEST

// A build with TLS refuses a token file as a certificate; a build without TLS refuses the option.
START_TEST(tls_is_refused_without_tls_in_the_build)
{
    const char *token = net_file(&d, "token", NET_TOKEN);
    NO_START(1, HAVE_TLS ? "tls-certificate: " : "built without TLS", "--listen",
             "tls+tcp://127.0.0.1:4433", "--tls-certificate", token, "--tls-key", token,
             "--token-file", token);
}
END_TEST

START_TEST(invalid_urls_are_refused)
{
    static const char *const wrong[] = {
        "127.0.0.1:80",       "tcp://:80",          "tcp://127.0.0.1",   "tcp://127.0.0.1:0",
        "tcp://here:65536",   "tcp://here:80/",     "udp://here:80",     "tcp://[::1:80",
        "tcp://me@here:80",   "tls://127.0.0.1:80", "tcp://here:123456", "tcp://[]:80",
        "tcp://127.0.0.1:-1", "tls+tls+tcp://a:1",  "tcp://here:",       "",
    };
    const char *token = net_file(&d, "token", NET_TOKEN);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        NO_START(64, "expected tcp://HOST:PORT", "--token-file", token, "--listen", wrong[i]);
}
END_TEST

START_TEST(tokens_in_bad_files_are_refused)
{
    static char longer[TOKEN_BYTES_MAX + 2];
    memset(longer, 'x', sizeof(longer) - 1);
    const char *bad[] = {"",
                         "\n",
                         "short",
                         "fifteen letters",
                         "two lines of it\nand more\n",
                         "with\ta tab in its middle",
                         longer};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        NO_START(1, "holds no token", "--listen", url, "--token-file",
                 net_file(&d, "token", bad[i]));
    const char *token = net_file(&d, "token", NET_TOKEN);
    ck_assert_int_eq(chmod(token, 0644), 0);
    NO_START(1, "chmod 0600", "--listen", url, "--token-file", token);
    ck_assert_int_eq(chmod(token, 0602), 0);
    NO_START(1, "chmod 0600", "--listen", url, "--token-file", token);
    NO_START(1, "No such file", "--listen", url, "--token-file", "/nonexistent/token");
}
END_TEST

START_TEST(sixteen_and_256_characters_are_a_token)
{
    char longest[TOKEN_BYTES_MAX + 1] = "";
    memset(longest, '~', TOKEN_BYTES_MAX);
    const char *tokens[] = {"sixteen letters!", longest};
    for (int i = 0; i < 2; i++) {
        daemon_start(&d, (const char *[]){"--listen", url, "--token-file",
                                          net_file(&d, "token", tokens[i]), NULL});
        int fd = greeted();
        net_expect(fd, tokens[i], STATUS_OK);
        close(fd);
        ck_assert_int_eq(daemon_stop(&d), 0);
    }
}
END_TEST

START_TEST(a_port_in_use_is_reported)
{
    start();
    char other[128];
    snprintf(other, sizeof(other), "%s/other", d.folder);
    char text[1024];
    const char *arguments[] = {
        "--socket", other, "--listen", url, "--token-file", net_file(&d, "token", NET_TOKEN), NULL};
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 1);
    expect_text(text, "choose another port with --listen");
}
END_TEST

static bool ipv6_is_available(void)
{
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    if (probe >= 0)
        close(probe);
    return probe >= 0;
}

START_TEST(ipv6_is_served)
{
    snprintf(url, sizeof(url), "tcp://[::]:%d", port);
    start();
    int fd = greeted(); // over IPv4, too
    net_expect(fd, NET_TOKEN, STATUS_OK);
    net_expect(fd, "", STATUS_UNAUTHENTICATED);
    close(fd);
    ck_assert(daemon_logged(&d, "address=127.0.0.1:"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_tcp");
    TCase *tcase = tcase_create("tcp");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, requests_with_the_token_are_served);
    tcase_add_test(tcase, the_unix_socket_requires_no_token);
    tcase_add_test(tcase, other_tokens_are_refused);
    tcase_add_test(tcase, a_refusal_says_only_what_to_do);
    tcase_add_test(tcase, third_refusal_costs_the_connection);
    tcase_add_test(tcase, what_follows_the_third_refusal_is_dropped);
    tcase_add_test(tcase, token_is_read_again_on_sighup);
    tcase_add_test(tcase, network_clients_are_no_administrators);
    tcase_add_test(tcase, allow_users_applies_to_the_unix_socket);
    tcase_add_test(tcase, cases_of_a_client_that_is_gone_are_cancelled);
    tcase_add_test(tcase, broken_bytes_cost_the_connection);
    tcase_add_test(tcase, nonsense_in_a_frame_is_answered);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(tcase, nothing_is_decoded_without_the_token);
#else
    runner_skip("nothing_is_decoded_without_the_token", "a sanitizer is preloaded itself");
#endif
    tcase_add_test(tcase, latecomers_are_closed);
    tcase_add_test(tcase, flood_leaves_the_unix_socket_its_share);
    tcase_add_test(tcase, ports_without_authentication_are_refused);
    tcase_add_test(tcase, tls_is_refused_without_tls_in_the_build);
    tcase_add_test(tcase, invalid_urls_are_refused);
    tcase_add_test(tcase, tokens_in_bad_files_are_refused);
    tcase_add_test(tcase, sixteen_and_256_characters_are_a_token);
    tcase_add_test(tcase, a_port_in_use_is_reported);
    if (ipv6_is_available())
        tcase_add_test(tcase, ipv6_is_served);
    else
        runner_skip("ipv6_is_served", "the kernel has no IPv6");
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
