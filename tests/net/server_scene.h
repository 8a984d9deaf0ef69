// SPDX-License-Identifier: Apache-2.0
// The server alone, in the process of the test. Tests write and read the sockets of clients by
// hand, tell the server the time, and can make its allocations fail. One scene for each process.
#ifndef CPATTN_TESTS_NET_SERVER_SCENE_H
#define CPATTN_TESTS_NET_SERVER_SCENE_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/net/server.h"
#include "tests/support/runner.h"

#define GREETING     "\0SP\0\0\x30\0\0"
#define REQUESTS_MAX 8192

struct told {
    struct exchange *exchange; // NULL: ended
    uint32_t client;
    size_t size;
    char text[8];
};

extern struct ev_loop *loop;
extern struct server *server;

// The calls of the handler, in order.
extern struct told told[REQUESTS_MAX];
extern int told_count;
extern uint32_t gone[64];
extern int gone_count;
extern bool echo; // the handler answers at once

// Allocations until one fails; negative: none fails. Do not call Check while it is set.
extern int allocations_left;

// Before and after each test.
void scene_setup(void);
void scene_teardown(void);

// Starts the server; server_begin_shared() with a limit for each user. All connections belong to
// one user.
void server_begin(int requests_max, int clients_max);
void server_begin_shared(int requests_max, int clients_max, int user_clients_max);

// Runs the loop this many times without waiting.
void rounds(int count);

// Runs the loop until this many requests arrived (connections ended), and a little longer.
void await(const int *count, int expected);

// Two ticks, 1 ms apart. The server may take the first one for the end of a stall of the loop.
void tick_at(uint64_t now_ns);

// Ends the exchange of the i-th request, with a reply or without one.
void told_reply(int i, const void *data, size_t size);
void told_drop(int i);

// Makes a connection, without or with greetings.
int client_connect(void);
int client_greet(void);

// Sends all bytes while the server runs.
void client_send(int fd, const void *data, size_t size);

// Reads this many bytes while the server runs; false if the connection ends first.
bool client_read(int fd, void *data, size_t size);

// A frame with a request of this number and text; returns its size.
size_t request_write(uint8_t *bytes, uint8_t number, const char *text);
void client_ask(int fd, uint8_t number, const char *text);

// The next reply has this number and text.
void client_expect(int fd, uint8_t number, const char *text);

// True if the connection has ended and nothing is left to read.
bool client_closed(int fd);

// A new client gets an answer.
void assert_served(void);

#endif
