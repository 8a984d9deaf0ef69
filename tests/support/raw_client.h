// SPDX-License-Identifier: Apache-2.0
// A client made by hand on a bare socket: no library, no thread, nothing is resent. A test can
// count what it sends and gets, and end it at any moment. Only raw_open() and raw_wait() wait.
#ifndef CPATTN_TESTS_SUPPORT_RAW_CLIENT_H
#define CPATTN_TESTS_SUPPORT_RAW_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire.h"

struct raw_client {
    int fd; // -1: not connected
    bool greeted;
    size_t lead; // bytes of a frame before its length; over TCP: 0
    uint8_t *in, *out;
    size_t in_bytes, in_room, out_bytes, out_done, out_room;
};

// Connects and queues the greeting. False, with errno, on an error.
bool raw_open(struct raw_client *c, const char *socket);
// The same over TCP, to 127.0.0.1. The caller puts tokens into requests.
bool raw_open_tcp(struct raw_client *c, int port);
// Closes the socket at once. A closed or zeroed client is allowed.
void raw_close(struct raw_client *c);

// Queues a request with the caller's number (31 bits) and sends as much as possible.
void raw_send(struct raw_client *c, uint32_t number, const struct wire_request *request);
// The same for a request that runs a case, and for a status request. The id contains the number.
void raw_send_run(struct raw_client *c, uint32_t number, const struct cp_case *run, int timeout_ms);
void raw_send_status(struct raw_client *c, uint32_t number);
// Sends queued bytes; false after the end of the connection.
bool raw_flush(struct raw_client *c);

enum raw_input { RAW_NOTHING, RAW_REPLY, RAW_GONE };
// Returns the next received reply, with the number of its request; free it with wire_reply_fini().
// GONE: the daemon closed the connection, or sent invalid bytes.
enum raw_input raw_next(struct raw_client *c, uint32_t *number, struct wire_reply *reply);

// Waits for the next reply, at most timeout_ms.
enum raw_input raw_wait(struct raw_client *c, int timeout_ms, uint32_t *number,
                        struct wire_reply *reply);

#endif
