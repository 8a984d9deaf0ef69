// SPDX-License-Identifier: Apache-2.0
// Subjects of certificates as users of a daemon on a network: log, status, ownership of requests,
// allowed subjects.
#include "tests/support/runner.h"

#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/tls_scene.h"

static struct certificate other;

static void setup(void)
{
    tls_setup();
    certificate_make(&other, d.folder, "other", "another client", &ca,
                     (struct certificate_kind){.unit = "R & D"});
}

static void teardown(void)
{
    certificate_remove(&other);
    tls_teardown();
}

static void send_one(struct tls_client *t, const struct wire_request *request)
{
    static uint8_t bytes[NET_MESSAGE_MAX];
    ck_assert(tls_client_send(t, bytes, net_frame(bytes, 1, request, "")));
}

static enum status cancelled_by(struct tls_client *t, const struct request_id *id)
{
    struct wire_request cancel = daemon_request(METHOD_CANCEL);
    cancel.cancel = *id;
    struct wire_reply reply = ask(t, &cancel, "");
    enum status status = reply.status;
    wire_reply_fini(&reply);
    return status;
}

// The only request that the status lists.
static struct wire_open_request listed(struct tls_client *t)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    struct wire_reply reply = ask(t, &request, "");
    expect_status(&reply, STATUS_OK);
    ck_assert_int_eq(reply.pools.open_count, 1);
    struct wire_open_request open = reply.pools.open[0];
    wire_reply_fini(&reply);
    return open;
}

START_TEST(requests_belong_to_a_subject)
{
    const struct tls_client_options others = {.trusted = &ca, .own = &other};
    struct tls_client first, again, another;
    start(true, false);
    open_greeted(&first, &proper);
    open_greeted(&again, &proper);
    open_greeted(&another, &others);
    struct wire_request request = daemon_request_long(1);
    send_one(&first, &request);
    daemon_await_running(&d, 1);
    ck_assert(daemon_logged(&d, "admitted id="));
    ck_assert(daemon_logged(&d, " subject=\"CN=a client\" case="));
    // A client of the same subject sees the whole request, other clients only its user.
    struct wire_open_request open = listed(&again);
    expect_text(open.user, "subject=\"CN=a client\"");
    expect_text(open.user, "address=127.0.0.1:");
    ck_assert_int_ne(open.id[0], '\0');
    open = listed(&another);
    ck_assert_str_eq(open.user, "subject=\"CN=a client\"");
    ck_assert_int_eq(open.id[0], '\0');
    ck_assert_int_eq(cancelled_by(&another, &request.id), STATUS_PERMISSION_DENIED);
    ck_assert_int_eq(cancelled_by(&again, &request.id), STATUS_OK);
    struct wire_reply reply = answer(&first);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    tls_client_close(&first);
    tls_client_close(&again);
    tls_client_close(&another);
    ck_assert(daemon_logged(&d, "subject=\"OU=R & D,CN=another client\""));
}
END_TEST

