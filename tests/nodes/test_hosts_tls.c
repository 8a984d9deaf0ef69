// SPDX-License-Identifier: Apache-2.0
// Daemon and agents over TLS: accepted and refused agents. The token is not sent in clear.
#include "tests/support/runner.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/certificates.h"
#include "tests/nodes/hosts_fixture.h"
#include "tests/support/port.h"

static struct hosts h;
static struct daemon folder; // of certificates
static struct certificate ca, server, elsewhere, agent, stranger;

static void setup(void)
{
    const struct certificate_kind plain = {0}, authority = {.authority = true};
    daemon_init(&folder);
    certificate_make(&ca, folder.folder, "ca", "authority", NULL, authority);
    certificate_make(&stranger, folder.folder, "stranger", "authority", NULL, authority);
    certificate_make(&server, folder.folder, "server", "localhost", &ca, plain);
    certificate_make(&elsewhere, folder.folder, "elsewhere", "elsewhere", &ca, plain);
    certificate_make(&agent, folder.folder, "agent", "b", &ca, plain);
    h.scheme = "tls+tcp://localhost";
    const char *options[] = {"--tls-certificate", server.file, "--tls-key", server.key_file};
    memcpy(h.daemon_options, options, sizeof(options));
    h.agent_options[0] = "--tls-ca";
    h.agent_options[1] = ca.file;
}

static void teardown(void)
{
    hosts_stop(&h);
    struct certificate *const all[] = {&ca, &stranger, &server, &elsewhere, &agent};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        certificate_remove(all[i]);
    daemon_fini(&folder);
}

static void agents_start(void)
{
    hosts_start(&h);
    hosts_agent_start(&h, 1);
    hosts_agent_start(&h, 2);
}

// Waits until the log of the refused agent of host b has this text. Then ends the agent.
static void refusal_await(const char *text)
{
    char log[160];
    snprintf(log, sizeof(log), "%s/agent-b", h.daemon.folder);
    hosts_await_text(log, text, 1);
    hosts_agent_signal(&h, 1, SIGTERM);
    ck_assert_int_eq(hosts_lines_count(h.daemon.log, "host_back"), 0);
}

// The agent of host b is refused with these options; its log has this text.
static void refused(const char *text)
{
    hosts_agent_spawn(&h, 1, h.port, h.token);
    refusal_await(text);
}

START_TEST(test_cases_run)
{
    agents_start();
    hosts_run_and_pass(&h, 6, 3);
    hosts_run_and_pass(&h, 4, 2);
    hosts_agent_signal(&h, 2, SIGKILL);
    hosts_await_logged(&h, "host_lost host=c", 1);
    hosts_agent_start(&h, 2);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

START_TEST(test_agent_that_trusts_others)
{
    hosts_start(&h);
    h.agent_options[1] = stranger.file;
    refused("its certificate is not accepted");
}
END_TEST

START_TEST(test_daemon_with_the_name_of_another)
{
    h.daemon_options[1] = elsewhere.file;
    h.daemon_options[3] = elsewhere.key_file;
    hosts_start(&h);
    refused("its certificate is not accepted: hostname mismatch");
}
END_TEST

START_TEST(test_agent_without_tls)
{
    hosts_start(&h);
    h.scheme = "tcp://localhost";
    h.agent_options[0] = NULL;
    refused("; a daemon with TLS is at tls+tcp://HOST:PORT");
    hosts_await_logged(&h, "it violates the TLS protocol", 1);
    h.scheme = "tls+tcp://localhost";
    h.agent_options[0] = "--tls-ca";
    hosts_agent_start(&h, 1);
}
END_TEST

START_TEST(test_daemon_without_tls)
{
    h.scheme = "tcp://localhost";
    h.daemon_options[0] = NULL;
    hosts_start(&h);
    h.scheme = "tls+tcp://localhost";
    refused("it does not use TLS; a daemon without TLS is at tcp://HOST:PORT");
}
END_TEST

START_TEST(test_another_token)
{
    hosts_start(&h);
    hosts_agent_spawn(&h, 1, h.port, h.other_token);
    hosts_await_logged(&h, "agent_refused", 1);
    hosts_agent_signal(&h, 1, SIGTERM);
}
END_TEST

START_TEST(test_agents_with_certificates)
{
    h.daemon_options[4] = "--tls-clients";
    h.daemon_options[5] = ca.file;
    hosts_start(&h);
    hosts_agent_spawn(&h, 1, h.port, h.token);
    // The daemon's log comes first: an agent may be away before for another reason, such as ranks
    // of an earlier agent.
    hosts_await_logged(&h, "it has no certificate", 1);
    refusal_await("daemon_away");
    const char *options[] = {"--tls-certificate", agent.file, "--tls-key", agent.key_file};
    memcpy(h.agent_options + 2, options, sizeof(options));
    hosts_agent_start(&h, 1);
    hosts_run_and_pass(&h, 4, 2);
    hosts_agent_signal(&h, 1, SIGTERM);
    h.agent_options[3] = stranger.file;
    h.agent_options[5] = stranger.key_file;
    hosts_agent_spawn(&h, 1, h.port, h.token);
    hosts_await_logged(&h, "its certificate is not signed by one of those in tls-clients", 1);
    hosts_agent_signal(&h, 1, SIGTERM);
}
END_TEST

START_TEST(test_certificate_is_renewed)
{
    char log[160];
    hosts_start(&h);
    hosts_agent_start(&h, 1);
    ck_assert_int_eq(rename(elsewhere.file, server.file), 0);
    ck_assert_int_eq(rename(elsewhere.key_file, server.key_file), 0);
    kill(h.daemon.pid, SIGHUP);
    hosts_await_logged(&h, "reloaded ", 1);
    hosts_agent_spawn(&h, 2, h.port, h.token);
    snprintf(log, sizeof(log), "%s/agent-c", h.daemon.folder);
    hosts_await_text(log, "hostname mismatch", 1);
    hosts_agent_signal(&h, 2, SIGTERM);
    hosts_run_and_pass(&h, 4, 2); // connected agents stay
}
END_TEST

// The agent reads its files again before it connects again. Files that cannot be used change
// nothing.
START_TEST(test_files_of_agents_are_renewed)
{
    char log[160];
    int status;
    struct certificate renewed;
    certificate_make(&renewed, folder.folder, "renewed", "localhost", &stranger,
                     (struct certificate_kind){0});
    hosts_start(&h);
    hosts_agent_start(&h, 1);
    snprintf(log, sizeof(log), "%s/agent-b", h.daemon.folder);
    nng_close(h.daemon.client);
    h.daemon.connected = false;
    kill(h.daemon.pid, SIGTERM);
    ck_assert_int_eq(waitpid(h.daemon.pid, &status, 0), h.daemon.pid);
    h.daemon_options[1] = renewed.file;
    h.daemon_options[3] = renewed.key_file;
    ck_assert_int_eq(rename(server.file, ca.file), 0); // no authority of this daemon
    hosts_start(&h);
    hosts_await_text(log, "its certificate is not accepted", 1);
    ck_assert_int_eq(truncate(ca.file, 0), 0);
    hosts_await_text(log, "tls_files error=\"tls-ca: ", 1);
    ck_assert_int_eq(rename(stranger.file, ca.file), 0);
    hosts_await_logged(&h, "host_back host=b ", 1);
    hosts_run_and_pass(&h, 4, 2);
    certificate_remove(&renewed);
}
END_TEST

// True if a connection to `port` contains the secret in clear. Relays the connection until the
// daemon has answered twice.
static bool has_in_clear(int listener, int port, const char *secret)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    static char seen[1 << 16];
    size_t size = 0;
    int answers = 0;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct pollfd ends[2] = {{.fd = accept(listener, NULL, NULL), .events = POLLIN},
                             {.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN}};
    ck_assert_int_eq(connect(ends[1].fd, (struct sockaddr *)&to, sizeof(to)), 0);
    while (answers < 2) {
        char data[8192];
        ck_assert_int_gt(poll(ends, 2, 20000), 0);
        for (int i = 0; i < 2; i++) {
            ssize_t got = ends[i].revents ? read(ends[i].fd, data, sizeof(data)) : 0;
            ck_assert_int_ge(got, 0);
            ck_assert_int_eq(write(ends[1 - i].fd, data, (size_t)got), got);
            answers += i == 1 && got > 0;
            if (i == 0 && size + (size_t)got <= sizeof(seen)) {
                memcpy(seen + size, data, (size_t)got);
                size += (size_t)got;
            }
        }
    }
    close(ends[0].fd);
    close(ends[1].fd);
    ck_assert_uint_gt(size, 0);
    return memmem(seen, size, secret, strlen(secret)) != NULL;
}

