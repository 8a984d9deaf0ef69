// SPDX-License-Identifier: Apache-2.0
// Invalid requests and wrong settings: the daemon's messages name the mistake.
#include "tests/support/runner.h"

#include <fcntl.h>
#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/deposit.h"
#include "tests/daemon/daemon_scene.h"

// ---- messages ----------------------------------------------------------------------------------

// Sends bytes as a request and returns the answer; false if the daemon closed the connection.
static bool bytes_call(const void *data, size_t size, struct wire_reply *reply)
{
    struct error error;
    char url[128];
    nng_socket client;
    void *answer;
    size_t answer_size;
    snprintf(url, sizeof(url), "ipc://%s", d.socket);
    ck_assert_int_eq(nng_req0_open(&client), 0);
    nng_socket_set_ms(client, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    nng_socket_set_ms(client, NNG_OPT_RECVTIMEO, 20000);
    nng_socket_set_size(client, NNG_OPT_RECVMAXSZ, REPLY_BYTES_MAX);
    ck_assert_int_eq(nng_dial(client, url, NULL, 0), 0);
    char none = 0;
    ck_assert_int_eq(nng_send(client, size ? (void *)(uintptr_t)data : &none, size, 0), 0);
    int result = nng_recv(client, &answer, &answer_size, NNG_FLAG_ALLOC);
    ck_assert_int_ne(result, NNG_ETIMEDOUT);
    if (result == 0) {
        ck_assert_msg(wire_decode_reply(answer, answer_size, reply, &error) == STATUS_OK, "%s",
                      error.text);
        nng_free(answer, answer_size);
    }
    nng_close(client);
    return result == 0;
}

static void expect_refusal(const void *data, size_t size, enum status status)
{
    struct wire_reply reply;
    ck_assert(bytes_call(data, size, &reply));
    ck_assert_msg(reply.status == status, "%s: %s", status_name(reply.status), reply.message);
    ck_assert_str_ne(reply.message, "");
    wire_reply_fini(&reply);
}

START_TEST(test_hostile_messages)
{
    static uint8_t bytes[REQUEST_BYTES_MAX + 4096];
    struct wire_reply reply;
    size_t size;
    daemon_start(&d, NULL);
    expect_refusal("", 0, STATUS_FAILED_PRECONDITION); // version 0
    expect_refusal("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11, STATUS_INVALID_ARGUMENT);
    memset(bytes, 'x', sizeof(bytes));
    expect_refusal(bytes, REQUEST_BYTES_MAX - 16, STATUS_RESOURCE_EXHAUSTED); // expands too far
    ck_assert(!bytes_call(bytes, sizeof(bytes), &reply)); // too long: dropped unread

    // A request with one damaged byte at a time. Every one that cannot be decoded gets an answer.
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = WORLD_SIZE_MAX + 1;
    daemon_request_encode(&request, bytes, &size);
    uint32_t random = 12345;
    for (int i = 0; i < 500; i++) {
        static uint8_t damaged[REQUEST_BYTES_MAX];
        memcpy(damaged, bytes, size);
        random = random * 1664525 + 1013904223;
        damaged[(size_t)i % size] = (uint8_t)(random >> 24);
        // A request that can be decoded is not sent: it could start many ranks.
        struct wire_request read;
        struct error error;
        if (wire_decode_request(damaged, size, &read, &error) == STATUS_OK)
            continue;
        ck_assert(bytes_call(damaged, size, &reply));
        ck_assert_int_ne(reply.status, STATUS_OK);
        wire_reply_fini(&reply);
    }
    run_and_pass(&d, 2);
    ck_assert_uint_gt(daemon_status(&d).refused, 100);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_another_version)
{
    daemon_start(&d, NULL);
    struct wire_request request = daemon_request(METHOD_STATUS);
    request.version = WIRE_VERSION + 1;
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.status, STATUS_FAILED_PRECONDITION);
    char number[16];
    snprintf(number, sizeof(number), "%d", WIRE_VERSION + 1);
    expect_text(reply.message, number);
    ck_assert_int_eq(memcmp(&reply.id, &request.id, sizeof(reply.id)), 0);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_bad_case)
{
    daemon_start(&d, NULL);
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.heads = 6;
    request.run.kv_heads = 4;
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.status, STATUS_INVALID_ARGUMENT);
    expect_text(reply.message, "kv_heads");
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// ---- settings ----------------------------------------------------------------------------------

static const struct {
    const char *option, *value, *message;
} wrong_options[] = {
    {"--queue-max", "0", "--queue-max: value '0': expected a whole number from 1 to 4096"},
    {"--queue-max", "many", "--queue-max: value 'many': expected"},
    {"--queue-max", "5000", "--queue-max: value '5000': expected"},
    {"--user-queue-max", "0",
     "--user-queue-max: value '0': expected a whole number from 1 to 4096"},
    {"--allow-users", "", "--allow-users: value '': expected up to 64 users"},
    {"--allow-users", "root,", "--allow-users: value 'root,': expected"},
    {"--allow-users", "no such user", "--allow-users: value 'no such user': expected"},
    {"--allow-users", "4294967295", "--allow-users: value '4294967295': expected"},
    {"--devices", "-1", "--devices: value '-1': expected"},
    {"--memory", "8X", "--memory: value '8X': expected a size such as 8G"},
    {"--memory", "99999999999T", "--memory: value '99999999999T': expected"},
    {"--idle-timeout", "soon", "--idle-timeout: value 'soon': expected a length of time"},
    {"--backend", "abacus", "--backend: value 'abacus': expected auto, cpu or cuda"},
    {"--log-level", "loud", "--log-level: value 'loud': expected error, warning"},
    {"--rank-program", "/nowhere/rank", "cannot execute /nowhere/rank: No such file or directory"},
    {"--config", "/nowhere/file", "/nowhere/file"},
    {"--socket", "", "--socket: value '': expected a path"},
    {"--no-such-option", "1", "no-such-option"},
};

START_TEST(test_wrong_option)
{
    char text[2048];
    const char *const arguments[] = {wrong_options[_i].option, wrong_options[_i].value, NULL};
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 64);
    expect_text(text, wrong_options[_i].message);
}
END_TEST

