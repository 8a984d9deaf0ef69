// SPDX-License-Identifier: Apache-2.0
#include "proto/wire.h"

#include <stdlib.h>
#include <string.h>

const char *pool_state_name(enum pool_state state)
{
    static const char *const names[] = {
        [POOL_STARTING] = "starting", [POOL_IDLE] = "idle",       [POOL_RUNNING] = "running",
        [POOL_STOPPING] = "stopping", [POOL_BACKOFF] = "backoff", [POOL_DOWN] = "down",
        [POOL_COLD] = "cold",         [POOL_STUCK] = "stuck",
    };
    return state >= POOL_STARTING && state <= POOL_STUCK ? names[state] : "?";
}

void wire_reply_fini(struct wire_reply *reply)
{
    free(reply->result.ranks);
    free(reply->failure.ranks);
    free(reply->pools.pools);
    free(reply->pools.open);
    memset(reply, 0, sizeof *reply);
}