static bool secret_is_seen(const char *scheme)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int port = port_free();
    at.sin_port = htons((uint16_t)port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    h.scheme = scheme;
    hosts_agent_spawn(&h, 1, port, h.token);
    bool seen = has_in_clear(listener, h.port, "a secret of agents");
    hosts_agent_signal(&h, 1, SIGKILL);
    close(listener);
    return seen;
}

START_TEST(test_token_is_not_sent_in_clear)
{
    h.scheme = "tls+tcp://127.0.0.1"; // IPv4, like the relay
    hosts_start(&h);
    ck_assert(!secret_is_seen("tls+tcp://localhost"));
}
END_TEST

START_TEST(test_relay_sees_a_token_without_tls)
{
    h.scheme = "tcp://127.0.0.1";
    h.daemon_options[0] = h.agent_options[0] = NULL;
    hosts_start(&h);
    ck_assert(secret_is_seen("tcp://127.0.0.1"));
}
END_TEST

// ---- settings ----------------------------------------------------------------------------------

START_TEST(test_settings_that_do_not_go_together)
{
    const char *const bare[] = {
        "--hosts", "b=2", "--agents-listen", "tls+tcp://127.0.0.1:1", "--agents-token-file",
        "/none",   NULL};
    const char *const useless[] = {"--hosts",
                                   "b=2",
                                   "--agents-listen",
                                   "tcp://127.0.0.1:1",
                                   "--agents-token-file",
                                   "/none",
                                   "--tls-certificate",
                                   "/none",
                                   NULL};
    daemon_refuses(bare, "agents-listen: tls+tcp://127.0.0.1:1 needs the certificate");
    daemon_refuses(useless, "tls-certificate: there is TLS only with");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hosts_tls");
    TCase *cases = tcase_create("cases");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, test_cases_run);
    tcase_add_test(cases, test_agent_that_trusts_others);
    tcase_add_test(cases, test_daemon_with_the_name_of_another);
    tcase_add_test(cases, test_agent_without_tls);
    tcase_add_test(cases, test_daemon_without_tls);
    tcase_add_test(cases, test_another_token);
    tcase_add_test(cases, test_agents_with_certificates);
    tcase_add_test(cases, test_certificate_is_renewed);
    tcase_add_test(cases, test_files_of_agents_are_renewed);
    tcase_add_test(cases, test_token_is_not_sent_in_clear);
    tcase_add_test(cases, test_relay_sees_a_token_without_tls);
    suite_add_tcase(s, cases);
    TCase *settings = tcase_create("settings");
    tcase_add_test(settings, test_settings_that_do_not_go_together);
    suite_add_tcase(s, settings);
    return runner_run(s);
}
