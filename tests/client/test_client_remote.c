// SPDX-License-Identifier: Apache-2.0
// The library and a daemon over TCP, with and without TLS: the required credentials, and the
// messages if one is missing or wrong.
#include "tests/support/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cpattn.h"
#include "tests/daemon/certificates.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/daemon/net_client.h"
#include "tests/support/port.h"

#define FLYING 24

static int port;
static char tcp_url[64], tls_url[72], token_file[160];
static struct certificate ca, server, misnamed, own, stranger, imposter;
static struct cpattn_error error;

static void setup(void)
{
    daemon_init(&d);
    port = port_free();
    snprintf(tcp_url, sizeof(tcp_url), "tcp://127.0.0.1:%d", port);
    snprintf(tls_url, sizeof(tls_url), "tls+%s", tcp_url);
    snprintf(token_file, sizeof(token_file), "%s", net_file(&d, "token", NET_TOKEN "\n"));
    const struct certificate_kind authority = {.authority = true}, plain = {0};
    certificate_make(&ca, d.folder, "ca", "the one who signs", NULL, authority);
    certificate_make(&server, d.folder, "server", "127.0.0.1", &ca, plain);
    certificate_make(&misnamed, d.folder, "misnamed", "another.example", &ca, plain);
    certificate_make(&own, d.folder, "own", "a client", &ca, plain);
    certificate_make(&stranger, d.folder, "stranger", "another", NULL, authority);
    certificate_make(&imposter, d.folder, "imposter", "a client", &stranger, plain);
}

static void teardown(void)
{
    struct certificate *all[] = {&ca, &server, &misnamed, &own, &stranger, &imposter};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        certificate_remove(all[i]);
    net_file_remove(&d, "token");
    net_file_remove(&d, "other");
    daemon_fini(&d);
}

static void start_tcp(void)
{
    daemon_start(&d, (const char *[]){"--listen", tcp_url, "--token-file", token_file, NULL});
}

static void start_tls(const struct certificate *certificate)
{
    daemon_start(&d, (const char *[]){"--listen", tls_url, "--tls-certificate", certificate->file,
                                      "--tls-key", certificate->key_file, "--tls-clients", ca.file,
                                      NULL});
}

static struct cpattn_options tcp_options(void)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    options.socket = tcp_url;
    options.token_file = token_file;
    return options;
}

static struct cpattn_options tls_options(void)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    options.socket = tls_url;
    options.tls_ca = ca.file;
    options.tls_certificate = own.file;
    options.tls_key = own.key_file;
    return options;
}

static struct cpattn_client *client_of(const struct cpattn_options *options)
{
    struct cpattn_client *client = NULL;
    enum cpattn_status status = cpattn_client_create(options, &client, &error);
    ck_assert_msg(status == CPATTN_OK, "%s", error.text);
    return client;
}

static struct cpattn_case *small_case(void)
{
    static const char *const fields[][2] = {
        {"batch", "1"},       {"heads", "1"},     {"kv_heads", "1"},  {"head_dim_qk", "16"},
        {"head_dim_v", "16"}, {"seqlen_q", "32"}, {"seqlen_kv", "32"}};
    struct cpattn_case *c = cpattn_case_create();
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        ck_assert_int_eq(cpattn_case_set(c, fields[i][0], fields[i][1], &error), CPATTN_OK);
    return c;
}

// Many cases in flight, each on a connection of its own, all pass.
static void expect_served(const struct cpattn_options *options)
{
    struct cpattn_client *client = client_of(options);
    struct cpattn_case *c = small_case();
    struct cpattn_request *requests[FLYING];
    for (int i = 0; i < FLYING; i++) {
        char seed[16];
        snprintf(seed, sizeof(seed), "%d", i + 1);
        ck_assert_int_eq(cpattn_case_set(c, "seed", seed, &error), CPATTN_OK);
        enum cpattn_status status = cpattn_submit(client, c, 0, &requests[i], &error);
        ck_assert_msg(status == CPATTN_OK, "%s", error.text);
    }
    for (int i = 0; i < FLYING; i++) {
        struct cpattn_result *result;
        struct cpattn_request *request = cpattn_wait_any(client, UINT64_MAX);
        enum cpattn_status status = cpattn_collect(request, &result, &error);
        ck_assert_msg(status == CPATTN_OK, "%s", error.text);
        ck_assert_int_eq(result->verdict, CPATTN_VERDICT_PASS);
        cpattn_result_destroy(result);
    }
    for (int i = 0; i < FLYING; i++)
        cpattn_request_destroy(requests[i]);
    cpattn_case_destroy(c);
    ck_assert_str_eq(cpattn_client_socket(client), options->socket);
    cpattn_client_destroy(client);
}