// At most two requests may be queued and running in all, one of each subject.
START_TEST(each_subject_has_a_share_of_the_queue)
{
    const struct tls_client_options others = {.trusted = &ca, .own = &other};
    struct tls_client one, two;
    const char *arguments[] = {
        "--listen",      url,     "--tls-certificate", server.file, "--tls-key", server.key_file,
        "--tls-clients", ca.file, "--queue-max",       "2",         NULL};
    daemon_start(&d, arguments);
    open_greeted(&one, &proper);
    open_greeted(&two, &others);
    struct wire_request held = daemon_request(METHOD_RUN), more = daemon_request(METHOD_RUN);
    pid_t rank = daemon_hold(&d, 2);
    send_one(&one, &held);
    daemon_await_running(&d, 1);
    struct wire_reply reply = ask(&one, &more, "");
    expect_status(&reply, STATUS_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(cancelled_by(&two, &held.id), STATUS_PERMISSION_DENIED);
    more = daemon_request(METHOD_RUN);
    more.run.world_size = 1;
    send_one(&two, &more);
    daemon_await_queued(&d, 1);
    daemon_release(rank);
    reply = answer(&two);
    expect_pass(&reply);
    tls_client_close(&one);
    tls_client_close(&two);
}
END_TEST

START_TEST(subjects_that_are_not_listed_are_refused)
{
    const struct tls_client_options others = {.trusted = &ca, .own = &other};
    char settings[160];
    snprintf(settings, sizeof(settings), "%s",
             net_file(&d, "settings", "allow-subjects: OU=R & D,CN=another client; CN=nobody\n"));
    daemon_start(&d, (const char *[]){"--config", settings, "--listen", url, "--tls-certificate",
                                      server.file, "--tls-key", server.key_file, "--tls-clients",
                                      ca.file, NULL});
    expect(&proper, "", STATUS_PERMISSION_DENIED);
    expect(&others, "", STATUS_OK);
    ck_assert(daemon_logged(&d, "'CN=a client', is not among those"));
    daemon_ping_fresh(&d); // the list does not apply to the unix socket
    net_file(&d, "settings", "allow-subjects: CN=a client\n");
    kill(d.pid, SIGHUP);
    while (!daemon_logged(&d, "reloaded "))
        usleep(10000);
    expect(&proper, "", STATUS_OK);
    expect(&others, "", STATUS_PERMISSION_DENIED);
}
END_TEST

// The subject has control characters of terminals (ASCII, and C1 in UTF-8), a right-to-left
// override, a quote, a backslash and a word of the log. The log shows unsafe bytes as numbers, or
// with a backslash before them.
START_TEST(subjects_are_cleaned)
{
    struct certificate hostile;
    certificate_make(&hostile, d.folder, "hostile", "a client", &ca,
                     (struct certificate_kind){.unit = "\x1b[2J\n\xc2\x9bm\xe2\x80\xae\"\\ ready"});
    start(true, false);
    struct tls_client t;
    open_greeted(&t, &(struct tls_client_options){.trusted = &ca, .own = &hostile});
    struct wire_request request = daemon_request(METHOD_RUN);
    struct wire_reply reply = ask(&t, &request, "");
    expect_pass(&reply);
    ck_assert(daemon_logged(&d, "subject=\"OU=\\\\1B[2J\\\\0A\\\\C2\\\\9Bm\\\\E2\\\\80\\\\AE"
                                "\\\\\\\"\\\\\\\\ ready,CN=a client\""));
    tls_client_close(&t);
    certificate_remove(&hostile);
}
END_TEST

START_TEST(long_subjects_are_refused)
{
    static const char unit[] = "sixty characters of which there are more than one has room for";
    char name[65];
    struct certificate wordy;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    certificate_make(&wordy, d.folder, "wordy", name, &ca, (struct certificate_kind){.unit = unit});
    start(true, false);
    expect_no_handshake(&(struct tls_client_options){.trusted = &ca, .own = &wordy},
                        "the subject of its certificate is too long");
    expect(&proper, "", STATUS_OK);
    certificate_remove(&wordy);
}
END_TEST

// One subject may have half of the connections over a network.
START_TEST(one_subject_cannot_take_all_connections)
{
    enum { SHARE = 256 };
    const struct tls_client_options others = {.trusted = &ca, .own = &other};
    static struct tls_client clients[SHARE + 1];
    char byte;
    start(true, false);
    for (int i = 0; i < SHARE; i++)
        open_greeted(&clients[i], &proper);
    tls_client_open(&clients[SHARE], net_connect(port), &proper);
    while (tls_client_read(&clients[SHARE], &byte, 1))
        continue;
    while (!daemon_logged(&d, "the subject of its certificate has too many connections"))
        usleep(10000);
    expect(&others, "", STATUS_OK);
    for (int i = 0; i <= SHARE; i++)
        tls_client_close(&clients[i]);
}
END_TEST

static void expect_no_start(const char *subjects, const char *part)
{
    char text[2048], path[128];
    snprintf(path, sizeof(path), "%s/socket", d.folder);
    const char *arguments[] = {"--socket",
                               path,
                               "--listen",
                               url,
                               "--tls-certificate",
                               server.file,
                               "--tls-key",
                               server.key_file,
                               "--token-file",
                               net_file(&d, "token", NET_TOKEN),
                               "--allow-subjects",
                               subjects,
                               NULL};
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 64);
    expect_text(text, part);
}

START_TEST(invalid_lists_are_refused)
{
    expect_no_start("CN=a client", "subjects need client certificates");
    expect_no_start("a client", "expected up to 64 subjects");
    expect_no_start("CN=a;", "expected up to 64 subjects");
    expect_no_start("CN=a;;CN=b", "expected up to 64 subjects");
    expect_no_start("CN=\x1b[2J", "expected up to 64 subjects");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_subjects");
    TCase *tcase = tcase_create("subjects");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, requests_belong_to_a_subject);
    tcase_add_test(tcase, each_subject_has_a_share_of_the_queue);
    tcase_add_test(tcase, subjects_that_are_not_listed_are_refused);
    tcase_add_test(tcase, subjects_are_cleaned);
    tcase_add_test(tcase, long_subjects_are_refused);
    tcase_add_test(tcase, one_subject_cannot_take_all_connections);
    tcase_add_test(tcase, invalid_lists_are_refused);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
