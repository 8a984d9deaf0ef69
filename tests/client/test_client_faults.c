// SPDX-License-Identifier: Apache-2.0
// Faults around the library: daemons that are missing, hang or die; forks; thousands of clients.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cpattn.h"
#include "tests/client/fake.h"
#include "tests/support/runner.h"

#define MS UINT64_C(1000000)

static struct fake fake;
static struct cpattn_client *client;
static struct cpattn_error error;
static struct cpattn_result *result;

static void setup(void)
{
    client = fake_open(&fake);
}

static void teardown(void)
{
    fake_close(&fake, client);
}

static enum cpattn_status run(const char *label)
{
    return fake_run(client, label, &result, &error);
}

static void assert_runs(void)
{
    enum cpattn_status status = run("pass");
    ck_assert_msg(status == CPATTN_OK, "%s", error.text);
    cpattn_result_destroy(result);
}

// ---- connecting ---------------------------------------------------------------------------------

static void folder_setup(void)
{
    fake_init(&fake);
}

static void folder_teardown(void)
{
    fake_fini(&fake);
}

static void assert_no_client(const char *path, uint64_t connect_ns, enum cpattn_status expected,
                             const char *part)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    struct cpattn_client *none = (struct cpattn_client *)&error; // must stay unchanged
    options.socket = path;
    options.connect_timeout_ns = connect_ns;
    enum cpattn_status status = cpattn_client_create(&options, &none, &error);
    ck_assert_msg(status == expected && error.status == expected, "%s: %s",
                  cpattn_status_name(status), error.text);
    ck_assert_msg(strstr(error.text, part) != NULL, "\"%s\" lacks \"%s\"", error.text, part);
    ck_assert_ptr_eq(none, (struct cpattn_client *)&error);
}

static int listen_raw(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    return fd;
}

START_TEST(without_a_daemon_the_error_tells_how_to_start_one)
{
    assert_no_client(fake.path, 0, CPATTN_UNAVAILABLE, "there is no such socket; start it with");
    ck_assert_ptr_nonnull(strstr(error.text, fake.path));
    close(listen_raw(fake.path));
    assert_no_client(fake.path, 0, CPATTN_UNAVAILABLE, "nothing listens there; start it with");
    unlink(fake.path);
    close(open(fake.path, O_CREAT | O_WRONLY, 0600));
    assert_no_client(fake.path, 0, CPATTN_UNAVAILABLE, "it is a file, not a socket; name the");
    assert_no_client("/tmp", 0, CPATTN_UNAVAILABLE, "/tmp: it is a directory, not a socket; name");
}
END_TEST

START_TEST(a_listener_that_hangs_costs_the_time_to_connect)
{
    int fd = listen_raw(fake.path);
    assert_no_client(fake.path, 100 * MS, CPATTN_DEADLINE_EXCEEDED, "did not answer in time");
    close(fd);
}
END_TEST

// A server that is not cpattnd: it accepts one connection, sends `greeting` and reads until the
// client closes. With size 0 it closes at once.
static void assert_stranger_refused(const void *greeting, size_t size)
{
    int fd = listen_raw(fake.path);
    pid_t pid = fork();
    if (pid == 0) {
        char buffer[64];
        int peer = accept(fd, NULL, NULL);
        if (write(peer, greeting, size) < 0)
            _exit(1);
        while (size > 0 && read(peer, buffer, sizeof buffer) > 0)
            ;
        _exit(0);
    }
    close(fd);
    assert_no_client(fake.path, 0, CPATTN_UNAVAILABLE, fake.path);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    unlink(fake.path);
}

START_TEST(a_server_with_garbage)
{
    assert_stranger_refused("HTTP/1.1 400 Bad Request\r\n\r\n", 28);
}
END_TEST

START_TEST(a_server_with_another_protocol)
{
    assert_stranger_refused("\0SP\0\0\x20\0\0", 8); // a publisher
    ck_assert_ptr_nonnull(strstr(error.text, "closed the connection at once"));
    assert_stranger_refused("", 0); // like cpattnd at its maximum number of connections
    ck_assert_ptr_nonnull(strstr(error.text, "(client_refused in its log)"));
}
END_TEST

