// SPDX-License-Identifier: Apache-2.0
// Cases over several hosts: the same bits as on one host, and faults of hosts. Agents and daemon
// run on this machine and connect over loopback.
#include "tests/support/runner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/nodes/hosts_fixture.h"
#include "tests/support/port.h"

// Ranks end much sooner after the end of their agent or daemon.
#define GONE_MS 20000

static struct hosts h;

static void setup(void)
{
    hosts_start(&h);
    hosts_agent_start(&h, 1);
    hosts_agent_start(&h, 2);
}

static void teardown(void)
{
    hosts_stop(&h);
}

static void await_no_ranks(int host)
{
    for (int waited_ms = 0; hosts_rank_count(&h, host) > 0; waited_ms++) {
        ck_assert_msg(waited_ms < GONE_MS, "ranks of host %d do not end", host);
        usleep(1000);
    }
}

// ---- cases -------------------------------------------------------------------------------------

static uint64_t digest_of(struct wire_request request, int nodes)
{
    struct wire_request fresh = daemon_request(METHOD_RUN);
    request.id = fresh.id;
    request.run.nodes = nodes;
    struct wire_reply reply = daemon_call(&h.daemon, &request);
    expect_status(&reply, STATUS_OK);
    ck_assert_int_eq(reply.result.verdict, VERDICT_PASS);
    uint64_t digest = reply.result.digest;
    wire_reply_fini(&reply);
    return digest;
}

static void same_on(int world_size, int nodes, enum case_comm comm)
{
    struct wire_request request = hosts_request(world_size, 1);
    request.run.comm = comm;
    request.run.heads = request.run.kv_heads = world_size;
    request.run.seqlen_q = request.run.seqlen_kv = 32 * world_size;
    uint64_t one = digest_of(request, 1);
    ck_assert_uint_ne(one, 0);
    ck_assert_uint_eq(digest_of(request, nodes), one);
}

// Checks the choice of comm=auto with as many key heads as ranks, so that a group is all ranks of a
// host.
static void auto_is(enum case_comm comm, int world_size, int nodes)
{
    struct wire_request request = hosts_request(world_size, nodes);
    request.run.heads = request.run.kv_heads = world_size;
    request.run.comm = COMM_AUTO;
    uint64_t chosen = digest_of(request, nodes);
    request.run.comm = comm;
    if (comm == COMM_A2A_P2P)
        request.run.a2a_size = world_size / nodes;
    ck_assert_uint_eq(digest_of(request, nodes), chosen);
}

START_TEST(test_cases_give_the_bits_of_one_host)
{
    same_on(2, 2, COMM_P2P);
    same_on(4, 2, COMM_P2P);
    same_on(4, 2, COMM_ALL_GATHER);
    same_on(6, 3, COMM_A2A);
    same_on(8, 2, COMM_A2A_P2P);
    auto_is(COMM_A2A_P2P, 8, 2);
    auto_is(COMM_A2A, 4, 1);
    auto_is(COMM_P2P, 2, 2);
    ck_assert_int_gt(hosts_rank_count(&h, 1), 0);
}
END_TEST

// ---- faults ------------------------------------------------------------------------------------

// Begins a case over all hosts and waits until it runs.
static struct call long_begin(void)
{
    const struct wire_request request = hosts_request_long(6, 3);
    struct call call = daemon_call_begin(&h.daemon, &request);
    daemon_await_running(&h.daemon, 1);
    return call;
}

static void long_end(struct call *call, const char *text)
{
    struct wire_reply reply = daemon_call_end(call);
    expect_status(&reply, STATUS_ABORTED);
    expect_text(reply.message, text);
    wire_reply_fini(&reply);
}