// Listens on a socket like another program.
static int listen_on(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%.*s", (int)sizeof(name.sun_path) - 1, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

START_TEST(test_wrong_socket)
{
    char text[2048], path[200];
    memset(path, 'x', sizeof(path));
    memcpy(path, "/tmp/", 5);
    path[150] = '\0';
    const char *const too_long[] = {"--socket", path, NULL};
    ck_assert_int_eq(daemon_run(too_long, text, sizeof(text)), 1);
    expect_text(text, "the socket path has 150 bytes, a unix socket takes 1 to 107");

    const char *const no_folder[] = {"--socket", "/tmp/no/such/folder/socket", NULL};
    ck_assert_int_eq(daemon_run(no_folder, text, sizeof(text)), 1);
    expect_text(text, "cannot create /tmp/no/such/folder/socket.lock");

    if (getuid()) { // root may write everywhere
        const char *const closed[] = {"--socket", "/usr/socket", NULL};
        ck_assert_int_eq(daemon_run(closed, text, sizeof(text)), 1);
        expect_text(text, "/usr/socket.lock: Permission denied; make the directory writable");
    }

    snprintf(path, sizeof(path), "%s/file", d.folder);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const char *const no_socket[] = {"--socket", path, NULL};
    ck_assert_int_eq(daemon_run(no_socket, text, sizeof(text)), 1);
    expect_text(text, "exists and is not a socket");
    ck_assert_int_eq(unlink(path), 0); // it was not touched

    int other = listen_on(path);
    ck_assert_int_eq(daemon_run(no_socket, text, sizeof(text)), 1);
    expect_text(text, "another program listens on");
    ck_assert_int_eq(chmod(path, 0), 0); // like the socket of another user, except for root
    ck_assert_int_eq(daemon_run(no_socket, text, sizeof(text)), 1);
    expect_text(text, getuid() ? "another program may listen on" : "another program listens on");
    close(other);
    ck_assert_int_eq(unlink(path), 0); // it was not touched
}
END_TEST

// The socket for descriptors is beside the main socket and follows the same rules.
START_TEST(test_wrong_socket_for_descriptors)
{
    char text[2048], path[80], beside[sizeof(d.socket)];
    snprintf(path, sizeof(path), "%.70s/main", d.folder);
    snprintf(beside, sizeof(beside), "%s%s", path, DEPOSIT_SUFFIX);
    const char *const arguments[] = {"--socket", path, NULL};
    int other = listen_on(beside);
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 1);
    expect_text(text, "another program listens on");
    close(other);
    ck_assert_int_eq(unlink(beside), 0); // it was not touched

    memcpy(d.socket, beside, sizeof(beside));
    daemon_start(&d, NULL); // the main socket of this daemon has that path
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 1);
    expect_text(text, "another program listens on");
    ck_assert_int_eq(access(d.socket, F_OK), 0);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(daemon_stop(&d), 0);

    close(open(beside, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 1);
    expect_text(text, "exists and is not a socket");
    ck_assert_int_eq(unlink(beside), 0);
}
END_TEST

