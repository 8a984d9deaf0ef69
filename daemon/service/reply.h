// SPDX-License-Identifier: Apache-2.0
// Encodes and sends replies.
#ifndef CPATTN_DAEMON_SERVICE_REPLY_H
#define CPATTN_DAEMON_SERVICE_REPLY_H

#include <stddef.h>

#include "common/status.h"
#include "daemon/net/server.h"
#include "proto/wire.h"

// Encodes a reply; the caller frees the bytes. If it cannot be encoded, encodes a short one with
// its status; NULL: not even that. Sets the version.
void *reply_encode(struct wire_reply *reply, size_t *size);

// Ends the exchange; sends the reply if it can be encoded.
void reply_send(struct exchange *exchange, struct wire_reply *reply);

// The same with only a status and its sentence.
void reply_status(struct exchange *exchange, const struct wire_request *request,
                  const struct error *error);

// Sends the reply if there is one, else the error.
void reply_done(struct exchange *exchange, const struct wire_request *request,
                struct wire_reply *done, const struct error *error);

#endif