static void expect_no_client(const struct cpattn_options *options, enum cpattn_status expected,
                             const char *part)
{
    struct cpattn_client *none = (struct cpattn_client *)&error; // must stay unchanged
    enum cpattn_status status = cpattn_client_create(options, &none, &error);
    ck_assert_msg(status == expected && error.status == expected, "%s: %s",
                  cpattn_status_name(status), error.text);
    expect_text(error.text, part);
    ck_assert_ptr_eq(none, (struct cpattn_client *)&error);
}

// ---- TCP ---------------------------------------------------------------------------------------

START_TEST(clients_with_the_token_are_served)
{
    start_tcp();
    struct cpattn_options options = tcp_options();
    expect_served(&options);
}
END_TEST

START_TEST(the_environment_names_the_token_file)
{
    start_tcp();
    ck_assert_int_eq(setenv("CPATTN_SOCKET", tcp_url, 1), 0);
    ck_assert_int_eq(setenv("CPATTN_TOKEN_FILE", token_file, 1), 0);
    struct cpattn_client *client = client_of(NULL);
    struct cpattn_description *description;
    ck_assert_int_eq(cpattn_describe(client, 0, &description, &error), CPATTN_OK);
    cpattn_description_destroy(description);
    ck_assert_str_eq(cpattn_client_socket(client), tcp_url);
    cpattn_client_destroy(client);
    // Options override the environment. A unix socket needs no token.
    ck_assert_int_eq(setenv("CPATTN_TOKEN_FILE", "/nonexistent/token", 1), 0);
    struct cpattn_options options = tcp_options();
    expect_served(&options);
    options.token_file = NULL;
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT, "cannot read /nonexistent/token");
    options.socket = d.socket;
    cpattn_client_destroy(client_of(&options));
}
END_TEST

// The daemon closes the connection after each refusal.
START_TEST(a_wrong_token_is_refused_each_time)
{
    start_tcp();
    struct cpattn_options options = tcp_options();
    options.token_file = net_file(&d, "other", "not the token of this daemon");
    struct cpattn_client *client = client_of(&options);
    struct cpattn_case *c = small_case();
    for (int i = 0; i < 20; i++) {
        struct cpattn_result *result;
        enum cpattn_status status = cpattn_run(client, c, 0, &result, &error);
        ck_assert_msg(status == CPATTN_UNAUTHENTICATED, "%d: %s", i, error.text);
        expect_text(error.text, "the token is wrong");
        ck_assert_ptr_null(result);
    }
    cpattn_client_destroy(client);
    options.token_file = NULL;
    client = client_of(&options);
    struct cpattn_daemon_status *status;
    ck_assert_int_eq(cpattn_query_status(client, 0, &status, &error), CPATTN_UNAUTHENTICATED);
    expect_text(error.text, "--token-file or CPATTN_TOKEN_FILE");
    cpattn_client_destroy(client);
    cpattn_case_destroy(c);
}
END_TEST

START_TEST(bad_files_and_addresses_are_refused)
{
    struct cpattn_options options = tcp_options();
    expect_no_client(&options, CPATTN_UNAVAILABLE, "nothing listens there");
    ck_assert_int_eq(chmod(token_file, 0644), 0);
    expect_no_client(&options, CPATTN_PERMISSION_DENIED, "chmod 0600");
    options.token_file = net_file(&d, "other", "short");
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT, "holds no token");
    ck_assert_ptr_null(strstr(error.text, "short"));
    options.token_file = NULL;
    static const char *const wrong[] = {"tcp://",           "tcp://here",   "tcp://here:0",
                                        "tcp://here:99999", "tls+tcp://:1", "tcp://[::1:4"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        options.socket = wrong[i];
        expect_no_client(&options, CPATTN_INVALID_ARGUMENT, "accepted are a path, or tcp://HOST");
    }
    options.socket = "tcp://no-such-host.invalid:4444";
    expect_no_client(&options, CPATTN_UNAVAILABLE, "no-such-host.invalid");
}
END_TEST

START_TEST(cancelling_works_over_a_network)
{
    start_tcp();
    struct cpattn_options options = tcp_options();
    struct cpattn_client *client = client_of(&options);
    struct cpattn_case *c = cpattn_case_create();
    struct cpattn_request *request;
    struct cpattn_result *result;
    ck_assert_int_eq(cpattn_case_set(c, "seqlen_q", "8192", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "seqlen_kv", "8192", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "heads", "16", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "kv_heads", "16", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_submit(client, c, 0, &request, &error), CPATTN_OK);
    daemon_await_running(&d, 1);
    ck_assert_int_eq(cpattn_cancel_id(client, cpattn_request_id(request), 0, &error), CPATTN_OK);
    ck_assert(cpattn_wait(request, UINT64_MAX));
    ck_assert_int_eq(cpattn_collect(request, &result, &error), CPATTN_CANCELLED);
    cpattn_result_destroy(result);
    cpattn_request_destroy(request);
    cpattn_case_destroy(c);
    cpattn_client_destroy(client);
}
END_TEST

// ---- TLS ---------------------------------------------------------------------------------------

START_TEST(clients_with_certificates_are_served)
{
    start_tls(&server);
    struct cpattn_options options = tls_options();
    expect_served(&options);
}
END_TEST

START_TEST(environment_names_certificates)
{
    start_tls(&server);
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    options.socket = tls_url;
    ck_assert_int_eq(setenv("CPATTN_TLS_CA", ca.file, 1), 0);
    ck_assert_int_eq(setenv("CPATTN_TLS_CERTIFICATE", own.file, 1), 0);
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT, "tls-key is missing");
    ck_assert_int_eq(setenv("CPATTN_TLS_KEY", own.key_file, 1), 0);
    expect_served(&options);
}
END_TEST

