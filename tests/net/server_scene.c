// SPDX-License-Identifier: Apache-2.0
#include "tests/net/server_scene.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"

#define ROUNDS_MAX 100000

struct ev_loop *loop;
struct server *server;
struct told told[REQUESTS_MAX];
int told_count, gone_count;
uint32_t gone[64];
bool echo;

static char folder[32], path[64];

// ---- allocation that fails ---------------------------------------------------------------------

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *data, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *data, size_t size);

int allocations_left = -1; // number until one fails; negative: none fails

static bool allocation_fails(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

void *__wrap_malloc(size_t size)
{
    return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *data, size_t size)
{
    return allocation_fails() ? NULL : __real_realloc(data, size);
}

// ---- the scene ---------------------------------------------------------------------------------

static void on_request(void *context, struct exchange *exchange, const struct peer *peer,
                       const void *data, size_t size)
{
    if (allocations_left < 0) { // Check allocates
        ck_assert_ptr_eq(context, &told_count);
        ck_assert_int_lt(told_count, REQUESTS_MAX);
        ck_assert_int_eq(peer->uid, getuid());
        ck_assert_int_eq(peer->pid, getpid());
        for (int i = 0; i < gone_count; i++)
            ck_assert_uint_ne(gone[i], peer->client);
    }
    struct told *t = &told[told_count++];
    *t = (struct told){.exchange = exchange, .client = peer->client, .size = size};
    memcpy(t->text, data, size < sizeof(t->text) ? size : sizeof(t->text) - 1);
    if (echo) {
        t->exchange = NULL;
        server_reply(exchange, data, size);
    }
}

static void on_gone(void *context, uint32_t client)
{
    (void)context;
    if (gone_count == 64)
        abort();
    gone[gone_count++] = client;
}

void server_begin(int requests_max, int clients_max)
{
    server_begin_shared(requests_max, clients_max, clients_max);
}

void server_begin_shared(int requests_max, int clients_max, int user_clients_max)
{
    const struct server_config config = {.path = path,
                                         .requests_max = requests_max,
                                         .clients_max = clients_max,
                                         .user_clients_max = user_clients_max,
                                         .client_timeout_ns = UINT64_C(10) * NS_PER_S};
    const struct server_handler handler = {&told_count, on_request, on_gone};
    struct error error;
    ck_assert_msg(server_create(loop, &config, &handler, &server, &error) == STATUS_OK, "%s",
                  error.text);
}

void scene_setup(void)
{
    log_init(LOG_LEVEL_ERROR);
    signal(SIGPIPE, SIG_IGN);
    strcpy(folder, "/tmp/cpattn-server-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/socket", folder);
    loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    ck_assert_ptr_nonnull(loop);
}

void scene_teardown(void)
{
    server_destroy(server);
    server = NULL;
    ev_loop_destroy(loop);
    ck_assert_int_eq(rmdir(folder), 0); // socket and lock are gone
}

void rounds(int count)
{
    for (int i = 0; i < count; i++)
        ev_run(loop, EVRUN_NOWAIT);
}

void await(const int *count, int expected)
{
    for (int i = 0; *count < expected; i++) {
        ck_assert_msg(i < ROUNDS_MAX, "%d instead of %d", *count, expected);
        rounds(1);
    }
    rounds(5);
    ck_assert_int_eq(*count, expected);
}

void tick_at(uint64_t now_ns)
{
    server_tick(server, now_ns);
    server_tick(server, now_ns + NS_PER_MS);
    rounds(5);
}

void told_reply(int i, const void *data, size_t size)
{
    struct exchange *x = told[i].exchange;
    told[i].exchange = NULL;
    server_reply(x, data, size);
}

void told_drop(int i)
{
    struct exchange *x = told[i].exchange;
    told[i].exchange = NULL;
    server_drop(x);
}

// ---- clients -----------------------------------------------------------------------------------

int client_connect(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

void client_send(int fd, const void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t sent = send(fd, (const char *)data + at, size - at, MSG_NOSIGNAL);
        ck_assert_msg(sent > 0 || errno == EAGAIN, "%s", strerror(errno));
        at += sent > 0 ? (size_t)sent : 0;
        if (sent < 0)
            rounds(1);
    }
}

bool client_read(int fd, void *data, size_t size)
{
    size_t at = 0;
    for (int i = 0; at < size && i < ROUNDS_MAX; i++) {
        ssize_t got = recv(fd, (char *)data + at, size - at, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return false;
        at += got > 0 ? (size_t)got : 0;
        if (got < 0)
            rounds(1);
    }
    ck_assert_uint_eq(at, size);
    return true;
}

int client_greet(void)
{
    char greeting[8];
    int fd = client_connect();
    client_send(fd, GREETING, 8);
    ck_assert(client_read(fd, greeting, 8));
    ck_assert_mem_eq(greeting, "\0SP\0\0\x31\0\0", 8);
    return fd;
}

size_t request_write(uint8_t *bytes, uint8_t number, const char *text)
{
    size_t size = strlen(text);
    const uint8_t head[13] = {1, 0, 0, 0, 0, 0, 0, 0, (uint8_t)(4 + size), 0x80, 0, 0, number};
    memcpy(bytes, head, sizeof(head));
    memcpy(bytes + sizeof(head), text, size);
    return sizeof(head) + size;
}

void client_ask(int fd, uint8_t number, const char *text)
{
    uint8_t bytes[64];
    client_send(fd, bytes, request_write(bytes, number, text));
}

void client_expect(int fd, uint8_t number, const char *text)
{
    uint8_t expected[64], bytes[64];
    size_t size = request_write(expected, number, text);
    ck_assert_msg(client_read(fd, bytes, size), "the connection has ended");
    ck_assert_mem_eq(bytes, expected, size);
}

bool client_closed(int fd)
{
    char byte;
    rounds(5);
    ssize_t got = recv(fd, &byte, 1, 0);
    ck_assert_int_le(got, 0);
    return got == 0 || errno != EAGAIN;
}

void assert_served(void)
{
    bool before = echo;
    echo = true;
    int fd = client_greet();
    client_ask(fd, 9, "served");
    client_expect(fd, 9, "served");
    close(fd);
    rounds(5);
    echo = before;
}