START_TEST(options_are_checked)
{
    struct {
        struct cpattn_options options;
        char more[8];
    } newer = {.options = CPATTN_OPTIONS_INIT};
    struct cpattn_options *options = &newer.options;
    struct cpattn_client *none;
    char path[200];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_no_client("", 0, CPATTN_INVALID_ARGUMENT, "has 0 characters");
    assert_no_client(path, 0, CPATTN_INVALID_ARGUMENT, "has 199 characters");
    assert_no_client(fake.path, UINT64_MAX, CPATTN_INVALID_ARGUMENT, "connect_timeout_ns");
    options->socket = fake.path;
    options->grace_ns = UINT64_MAX;
    ck_assert_int_eq(cpattn_client_create(options, &none, &error), CPATTN_INVALID_ARGUMENT);
    options->grace_ns = 0;
    options->requests_max = 513;
    ck_assert_int_eq(cpattn_client_create(options, &none, &error), CPATTN_INVALID_ARGUMENT);
    options->requests_max = -1;
    ck_assert_int_eq(cpattn_client_create(options, &none, &error), CPATTN_INVALID_ARGUMENT);
    options->requests_max = 512; // the maximum is accepted; there is no daemon
    ck_assert_int_eq(cpattn_client_create(options, &none, &error), CPATTN_UNAVAILABLE);
    options->requests_max = 0;
    options->size = 0;
    ck_assert_int_eq(cpattn_client_create(options, &none, &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "CPATTN_OPTIONS_INIT"));
    options->size = sizeof newer; // a later version, whose new option is zero
    ck_assert_int_eq(cpattn_client_create(options, &none, &error), CPATTN_UNAVAILABLE);
    newer.more[0] = 1; // the new option is set
    ck_assert_int_eq(cpattn_client_create(options, &none, &error), CPATTN_UNIMPLEMENTED);
    options->size = offsetof(struct cpattn_options, grace_ns); // an earlier version
    options->requests_max = -1;                                // not read: beyond its size
    ck_assert_int_eq(cpattn_client_create(options, &none, &error), CPATTN_UNAVAILABLE);
}
END_TEST

START_TEST(the_environment_names_the_socket)
{
    setenv("CPATTN_SOCKET", "", 1); // an empty value means the default path
    ck_assert_int_ne(cpattn_client_create(NULL, &client, &error), CPATTN_INVALID_ARGUMENT);
    setenv("CPATTN_SOCKET", fake.path, 1);
    ck_assert_int_eq(cpattn_client_create(NULL, &client, &error), CPATTN_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.text, fake.path));
    fake_start(&fake);
    ck_assert_int_eq(cpattn_client_create(NULL, &client, &error), CPATTN_OK);
    ck_assert_str_eq(cpattn_client_socket(client), fake.path);
    cpattn_client_destroy(client);
}
END_TEST

START_TEST(missing_permissions_are_reported)
{
    fake_start(&fake);
    chmod(fake.path, 0);
    if (geteuid() == 0 && seteuid(65534) != 0)
        ck_abort();
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    options.socket = fake.path;
    ck_assert_int_eq(cpattn_client_create(&options, &client, &error), CPATTN_PERMISSION_DENIED);
    ck_assert_ptr_nonnull(strstr(error.text, "may not be used by this user; members of the group"));
    if (getuid() == 0 && seteuid(0) != 0)
        ck_abort();
}
END_TEST

// ---- a daemon that goes away --------------------------------------------------------------------

START_TEST(requests_in_flight_are_answered_when_the_daemon_dies)
{
    enum { MANY = 50 };
    struct cpattn_case *c = fake_case("hold");
    struct cpattn_request *requests[MANY];
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(cpattn_submit(client, c, 0, &requests[i], &error), CPATTN_OK);
    while (fake_held(client) != MANY)
        usleep(1000);
    fake_stop(&fake);
    for (int i = 0; i < MANY; i++) {
        ck_assert(cpattn_wait(requests[i], UINT64_MAX));
        ck_assert_int_eq(cpattn_collect(requests[i], &result, &error), CPATTN_UNAVAILABLE);
        ck_assert_ptr_null(result);
        cpattn_request_destroy(requests[i]);
    }
    cpattn_case_destroy(c);
}
END_TEST

START_TEST(the_client_finds_the_next_daemon)
{
    assert_runs();
    fake_stop(&fake);
    ck_assert_int_eq(run("pass"), CPATTN_UNAVAILABLE);
    ck_assert_int_eq(run("pass"), CPATTN_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.text, "start it with"));
    unlink(fake.path);
    ck_assert_int_eq(cpattn_describe(client, 0, &(struct cpattn_description *){0}, &error),
                     CPATTN_UNAVAILABLE);
    fake_start(&fake);
    assert_runs();
}
END_TEST

