// SPDX-License-Identifier: Apache-2.0
#include "proto/wire.h"

#include <stdlib.h>
#include <string.h>

const char *request_id_text(const struct request_id *id, char text[ID_TEXT_MAX])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof(id->bytes); i++) {
        text[2 * i] = digits[id->bytes[i] >> 4];
        text[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    text[2 * sizeof(id->bytes)] = '\0';
    return text;
}

const char *pool_state_name(enum pool_state state)
{
    static const char *const names[] = {
        [POOL_STARTING] = "starting", [POOL_IDLE] = "idle",       [POOL_RUNNING] = "running",
        [POOL_STOPPING] = "stopping", [POOL_BACKOFF] = "backoff", [POOL_DOWN] = "down",
        [POOL_COLD] = "cold",         [POOL_STUCK] = "stuck",
    };
    return state >= POOL_STARTING && state <= POOL_STUCK ? names[state] : "?";
}

const char *event_kind_name(enum wire_event_kind kind)
{
    static const char *const names[] = {
        [EVENT_ADMITTED] = "admitted", [EVENT_STARTED] = "started", [EVENT_FINISHED] = "finished",
        [EVENT_POOL] = "pool",         [EVENT_DEVICE] = "device",   [EVENT_DAEMON] = "daemon",
    };
    return kind >= EVENT_ADMITTED && kind <= EVENT_DAEMON ? names[kind] : "?";
}

const char *device_state_name(enum device_state state)
{
    static const char *const names[] = {
        [DEVICE_ENABLED] = "enabled", [DEVICE_DRAINED] = "drained", [DEVICE_STUCK] = "stuck"};
    return state >= DEVICE_ENABLED && state <= DEVICE_STUCK ? names[state] : "?";
}

void wire_reply_fini(struct wire_reply *reply)
{
    free(reply->result.ranks);
    free(reply->failure.ranks);
    free(reply->pools.pools);
    free(reply->pools.open);
    free(reply->events.list);
    memset(reply, 0, sizeof *reply);
}
