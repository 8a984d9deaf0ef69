// SPDX-License-Identifier: Apache-2.0
// Access to a daemon on a network with TLS: certificates, tokens, and refusals.
#include "tests/support/runner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/tls_scene.h"

START_TEST(clients_with_certificates_are_served)
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

START_TEST(foreign_certificates_are_refused)
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
    // A valid certificate with a wrong key.
    ck_assert_int_ne(nng_try(&client, &imposter), 0);
    while (!daemon_logged(&d, "it violates the TLS protocol"))
        usleep(10000);
    expect(&proper, "", STATUS_OK);
    certificate_remove(&expired);
    certificate_remove(&alone);
}
END_TEST

// The daemon serves its unix socket nevertheless.
START_TEST(an_expired_certificate_of_the_daemon_is_reported)
{
    certificate_remove(&server);
    certificate_make(&server, d.folder, "server", "127.0.0.1", &ca,
                     (struct certificate_kind){.expired = true});
    start(true, false);
    ck_assert(
        daemon_logged(&d, "/server.pem\" error=\"it has expired; clients and agents refuse it\""));
    run_and_pass(&d, 2);
}
END_TEST

START_TEST(weak_certificates_are_refused)
{
    static const struct {
        struct certificate_kind kind;
        const char *logged;
    } poor[] = {
        {{.future = true}, "its certificate is not valid yet"},
        {{.for_servers = true}, "its certificate is not issued for clients"},
        {{.weak = true}, "its certificate has a key or digest that is too weak"},
        {{.comment_bytes = 20000},
         "its certificates, or another message of its handshake, are too"},
    };
    start(true, false);
    for (size_t i = 0; i < sizeof(poor) / sizeof(poor[0]); i++) {
        struct certificate own;
        certificate_make(&own, d.folder, "poor", "a client", &ca, poor[i].kind);
        expect_no_handshake(&(struct tls_client_options){.trusted = &ca, .own = &own},
                            poor[i].logged);
        certificate_remove(&own);
    }
    expect(&proper, "", STATUS_OK);
}
END_TEST

// Up to three intermediate certificates are sent with the client's.
START_TEST(chains_of_certificates_are_bounded)
{
    enum { LONGEST = 3 };
    struct certificate between[LONGEST + 1], own[LONGEST + 2];
    char word[16];
    for (int i = 0; i <= LONGEST; i++) { // each is sent after the one that it has signed
        snprintf(word, sizeof(word), "between %d", i);
        certificate_make(&between[LONGEST - i], d.folder, word, word,
                         i > 0 ? &between[LONGEST - i + 1] : &ca,
                         (struct certificate_kind){.authority = true});
    }
    start(true, false);
    for (int count = 0; count <= LONGEST + 1; count++) {
        const struct certificate *above = &between[LONGEST + 1 - count];
        snprintf(word, sizeof(word), "own%d", count);
        certificate_make(&own[count], d.folder, word, "a client", count > 0 ? above : &ca,
                         (struct certificate_kind){0});
        const struct tls_client_options options = {
            .trusted = &ca, .own = &own[count], .above = above, .above_count = count};
        if (count <= LONGEST)
            expect(&options, "", STATUS_OK);
        else
            expect_no_handshake(&options, "its chain of certificates is too long");
    }
    // Certificates that the chain does not need are allowed.
    const struct tls_client_options many = {
        .trusted = &ca, .own = &own[0], .above = between, .above_count = LONGEST + 1};
    expect(&many, "", STATUS_OK);
    // If tls-clients has the intermediate certificate, the client only sends its own.
    ck_assert_int_eq(daemon_stop(&d), 0);
    ck_assert_int_eq(rename(between[LONGEST].file, ca.file), 0);
    start(true, false);
    expect(&(struct tls_client_options){.own = &own[1]}, "", STATUS_OK);
    for (int i = 0; i <= LONGEST; i++)
        certificate_remove(&between[i]);
    for (int i = 0; i <= LONGEST + 1; i++)
        certificate_remove(&own[i]);
}
END_TEST

// The names of the chain lead to a trusted certificate. The signature of the intermediate
// certificate is not by that certificate.
START_TEST(chains_with_borrowed_names_are_refused)
{
    struct certificate between, below;
    certificate_make(&between, d.folder, "between", "in between", &stranger,
                     (struct certificate_kind){.authority = true});
    certificate_make(&below, d.folder, "below", "a client", &between, (struct certificate_kind){0});
    start(true, false);
    expect_no_handshake(
        &(struct tls_client_options){
            .trusted = &ca, .own = &below, .above = &between, .above_count = 1},
        "its certificate is not signed by one of those in tls-clients");
    certificate_remove(&between);
    certificate_remove(&below);
}
END_TEST

START_TEST(revoked_certificates_are_refused)
{
    struct certificate other;
    certificate_make(&other, d.folder, "other", "another client", &ca,
                     (struct certificate_kind){0});
    certificate_revoke(&ca, &other);
    start(true, false);
    expect(&proper, "", STATUS_OK);
    expect_no_handshake(&(struct tls_client_options){.trusted = &ca, .own = &other},
                        "its certificate is revoked");
    certificate_remove(&other);
}
END_TEST

// With nng's client, which uses another TLS library.
START_TEST(nng_is_served)
{
    start(true, false);
    ck_assert_int_eq(nng_try(&client, &client), 0);
    ck_assert_int_ne(nng_try(&imposter, &imposter), 0);
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

START_TEST(the_token_alone_is_enough)
{
    const struct tls_client_options nameless = {.trusted = &ca};
    start(false, true);
    expect(&nameless, NET_TOKEN, STATUS_OK);
    expect(&nameless, "", STATUS_UNAUTHENTICATED);
    expect(&nameless, "some other token", STATUS_UNAUTHENTICATED);
    // A certificate is ignored if the daemon does not request one.
    expect(&(struct tls_client_options){.trusted = &ca, .own = &imposter}, "",
           STATUS_UNAUTHENTICATED);
}
END_TEST

START_TEST(both_are_required_if_both_are_set)
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
    // The daemon gets new certificates; open connections stay.
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
    // Neither does a file without an end.
    ck_assert_int_eq(mkfifo(server.key_file, 0600), 0);
    kill(d.pid, SIGHUP);
    while (!daemon_logged(&d, "is no regular file, and only those are read again"))
        usleep(10000);
    expect(&(struct tls_client_options){.trusted = &stranger, .own = &client}, "", STATUS_OK);
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
    Suite *suite = suite_create("daemon_certificates");
    TCase *tcase = tcase_create("tls");
    tcase_add_checked_fixture(tcase, tls_setup, tls_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, clients_with_certificates_are_served);
    tcase_add_test(tcase, foreign_certificates_are_refused);
    tcase_add_test(tcase, an_expired_certificate_of_the_daemon_is_reported);
    tcase_add_test(tcase, weak_certificates_are_refused);
    tcase_add_test(tcase, chains_of_certificates_are_bounded);
    tcase_add_test(tcase, chains_with_borrowed_names_are_refused);
    tcase_add_test(tcase, revoked_certificates_are_refused);
    tcase_add_test(tcase, nng_is_served);
    tcase_add_test(tcase, client_may_refuse_the_daemon);
    tcase_add_test(tcase, the_token_alone_is_enough);
    tcase_add_test(tcase, both_are_required_if_both_are_set);
    tcase_add_test(tcase, third_refusal_costs_the_connection);
    tcase_add_test(tcase, certificates_are_read_again_on_sighup);
    tcase_add_test(tcase, files_that_cannot_be_used_are_refused);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