// A new daemon does not get the requests of the previous one.
START_TEST(no_request_is_repeated)
{
    struct cpattn_case *c = fake_case("hold");
    struct cpattn_request *request;
    ck_assert_int_eq(cpattn_submit(client, c, 0, &request, &error), CPATTN_OK);
    while (fake_held(client) != 1)
        usleep(1000);
    fake_stop(&fake);
    fake_start(&fake);
    ck_assert(cpattn_wait(request, UINT64_MAX));
    ck_assert_int_eq(cpattn_collect(request, &result, &error), CPATTN_UNAVAILABLE);
    ck_assert_int_eq(run("die"), CPATTN_UNAVAILABLE);
    ck_assert_int_eq(waitpid(fake.pid, NULL, 0), fake.pid);
    fake.pid = 0;
    close(fake.end_fd);
    fake_start(&fake);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(fake_runs(client), 0);
        ck_assert_int_eq(fake_connections(client), 1); // lost ones are not opened again
        usleep(5000);
    }
    cpattn_request_destroy(request);
    cpattn_case_destroy(c);
}
END_TEST

static struct cpattn_request *hold(struct cpattn_case *c, int held)
{
    struct cpattn_request *request;
    ck_assert_int_eq(cpattn_submit(client, c, 0, &request, &error), CPATTN_OK);
    while (fake_held(client) != held)
        usleep(1000);
    return request;
}

// All connections end with the daemon, but the client may notice the end of an idle one late.
START_TEST(after_a_lost_connection_the_idle_ones_are_not_used)
{
    struct cpattn_case *c = fake_case("hold");
    struct cpattn_request *request = hold(c, 1);
    struct cpattn_request *other = hold(c, 2);
    ck_assert_int_eq(cpattn_cancel(request, &error), CPATTN_OK);
    ck_assert(cpattn_wait(
        request,
        UINT64_MAX)); // now two connections are idle: that of the request and that of the cancel
    int connections = fake_connections(client);
    ck_assert_int_eq(fake_connections(client), connections);
    ck_assert_int_eq(run("oversized"), CPATTN_UNAVAILABLE);
    ck_assert_int_eq(fake_connections(client), connections + 1);
    ck_assert_int_eq(fake_connections(client), connections + 1);
    ck_assert_int_eq(fake_held(client), 1); // a request on another connection continues
    cpattn_request_destroy(request);
    cpattn_request_destroy(other);
    cpattn_case_destroy(c);
}
END_TEST

START_TEST(a_stopped_daemon_costs_the_time_limit)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    options.grace_ns = 30 * MS;
    options.connect_timeout_ns = 1000 * MS; // the second request connects to the stopped daemon
    struct cpattn_client *hasty = fake_client(&fake, &options);
    struct cpattn_case *c = fake_case("stop");
    ck_assert_int_eq(cpattn_run(hasty, c, 30 * MS, &result, &error), CPATTN_DEADLINE_EXCEEDED);
    ck_assert_int_eq(cpattn_describe(hasty, 30 * MS, &(struct cpattn_description *){0}, &error),
                     CPATTN_DEADLINE_EXCEEDED);
    kill(fake.pid, SIGCONT);
    ck_assert_int_eq(fake_runs(hasty), 1);
    cpattn_case_destroy(c);
    cpattn_client_destroy(hasty);
}
END_TEST

static atomic_bool storm_over;

// Sends requests repeatedly; counts answers, and errors other than a lost daemon.
static void *ask_through_the_storm(void *arg)
{
    int *counts = arg;
    struct cpattn_case *c = fake_case("pass");
    while (!storm_over) {
        struct cpattn_result *mine;
        enum cpattn_status status = cpattn_run(client, c, 0, &mine, NULL);
        counts[status == CPATTN_OK ? 0 : status == CPATTN_UNAVAILABLE ? 1 : 2]++;
        cpattn_result_destroy(mine);
    }
    cpattn_case_destroy(c);
    return NULL;
}

START_TEST(threads_survive_dying_daemons)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int counts[THREADS][3] = {{0}};
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_through_the_storm, counts[i]), 0);
    for (int i = 0; i < 20; i++) {
        usleep(20000);
        fake_stop(&fake);
        fake_start(&fake);
    }
    storm_over = true;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_gt(counts[i][0], 0);
        ck_assert_int_eq(counts[i][2], 0);
    }
    assert_runs();
}
END_TEST

