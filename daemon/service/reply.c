// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reply.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"

void *reply_encode(struct wire_reply *reply, size_t *size)
{
    void *data = NULL;
    struct error error;
    reply->version = WIRE_VERSION;
    if (wire_encode_reply(reply, &data, size, &error) == STATUS_OK)
        return data;
    log_error("reply_encode error=%s", log_quote(&(struct log_quoted){0}, error.text));
    struct wire_reply short_reply = {.version = WIRE_VERSION,
                                     .id = reply->id,
                                     .status = reply->status ? reply->status : STATUS_INTERNAL};
    snprintf(short_reply.message, sizeof(short_reply.message), "%s",
             reply->status ? reply->message : error.text);
    return wire_encode_reply(&short_reply, &data, size, &error) == STATUS_OK ? data : NULL;
}

void reply_send(struct exchange *exchange, struct wire_reply *reply)
{
    size_t size = 0;
    void *data = reply_encode(reply, &size);
    if (data)
        server_reply(exchange, data, size);
    else
        server_drop(exchange);
    free(data);
}

void reply_status(struct exchange *exchange, const struct wire_request *request,
                  const struct error *error)
{
    struct wire_reply reply = {.id = request->id, .status = error->status};
    snprintf(reply.message, sizeof(reply.message), "%s", error->text);
    reply_send(exchange, &reply);
}

void reply_done(struct exchange *exchange, const struct wire_request *request,
                struct wire_reply *done, const struct error *error)
{
    if (done)
        reply_send(exchange, done);
    else
        reply_status(exchange, request, error);
}