START_TEST(test_rank_of_another_host_is_killed)
{
    struct call call = long_begin();
    hosts_signal_rank(&h, 2, 6, 4, SIGKILL);
    long_end(&call, "rank 4 of 6 was killed by signal 9 (SIGKILL)");
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

START_TEST(test_rank_of_another_host_is_killed_at_rest)
{
    hosts_run_and_pass(&h, 6, 3);
    hosts_signal_rank(&h, 1, 6, 2, SIGKILL);
    hosts_await_logged(&h, "pool_kill world=6", 1);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

START_TEST(test_rank_of_another_host_is_stopped)
{
    struct wire_request request = hosts_request_long(6, 3);
    request.timeout_ns = UINT64_C(10000000000);
    hosts_run_and_pass(&h, 6, 3); // the time limit must not cover the start of the ranks
    struct call call = daemon_call_begin(&h.daemon, &request);
    daemon_await_running(&h.daemon, 1);
    hosts_signal_rank(&h, 2, 6, 5, SIGSTOP);
    struct wire_reply reply = daemon_call_end(&call);
    expect_status(&reply, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply.message, "rank 5");
    wire_reply_fini(&reply);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

// The last event about hosts.
static void told_is(const char *text)
{
    struct wire_request request = daemon_request(METHOD_WATCH);
    request.watch.recent = 1;
    request.watch.kinds = 1 << EVENT_DAEMON;
    struct wire_reply reply = daemon_call(&h.daemon, &request);
    expect_status(&reply, STATUS_OK);
    ck_assert_int_eq(reply.events.count, 1);
    ck_assert_str_eq(reply.events.list[0].text, text);
    wire_reply_fini(&reply);
}

START_TEST(test_agent_is_killed)
{
    struct call call = long_begin();
    hosts_agent_signal(&h, 2, SIGKILL);
    long_end(&call, "host c was lost");
    told_is("host c is lost");
    hosts_run_and_pass(&h, 4, 2); // the other hosts run cases
    hosts_agent_start(&h, 2);
    hosts_run_and_pass(&h, 6, 3);
    told_is("host c is there");
}
END_TEST

// Loses the host of two cases while the second one, with this time limit, waits for the first.
// False: the limit passed before.
static bool waits_in_vain(uint64_t timeout_ns)
{
    struct call call = long_begin();
    struct wire_request request = hosts_request(6, 3);
    request.timeout_ns = timeout_ns;
    struct call next = daemon_call_begin(&h.daemon, &request);
    hosts_agent_signal(&h, 2, SIGKILL);
    long_end(&call, "host c was lost");
    struct wire_reply reply = daemon_call_end(&next);
    if (reply.status != STATUS_UNAVAILABLE) // the request came after the loss
        expect_status(&reply, STATUS_DEADLINE_EXCEEDED);
    bool told = strstr(reply.message, "while there was no host c") != NULL;
    wire_reply_fini(&reply);
    return told;
}

START_TEST(test_case_waits_for_a_host)
{
    for (uint64_t ns = 1000000000; !waits_in_vain(ns); ns *= 2) {
        ck_assert_uint_lt(ns, UINT64_C(16000000000));
        hosts_agent_start(&h, 2);
    }
    const struct wire_request request = hosts_request(6, 3);
    struct wire_reply reply = daemon_call(&h.daemon, &request);
    expect_status(&reply, STATUS_UNAVAILABLE);
    expect_text(reply.message, "host c is lost");
    wire_reply_fini(&reply);
    hosts_agent_start(&h, 2);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

START_TEST(test_agent_is_stopped)
{
    struct call call = long_begin();
    hosts_agent_signal(&h, 2, SIGSTOP);
    long_end(&call, "host c was lost");
    hosts_run_and_pass(&h, 4, 2);
    hosts_agent_signal(&h, 2, SIGCONT);
    hosts_await_logged(&h, "host_back host=c", 2);
    ck_assert_int_eq(hosts_rank_count(&h, 2), 0);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

START_TEST(test_daemon_is_killed)
{
    int status;
    struct call call = long_begin();
    kill(h.daemon.pid, SIGKILL);
    await_no_ranks(1);
    await_no_ranks(2);
    nng_aio_cancel(call.aio);
    nng_aio_wait(call.aio);
    nng_aio_free(call.aio);
    nng_ctx_close(call.context);
    nng_close(h.daemon.client);
    h.daemon.connected = false;
    ck_assert_int_eq(waitpid(h.daemon.pid, &status, 0), h.daemon.pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    hosts_start(&h);
    hosts_await_logged(&h, "host_back", 2);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

// Starts a process with the name of a rank. Its arguments name another parent than its real one.
static pid_t leftover_start(char *path, size_t size)
{
    snprintf(path, size, "%s/cpattn-rank", h.daemon.folder);
    ck_assert_int_eq(symlink("/bin/sleep", path), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(path, "cpattn-rank", "1000", "1", "1", "1", (char *)NULL);
        _exit(127);
    }
    char name[64], comm[32] = "";
    snprintf(name, sizeof(name), "/proc/%d/comm", (int)pid);
    while (strcmp(comm, "cpattn-rank\n") != 0) {
        FILE *file = fopen(name, "re");
        ck_assert_ptr_nonnull(file);
        ck_assert_ptr_nonnull(fgets(comm, sizeof(comm), file));
        fclose(file);
    }
    return pid;
}

START_TEST(test_agent_waits_for_ranks_of_the_one_before)
{
    char path[128], log[160];
    struct call call = long_begin();
    hosts_agent_signal(&h, 2, SIGKILL);
    pid_t left = leftover_start(path, sizeof(path));
    long_end(&call, "host c was lost");
    hosts_agent_spawn(&h, 2, h.port, h.token);
    snprintf(log, sizeof(log), "%s/agent-c", h.daemon.folder);
    hosts_await_text(log, "ranks of an agent before this one", 1);
    kill(left, SIGKILL);
    ck_assert_int_eq(waitpid(left, NULL, 0), left);
    hosts_await_logged(&h, "host_back host=c", 2);
    hosts_run_and_pass(&h, 6, 3);
    unlink(path);
}
END_TEST

// ---- the connection ----------------------------------------------------------------------------

// Relays data in both directions until it is killed. While it is stopped, the connection is cut.
static void relay(int listener, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (;;) {
        int a = accept(listener, NULL, NULL), b = socket(AF_INET, SOCK_STREAM, 0);
        bool open = connect(b, (struct sockaddr *)&to, sizeof(to)) == 0;
        while (open) {
            struct pollfd ends[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
            char data[65536];
            poll(ends, 2, -1);
            for (int i = 0; i < 2 && open; i++) {
                ssize_t got = ends[i].revents ? read(ends[i].fd, data, sizeof(data)) : -2;
                open = got == -2 || (got > 0 && write(ends[1 - i].fd, data, (size_t)got) == got);
            }
        }
        close(a);
        close(b);
    }
}

static pid_t relay_start(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    const int on = 1;
    *port = port_free();
    at.sin_port = htons((uint16_t)*port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        relay(listener, h.port);
    }
    close(listener);
    return pid;
}

START_TEST(test_connection_is_cut_and_heals)
{
    int port;
    pid_t cable = relay_start(&port);
    hosts_agent_signal(&h, 2, SIGTERM);
    hosts_agent_spawn(&h, 2, port, h.token);
    hosts_await_logged(&h, "host_back host=c", 2);
    struct call call = long_begin();
    kill(cable, SIGSTOP);
    long_end(&call, "host c was lost");
    await_no_ranks(2); // the agent ends them without an order
    hosts_run_and_pass(&h, 4, 2);
    kill(cable, SIGCONT);
    hosts_await_logged(&h, "host_back host=c", 3);
    hosts_run_and_pass(&h, 6, 3);
    hosts_agent_signal(&h, 2, SIGTERM);
    kill(cable, SIGKILL);
    ck_assert_int_eq(waitpid(cable, NULL, 0), cable);
}
END_TEST

START_TEST(test_agent_with_another_token_is_refused)
{
    hosts_agent_signal(&h, 2, SIGTERM);
    hosts_agent_spawn(&h, 2, h.port, h.other_token);
    hosts_await_logged(&h, "agent_refused", 2); // the agent tries again
    ck_assert_int_eq(hosts_lines_count(h.daemon.log, "agent_gone"), 0);
    hosts_agent_signal(&h, 2, SIGKILL);
    hosts_agent_start(&h, 2);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

// The two token files change places.
static void tokens_swap(void)
{
    char path[160];
    snprintf(path, sizeof(path), "%s.new", h.token);
    ck_assert_int_eq(rename(h.token, path), 0);
    ck_assert_int_eq(rename(h.other_token, h.token), 0);
    ck_assert_int_eq(rename(path, h.other_token), 0);
}

START_TEST(test_token_is_renewed)
{
    hosts_agent_signal(&h, 2, SIGTERM);
    tokens_swap();
    kill(h.daemon.pid, SIGHUP);
    hosts_await_logged(&h, "reloaded ", 1);
    hosts_agent_spawn(&h, 2, h.port, h.other_token);
    hosts_await_logged(&h, "agent_refused", 1);
    hosts_agent_signal(&h, 2, SIGKILL);
    hosts_agent_start(&h, 2);
    hosts_run_and_pass(&h, 6, 3); // the other agent stays connected
}
END_TEST

START_TEST(test_agent_reads_its_token_again)
{
    tokens_swap();
    kill(h.daemon.pid, SIGHUP);
    hosts_await_logged(&h, "reloaded ", 1);
    hosts_agent_signal(&h, 1, SIGSTOP);
    hosts_await_logged(&h, "host_lost host=b", 1);
    hosts_agent_signal(&h, 1, SIGCONT);
    hosts_await_logged(&h, "host_back host=b", 2);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

// Sends bytes on a new connection and waits until the daemon closes it.
static void strange(int port, const void *data, size_t size)
{
    char answer[4096];
    int fd = connect_to(port);
    ck_assert_int_eq(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
    while (recv(fd, answer, sizeof(answer), 0) > 0)
        ;
    close(fd);
}

static int mesh_port_of(const char *host)
{
    char line[1024], text[64];
    int port = 0;
    FILE *file = fopen(h.daemon.log, "re");
    snprintf(text, sizeof(text), "host_back host=%s", host);
    while (fgets(line, sizeof(line), file))
        if (strstr(line, text))
            sscanf(strstr(line, "mesh_port="), "mesh_port=%d", &port);
    fclose(file);
    return port;
}

START_TEST(test_unknown_connections_are_closed)
{
    char bytes[4096];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)rand();
    strange(h.port, bytes, sizeof(bytes));
    strange(h.port, "\x08\0\0\0\x04\0\0\0\x01\0\0\0\x02\0\0\0", 16); // a beat too long
    strange(h.port, "\0\0\0\0\x02\0\0\0", 8);                        // WELCOME
    strange(mesh_port_of("b"), bytes, 32);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

START_TEST(test_unknown_connections_do_not_fill_the_log)
{
    int turns = 0;
    // Over more than a second: the lines that one second omits are counted in the next.
    for (; hosts_lines_count(h.daemon.log, "clients_log omitted=") == 0 && turns < 200; turns++) {
        for (int i = 0; i < 100; i++)
            strange(h.port, "\0\0\0\0\x02\0\0\0", 8); // WELCOME
        usleep(20000);
    }
    ck_assert_int_lt(turns, 200);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

// Silent connections are closed after 5 s. They do not delay an agent from another address.
START_TEST(test_one_address_does_not_keep_agents_out)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000009)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)h.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int held[40];
    char bytes[64];
    ssize_t got;
    hosts_agent_signal(&h, 1, SIGKILL);
    hosts_await_logged(&h, "host_lost host=b", 1);
    for (int i = 0; i < 40; i++) {
        held[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(bind(held[i], (struct sockaddr *)&from, sizeof(from)), 0);
        ck_assert_int_eq(connect(held[i], (struct sockaddr *)&to, sizeof(to)), 0);
    }
    hosts_agent_start(&h, 1);
    while ((got = recv(held[0], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        ;
    ck_assert_int_eq(got, -1); // the connection is still open
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_int_eq(recv(held[39], bytes, sizeof(bytes), 0), 0);
    for (int i = 0; i < 40; i++)
        close(held[i]);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

static void order_give(enum wire_order_kind kind, int host, int device, uint64_t out)
{
    struct wire_request request = daemon_request(METHOD_ORDER);
    request.order = (struct wire_order){.kind = kind, .device = device, .host = host};
    struct wire_reply reply = daemon_call(&h.daemon, &request);
    expect_status(&reply, STATUS_OK);
    ck_assert_uint_eq(reply.done, out);
    wire_reply_fini(&reply);
}

static void order_is_refused(int host, int device, const char *text)
{
    struct wire_request request = daemon_request(METHOD_ORDER);
    request.order = (struct wire_order){ORDER_DRAIN_DEVICE, device, host};
    struct wire_reply reply = daemon_call(&h.daemon, &request);
    expect_status(&reply, STATUS_INVALID_ARGUMENT);
    expect_text(reply.message, text);
    wire_reply_fini(&reply);
}

START_TEST(test_devices_of_another_host_are_drained)
{
    hosts_run_and_pass(&h, 6, 3);
    order_give(ORDER_DRAIN_DEVICE, 2, 1, 1);
    order_give(ORDER_DRAIN_DEVICE, 0, 1, 2);
    order_is_refused(2, 2, "c has devices 0, 1");
    order_is_refused(3, 0, "this daemon has 3");
    struct wire_request request = hosts_request(6, 3);
    struct wire_reply reply = daemon_call(&h.daemon, &request);
    expect_status(&reply, STATUS_UNAVAILABLE);
    expect_text(reply.message, "an administrator");
    wire_reply_fini(&reply);
    hosts_run_and_pass(&h, 2, 1); // on the host with all devices in use
    ck_assert_int_gt(hosts_rank_count(&h, 1), 0);
    order_give(ORDER_ENABLE_DEVICE, 2, 1, 1);
    order_give(ORDER_ENABLE_DEVICE, 0, 1, 0);
    hosts_run_and_pass(&h, 6, 3);
}
END_TEST

// ---- settings ----------------------------------------------------------------------------------

START_TEST(test_settings_that_do_not_go_together)
{
    const char *const bare[] = {"--hosts", "b=2", NULL};
    const char *const open[] = {"--hosts", "b=2", "--agents-listen", "tcp://127.0.0.1:1", NULL};
    const char *const none[] = {"--agents-listen", "tcp://127.0.0.1:1", NULL};
    const char *const twice[] = {"--hosts", "b=2,b=3", NULL};
    const char *const provider[] = {
        "--hosts",    "b=2",         "--agents-listen",     "tcp://127.0.0.1:1",
        "--provider", "p=/bin/p.so", "--agents-token-file", "/none",
        NULL};
    daemon_refuses(bare, "agents-listen");
    daemon_refuses(open, "agents-token-file");
    daemon_refuses(none, "hosts");
    daemon_refuses(twice, "--hosts: value 'b=2,b=3'");
    daemon_refuses(provider, "cannot have providers");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hosts");
    TCase *cases = tcase_create("cases");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, test_cases_give_the_bits_of_one_host);
    tcase_add_test(cases, test_rank_of_another_host_is_killed);
    tcase_add_test(cases, test_rank_of_another_host_is_killed_at_rest);
    tcase_add_test(cases, test_rank_of_another_host_is_stopped);
    tcase_add_test(cases, test_agent_is_killed);
    tcase_add_test(cases, test_case_waits_for_a_host);
    tcase_add_test(cases, test_devices_of_another_host_are_drained);
    tcase_add_test(cases, test_agent_is_stopped);
    tcase_add_test(cases, test_agent_waits_for_ranks_of_the_one_before);
    tcase_add_test(cases, test_daemon_is_killed);
    tcase_add_test(cases, test_connection_is_cut_and_heals);
    tcase_add_test(cases, test_agent_with_another_token_is_refused);
    tcase_add_test(cases, test_token_is_renewed);
    tcase_add_test(cases, test_agent_reads_its_token_again);
    tcase_add_test(cases, test_unknown_connections_are_closed);
    tcase_add_test(cases, test_unknown_connections_do_not_fill_the_log);
    tcase_add_test(cases, test_one_address_does_not_keep_agents_out);
    suite_add_tcase(s, cases);
    TCase *settings = tcase_create("settings");
    tcase_add_test(settings, test_settings_that_do_not_go_together);
    suite_add_tcase(s, settings);
    return runner_run(s);
}