// ---- memory -------------------------------------------------------------------------------------

// The linker redirects calls of malloc() and calloc() in the library to these functions. They count
// the calls of all threads, and let a chosen one fail.
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static atomic_int until_failure = -1; // -1: none fails

static bool allocation_fails(void)
{
    int left = until_failure;
    while (left >= 0 && !atomic_compare_exchange_weak(&until_failure, &left, left - 1))
        ;
    return left == 0;
}

void *__wrap_malloc(size_t size)
{
    return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(count, size);
}

// Creates a client, makes one request of each type and destroys the client. Stops at the first
// call that fails and returns its status.
static enum cpattn_status live(const char *label)
{
    struct cpattn_client *mine;
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    struct cpattn_case *c = cpattn_case_create();
    enum cpattn_status status = CPATTN_RESOURCE_EXHAUSTED;
    options.socket = fake.path;
    result = NULL;
    if (c && cpattn_case_set(c, "model", label, NULL) == CPATTN_OK)
        status = cpattn_client_create(&options, &mine, &error);
    if (status == CPATTN_OK) {
        struct cpattn_description *description;
        struct cpattn_daemon_status *daemon;
        status = cpattn_describe(mine, 0, &description, &error);
        if (status == CPATTN_OK) {
            cpattn_description_destroy(description);
            status = cpattn_query_status(mine, 0, &daemon, &error);
        }
        if (status == CPATTN_OK) {
            cpattn_daemon_status_destroy(daemon);
            status = cpattn_run(mine, c, 0, &result, &error);
        }
        cpattn_client_destroy(mine);
    }
    cpattn_case_destroy(c);
    return status;
}

static void assert_torture(const char *label, enum cpattn_status expected)
{
    int n = 0;
    bool all_granted = false;
    for (; !all_granted; n++) {
        until_failure = n;
        enum cpattn_status status = live(label);
        all_granted = until_failure >= 0;
        until_failure = -1;
        // If an allocation fails, an ABORTED answer may lack the states of the ranks.
        bool told = status == CPATTN_RESOURCE_EXHAUSTED || (status == expected && !result);
        ck_assert_msg(all_granted ? status == expected && result : told, "%d: %s", n, error.text);
        cpattn_result_destroy(result);
    }
    ck_assert_int_gt(n, 15);
}

START_TEST(any_allocation_may_fail)
{
    fake_start(&fake);
    assert_torture("pass", CPATTN_OK);
    assert_torture("failure", CPATTN_ABORTED);
}
END_TEST

// ---- fork ---------------------------------------------------------------------------------------

// For a child process: if the condition is false, returns 1 to 251, by the line number.
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 251 + 1;                                                             \
    } while (0)
#define REFUSED(call) HOLDS((call) == CPATTN_FAILED_PRECONDITION)

static int in_child(struct cpattn_request *request, struct cpattn_case *c)
{
    struct cpattn_options options = {.size = sizeof options, .socket = fake.path};
    struct cpattn_request *another;
    struct cpattn_description *description;
    struct cpattn_daemon_status *status;
    struct cpattn_client *mine;
    REFUSED(cpattn_run(client, c, 0, &result, &error));
    HOLDS(strstr(error.text, "cannot be used in its child") != NULL && result == NULL);
    REFUSED(cpattn_submit(client, c, 0, &another, &error));
    REFUSED(cpattn_describe(client, 0, &description, &error));
    REFUSED(cpattn_query_status(client, 0, &status, &error));
    REFUSED(cpattn_cancel(request, &error));
    REFUSED(cpattn_cancel_id(client, "no id", 0, &error));
    REFUSED(cpattn_order(client, CPATTN_ORDER_DRAIN, -1, 0, NULL, &error));
    REFUSED(cpattn_attend(client, c, &(struct cpattn_tensors){0}, 0, &result, &error));
    HOLDS(cpattn_poll(request) && cpattn_wait(request, UINT64_MAX));
    REFUSED(cpattn_collect(request, &result, &error));
    HOLDS(cpattn_wait_any(client, UINT64_MAX) == NULL);
    REFUSED(cpattn_client_create(&options, &mine, &error));
    HOLDS(strstr(error.text, "must exec") != NULL);
    HOLDS(cpattn_case_set(c, "heads", "16", &error) == CPATTN_OK);
    cpattn_request_destroy(request);
    cpattn_client_destroy(client);
    return 0;
}

