// SPDX-License-Identifier: Apache-2.0
// The server by itself, in the process of the test: clients are sockets written to and read by
// hand, time is told, and allocations of the server can be made to fail. One scene to a process.
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

// What the handler was told, in order.
extern struct told told[REQUESTS_MAX];
extern int told_count;
extern uint32_t gone[64];
extern int gone_count;
extern bool echo; // it answers at once

// Until one fails; negative: none does. Nothing of Check's may be called while it is set.
extern int allocations_left;

// Before and after each test: the loop and a folder, the end of the server.
void scene_setup(void);
void scene_teardown(void);

// Without a limit of one user's own, and with it; all connections here are one user's.
void server_begin(int requests_max, int clients_max);
void server_begin_shared(int requests_max, int clients_max, int user_clients_max);

// Runs the loop so many times without waiting.
void rounds(int count);

// Runs the loop until this many requests were told (connections were gone), and a little on.
void await(const int *count, int expected);

// A tick after others at their usual pace, so that the server does not think that it was late.
void tick_at(uint64_t now_ns);

// Ends the exchange of the i-th request.
void told_reply(int i, const void *data, size_t size);
void told_drop(int i);

// A connection, without and with the greetings.
int client_connect(void);
int client_greet(void);

// Sends all of it, while the server runs.
void client_send(int fd, const void *data, size_t size);

// Reads so much, while the server runs; false when the connection ends before that.
bool client_read(int fd, void *data, size_t size);

// A frame with a request of this number and text; returns its size.
size_t request_write(uint8_t *bytes, uint8_t number, const char *text);
void client_ask(int fd, uint8_t number, const char *text);

// The next reply has this number and text.
void client_expect(int fd, uint8_t number, const char *text);

// Whether the connection has ended and nothing is left to read.
bool client_closed(int fd);

// Somebody new gets an answer.
void assert_served(void);

#endif
