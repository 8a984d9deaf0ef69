// SPDX-License-Identifier: Apache-2.0
// A client made by hand on a bare socket: no library, no thread, nothing is resent. What it sends
// and gets can be counted, and it can die at any moment. Never waits but in raw_open().
#ifndef CPATTN_TESTS_SUPPORT_RAW_CLIENT_H
#define CPATTN_TESTS_SUPPORT_RAW_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire.h"

struct raw_client {
    int fd; // -1: not connected
    bool greeted;
    size_t lead; // bytes of a frame before its length: over TCP there is none
    uint8_t *in, *out;
    size_t in_bytes, in_room, out_bytes, out_done, out_room;
};

// Connects and greets. False, with errno, when the socket does not take it.
bool raw_open(struct raw_client *c, const char *socket);
// The same over TCP, to 127.0.0.1. Tokens are the caller's to put into its requests.
bool raw_open_tcp(struct raw_client *c, int port);
// Closes the socket as it is, whatever is under way. Takes a closed and a zeroed one.
void raw_close(struct raw_client *c);

// Queues a request under a number of the caller's (31 bits) and sends what the socket takes.
void raw_send(struct raw_client *c, uint32_t number, const struct wire_request *request);
// The same for a request that runs a case, and for one for the status. The number is in its id.
void raw_send_run(struct raw_client *c, uint32_t number, const struct cp_case *run, int timeout_ms);
void raw_send_status(struct raw_client *c, uint32_t number);
// Sends what is queued; false once the connection is gone.
bool raw_flush(struct raw_client *c);

enum raw_input { RAW_NOTHING, RAW_REPLY, RAW_GONE };
// The next reply that is here, with the number of its request; wire_reply_fini(). GONE: the daemon
// has closed the connection, or what it sent is no reply.
enum raw_input raw_next(struct raw_client *c, uint32_t *number, struct wire_reply *reply);

// Waits for the next reply for so long at most.
enum raw_input raw_wait(struct raw_client *c, int timeout_ms, uint32_t *number,
                        struct wire_reply *reply);

#endif