START_TEST(the_token_is_sent_over_tls)
{
    daemon_start(&d,
                 (const char *[]){"--listen", tls_url, "--tls-certificate", server.file,
                                  "--tls-key", server.key_file, "--token-file", token_file, NULL});
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    options.socket = tls_url;
    options.tls_ca = ca.file;
    options.token_file = token_file;
    expect_served(&options);
}
END_TEST

START_TEST(another_daemon_is_refused)
{
    start_tls(&misnamed);
    struct cpattn_options options = tls_options();
    expect_no_client(&options, CPATTN_UNAUTHENTICATED, "issued for that name");
    ck_assert_int_eq(daemon_stop(&d), 0);
    start_tls(&server);
    options.tls_ca = stranger.file;
    expect_no_client(&options, CPATTN_UNAUTHENTICATED, "signed by an authority in --tls-ca");
    options.tls_ca = ca.file;
    expect_served(&options);
}
END_TEST

START_TEST(another_client_is_refused)
{
    start_tls(&server);
    struct cpattn_options options = tls_options();
    options.tls_certificate = options.tls_key = NULL;
    expect_no_client(&options, CPATTN_UNAUTHENTICATED, "--tls-certificate and --tls-key");
    options.tls_certificate = imposter.file;
    options.tls_key = imposter.key_file;
    expect_no_client(&options, CPATTN_UNAUTHENTICATED, "--tls-certificate and --tls-key");
}
END_TEST

START_TEST(files_of_tls_are_checked)
{
    struct cpattn_options options = tls_options();
    options.tls_ca = NULL;
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT, "--tls-ca, or CPATTN_TLS_CA");
    options.tls_ca = "/nonexistent/ca";
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT, "tls-ca: cannot read /nonexistent/ca");
    options.tls_ca = token_file;
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT, token_file);
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT,
                     " is no file in PEM; accepted is text with a line '-----BEGIN ...'");
    options.tls_ca = own.key_file;
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT, "tls-ca cannot be used");
    options = tls_options();
    options.tls_key = token_file;
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT, token_file);
    options = tls_options();
    options.tls_certificate = own.key_file;
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT,
                     "tls-certificate with tls-key cannot be used: Cryptographic error; accepted "
                     "are certificates, and a private key, in PEM");
    options.tls_key = NULL;
    expect_no_client(&options, CPATTN_INVALID_ARGUMENT, "tls-key is missing");
    options = tls_options();
    ck_assert_int_eq(chmod(own.key_file, 0604), 0);
    expect_no_client(&options, CPATTN_PERMISSION_DENIED, "chmod 0600");
}
END_TEST

START_TEST(tls_on_one_side_only_is_reported)
{
    start_tls(&server);
    struct cpattn_options options = tcp_options();
    expect_no_client(&options, CPATTN_UNAVAILABLE, "one with TLS, which takes tls+tcp://");
    ck_assert_int_eq(daemon_stop(&d), 0);
    start_tcp();
    options = tls_options();
    expect_no_client(&options, CPATTN_UNAUTHENTICATED, "The daemon's log has details");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_remote");
    TCase *tcase = tcase_create("remote");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, clients_with_the_token_are_served);
    tcase_add_test(tcase, the_environment_names_the_token_file);
    tcase_add_test(tcase, a_wrong_token_is_refused_each_time);
    tcase_add_test(tcase, bad_files_and_addresses_are_refused);
    tcase_add_test(tcase, cancelling_works_over_a_network);
    tcase_add_test(tcase, clients_with_certificates_are_served);
    tcase_add_test(tcase, environment_names_certificates);
    tcase_add_test(tcase, the_token_is_sent_over_tls);
    tcase_add_test(tcase, another_daemon_is_refused);
    tcase_add_test(tcase, another_client_is_refused);
    tcase_add_test(tcase, files_of_tls_are_checked);
    tcase_add_test(tcase, tls_on_one_side_only_is_reported);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