START_TEST(a_forked_child_is_refused)
{
    struct cpattn_case *c = fake_case("delay:100");
    struct cpattn_request *request;
    int status;
    ck_assert_int_eq(cpattn_submit(client, c, 0, &request, &error), CPATTN_OK);
    pid_t pid = fork();
    if (pid == 0)
        _exit(in_child(request, c));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert(cpattn_wait(request, UINT64_MAX)); // the parent's request continues
    ck_assert_int_eq(cpattn_collect(request, &result, &error), CPATTN_OK);
    cpattn_result_destroy(result);
    cpattn_request_destroy(request);
    cpattn_case_destroy(c);
    assert_runs();
}
END_TEST

// ---- lifetimes ----------------------------------------------------------------------------------

static int entries(const char *folder)
{
    int count = 0;
    DIR *directory = opendir(folder);
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

// Waits up to 5 s: nng closes the last descriptor shortly after the end of the client.
static void assert_no_more(const char *folder, int before)
{
    for (int i = 0; i < 5000 && entries(folder) > before; i++)
        usleep(1000);
    ck_assert_int_le(entries(folder), before);
}

static void live_once(void)
{
    client = fake_client(&fake, NULL);
    assert_runs();
    cpattn_client_destroy(client);
}

START_TEST(a_thousand_clients_leak_nothing)
{
    fake_start(&fake);
    live_once(); // opens the descriptors and threads that nng keeps
    int threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
    for (int i = 0; i < 1000; i++)
        live_once();
    assert_no_more("/proc/self/fd", descriptors);
    assert_no_more("/proc/self/task", threads);
    client = fake_client(&fake, NULL);
    ck_assert_int_eq(fake_runs(client), 1001);
    cpattn_client_destroy(client);
}
END_TEST

// Threads of the library block all signals, so that a signal reaches a thread of the program.
START_TEST(signal_handlers_are_unchanged)
{
    sigset_t mine;
    siginfo_t info;
    fake_start(&fake);
    client = fake_client(&fake, NULL);
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    ck_assert_int_eq(sigprocmask(SIG_BLOCK, &mine, NULL), 0);
    // If a thread of the library did not block SIGUSR1, the first signal would end the process.
    for (int i = 0; i < 20; i++) {
        kill(getpid(), SIGUSR1);
        ck_assert_int_eq(sigwaitinfo(&mine, &info), SIGUSR1);
    }
    assert_runs();
    cpattn_client_destroy(client);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_faults");
    TCase *connecting = tcase_create("connecting");
    tcase_set_timeout(connecting, 30);
    tcase_add_checked_fixture(connecting, folder_setup, folder_teardown);
    tcase_add_test(connecting, without_a_daemon_the_error_tells_how_to_start_one);
    tcase_add_test(connecting, a_listener_that_hangs_costs_the_time_to_connect);
    tcase_add_test(connecting, a_server_with_garbage);
    tcase_add_test(connecting, a_server_with_another_protocol);
    tcase_add_test(connecting, options_are_checked);
    tcase_add_test(connecting, the_environment_names_the_socket);
    tcase_add_test(connecting, missing_permissions_are_reported);
    suite_add_tcase(suite, connecting);

    TCase *death = tcase_create("death");
    tcase_set_timeout(death, 30);
    tcase_add_checked_fixture(death, setup, teardown);
    tcase_add_test(death, requests_in_flight_are_answered_when_the_daemon_dies);
    tcase_add_test(death, the_client_finds_the_next_daemon);
    tcase_add_test(death, no_request_is_repeated);
    tcase_add_test(death, after_a_lost_connection_the_idle_ones_are_not_used);
    tcase_add_test(death, a_stopped_daemon_costs_the_time_limit);
    tcase_add_test(death, threads_survive_dying_daemons);
    tcase_add_test(death, a_forked_child_is_refused);
    suite_add_tcase(suite, death);

    TCase *lifetimes = tcase_create("lifetimes");
    tcase_set_timeout(lifetimes, 120);
    tcase_add_checked_fixture(lifetimes, folder_setup, folder_teardown);
    tcase_add_test(lifetimes, a_thousand_clients_leak_nothing);
    tcase_add_test(lifetimes, any_allocation_may_fail);
    tcase_add_test(lifetimes, signal_handlers_are_unchanged);
    suite_add_tcase(suite, lifetimes);
    return runner_run(suite);
}