START_TEST(test_few_descriptors)
{
    char text[2048];
    struct rlimit few = {64, 64};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_assert_int_eq(daemon_run(NULL, text, sizeof(text)), 1);
    expect_text(text, "this process may open 64 files and sockets, and needs 256 or more; raise "
                      "the limit (LimitNOFILE=, ulimit -n)");
}
END_TEST

static void file_write(char *path, size_t size, const char *text)
{
    snprintf(path, size, "%s/settings.yaml", d.folder);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

START_TEST(test_settings_file)
{
    char text[2048], path[128];
    file_write(path, sizeof(path), "queue-max: 5\ndevices: 2\nmemory: 1G\n");
    const char *const arguments[] = {"--config", path, "--devices", "4", NULL};
    daemon_start(&d, arguments);
    struct wire_request request = daemon_request(METHOD_DESCRIBE);
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.description.queue_max, 5);
    ck_assert_int_eq(reply.description.devices, 4); // the command line overrides the file
    ck_assert_int_eq(reply.description.memory_bytes_max, INT64_C(1) << 30);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);

    const char *const again[] = {"--config", path, NULL};
    file_write(path, sizeof(path), "devices: 2\nqueue-max: lots\n");
    ck_assert_int_eq(daemon_run(again, text, sizeof(text)), 64);
    expect_text(text, "settings.yaml:2:12: ");
    expect_text(text, "expected a whole number from 1 to 4096");
    file_write(path, sizeof(path), "devices: 2\nqueue_maxx: 3\n");
    ck_assert_int_eq(daemon_run(again, text, sizeof(text)), 64);
    expect_text(text, "settings.yaml:2:1: ");
    expect_text(text, "queue-max");
    file_write(path, sizeof(path), "devices: [1, 2\n");
    ck_assert_int_eq(daemon_run(again, text, sizeof(text)), 64);
    expect_text(text, "settings.yaml:");
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_clients");
    TCase *tcase = tcase_create("clients");
    tcase_add_checked_fixture(tcase, daemon_setup, daemon_teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_hostile_messages);
    tcase_add_test(tcase, test_another_version);
    tcase_add_test(tcase, test_bad_case);
    tcase_add_loop_test(tcase, test_wrong_option, 0,
                        sizeof(wrong_options) / sizeof(wrong_options[0]));
    tcase_add_test(tcase, test_wrong_socket);
    tcase_add_test(tcase, test_wrong_socket_for_descriptors);
    tcase_add_test(tcase, test_few_descriptors);
    tcase_add_test(tcase, test_settings_file);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
