// SPDX-License-Identifier: Apache-2.0
// Encodes and sends replies.
#ifndef CPATTN_DAEMON_SERVICE_REPLY_H
#define CPATTN_DAEMON_SERVICE_REPLY_H

#include <stddef.h>

#include "common/status.h"
#include "daemon/net/server.h"
#include "proto/wire.h"

// Sets the version and encodes a reply; the caller frees the bytes. If the reply cannot be encoded,
// encodes a short one with its status and message. NULL: that failed, too.
void *reply_encode(struct wire_reply *reply, size_t *size);

// Sends the reply, if it can be encoded, and ends the exchange.
void reply_send(struct exchange *exchange, struct wire_reply *reply);

// Sends a reply with only the status and message of the error, and ends the exchange.
void reply_status(struct exchange *exchange, const struct wire_request *request,
                  const struct error *error);

// Sends `done`, or if it is NULL the error, and ends the exchange.
void reply_done(struct exchange *exchange, const struct wire_request *request,
                struct wire_reply *done, const struct error *error);

#endif
