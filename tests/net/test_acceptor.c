// SPDX-License-Identifier: Apache-2.0
// Accepting connections: one in each round of the loop, and a pause while there are no descriptors.
#include "daemon/net/acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/runner.h"

#define CONNECTIONS 4

static struct ev_loop *loop;
static struct acceptor acceptor;
static struct sockaddr_in address;
static int listening, accepted, clients[CONNECTIONS];

static void on_accepted(void *context, int fd, const struct sockaddr_storage *from, socklen_t size)
{
    ck_assert_ptr_eq(context, &accepted);
    ck_assert_int_eq(from->ss_family, AF_INET);
    ck_assert_int_eq(size, sizeof(struct sockaddr_in));
    ck_assert_int_ne(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    accepted++;
    close(fd);
}

static void setup(void)
{
    socklen_t size = sizeof(address);
    address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    accepted = 0;
    loop = ev_loop_new(EVFLAG_AUTO);
    listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&address, &size), 0);
    ck_assert_int_eq(listen(listening, CONNECTIONS), 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(clients[i], (struct sockaddr *)&address, size), 0);
    }
    acceptor_start(&acceptor, loop, "agents", listening, on_accepted, &accepted);
}

static void teardown(void)
{
    acceptor_stop(&acceptor);
    ev_loop_destroy(loop);
    close(listening);
    for (int i = 0; i < CONNECTIONS; i++)
        close(clients[i]);
}

// The lowest descriptor that is free.
static int descriptor_next(void)
{
    int fd = dup(listening);
    close(fd);
    return fd;
}

// Lowers the limit so that no descriptor is free. Returns the usual limit, for
// descriptors_return().
static struct rlimit descriptors_take(void)
{
    struct rlimit usual, none;
    ev_run(loop, EVRUN_ONCE); // the loop has opened what it needs
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
    none = usual;
    none.rlim_cur = (rlim_t)descriptor_next();
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    return usual;
}

static void descriptors_return(struct rlimit usual)
{
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

START_TEST(one_is_accepted_in_a_round)
{
    for (int i = 1; i <= CONNECTIONS; i++) {
        ev_run(loop, EVRUN_ONCE);
        ck_assert_int_eq(accepted, i);
    }
    ev_run(loop, EVRUN_NOWAIT);
    ck_assert_int_eq(accepted, CONNECTIONS);
}
END_TEST

START_TEST(without_descriptors_it_pauses)
{
    struct rlimit usual = descriptors_take();
    ev_run(loop, EVRUN_ONCE);
    ck_assert_int_eq(accepted, 1);
    ck_assert(!ev_is_active(&acceptor.readable));
    ck_assert(ev_is_active(&acceptor.again));
    descriptors_return(usual);
    while (accepted < CONNECTIONS)
        ck_assert(ev_run(loop, EVRUN_ONCE));
    ck_assert(ev_is_active(&acceptor.readable));
}
END_TEST

// Runs the loop until one pause is over.
static void pause_pass(void)
{
    ev_run(loop, EVRUN_ONCE);
    ck_assert(ev_is_active(&acceptor.again));
    while (ev_is_active(&acceptor.again))
        ev_run(loop, EVRUN_ONCE);
}

// Number of lines in the log that name the port.
static int lines_logged(FILE *log)
{
    char line[256];
    int count = 0;
    rewind(log);
    while (fgets(line, sizeof(line), log))
        count += strstr(line, " accept port=agents error=\"Too many open files\"\n") != NULL;
    return count;
}

START_TEST(lack_of_descriptors_is_logged_once)
{
    FILE *log = tmpfile();
    ck_assert_ptr_nonnull(log);
    ck_assert_int_eq(dup2(fileno(log), STDERR_FILENO), STDERR_FILENO);
    struct rlimit usual = descriptors_take();
    pause_pass();
    pause_pass();
    ck_assert_int_eq(lines_logged(log), 1);
    descriptors_return(usual);
    while (accepted < 2)
        ev_run(loop, EVRUN_ONCE);
    usual = descriptors_take();
    pause_pass();
    ck_assert_int_eq(accepted, 3); // after it, the next lack is logged again
    ck_assert_int_eq(lines_logged(log), 2);
    descriptors_return(usual);
    fclose(log);
}
END_TEST

START_TEST(it_stops_during_a_pause_and_before_its_start)
{
    struct acceptor never = {.loop = NULL};
    struct rlimit usual = descriptors_take();
    ev_run(loop, EVRUN_ONCE);
    descriptors_return(usual);
    acceptor_stop(&acceptor);
    acceptor_stop(&acceptor);
    acceptor_stop(&never);
    ck_assert(!ev_run(loop, EVRUN_ONCE)); // the loop has nothing to wait for
    ck_assert_int_eq(accepted, 1);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("acceptor");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, one_is_accepted_in_a_round);
    tcase_add_test(all, without_descriptors_it_pauses);
    tcase_add_test(all, lack_of_descriptors_is_logged_once);
    tcase_add_test(all, it_stops_during_a_pause_and_before_its_start);
    suite_add_tcase(s, all);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
