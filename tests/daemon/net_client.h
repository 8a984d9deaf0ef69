// SPDX-License-Identifier: Apache-2.0
// A daemon that listens on 127.0.0.1, and clients that send raw bytes. A function that cannot do
// its work fails the running test.
#ifndef CPATTN_TESTS_DAEMON_NET_CLIENT_H
#define CPATTN_TESTS_DAEMON_NET_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire.h"
#include "tests/daemon/daemon_fixture.h"

#define NET_TOKEN       "a token that nobody guesses, 42"
#define NET_GREETING    "\0SP\0\0\x30\0\0"
#define NET_MESSAGE_MAX (REQUEST_BYTES_MAX + 64)

// Creates a file in the daemon's folder, mode 0600. The returned path is valid for three more
// calls.
const char *net_file(const struct daemon *d, const char *name, const char *content);

// Removes a file of the daemon's folder, which must be empty at the end.
void net_file_remove(const struct daemon *d, const char *name);

// Connects; sends nothing.
int net_connect(int port);

// Sends all bytes; the other side may have closed.
void net_send(int fd, const void *data, size_t size);

// Exchanges greetings.
void net_greet(int fd);

// Encodes a request as a frame of TCP, with a token of any length ("": none). Returns its size.
size_t net_frame(uint8_t *bytes, uint32_t number, const struct wire_request *request,
                 const char *token);

// Decodes a reply without the 8 bytes of its length; free with wire_reply_fini().
struct wire_reply net_decode(const uint8_t *bytes, size_t size);

void net_ask(int fd, uint32_t number, const struct wire_request *request, const char *token);
struct wire_reply net_answer(int fd);

// Requests the status and expects an answer with this status.
void net_expect(int fd, const char *token, enum status status);

// Waits until the daemon closes the connection; ignores what it sends before.
void net_expect_closed(int fd);

#endif
