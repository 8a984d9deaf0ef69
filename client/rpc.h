// SPDX-License-Identifier: Apache-2.0
// Calls: requests and their answers, many in flight. Each uses a connection of its own, which later
// calls reuse. Waits for one call or for any. Does not interpret the bytes. All functions may be
// called from any thread.
#ifndef CPATTN_CLIENT_RPC_H
#define CPATTN_CLIENT_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/link.h"
#include "common/status.h"
#include "common/token.h"

struct rpc;
struct rpc_call;

struct rpc_config {
    struct link_target target; // its TLS belongs to the struct rpc that is created
    struct token token;        // for encoding requests; rpc_token()
    uint64_t connect_ns;       // time limit of connecting
    int calls_max;             // maximum number of calls in flight, except RPC_FREE
};

// Connects. On failure returns the status of link_open(), and the caller keeps the TLS
// configuration.
enum status rpc_create(const struct rpc_config *config, struct rpc **rpc,
                       struct error *error) MUST_CHECK;

// Answers all calls CANCELLED and closes the connections. Calls that the caller still holds stay
// valid.
void rpc_destroy(struct rpc *rpc);

// The token of the configuration.
const struct token *rpc_token(const struct rpc *rpc);

enum rpc_kind {
    RPC_LISTED,  // counts against calls_max, and rpc_wait_any() returns it
    RPC_COUNTED, // counts against calls_max, but rpc_wait_any() does not return it
    RPC_FREE,    // neither
    RPC_PROMPT,  // like RPC_FREE, but UNAVAILABLE shortly after a connection was not answered in
                 // time
};

// Sends bytes (copied); connects first if no connection is idle. The call is answered within
// limit_ns after that in any case. *call is set before another thread can get the owner from
// rpc_wait_any(), and may be freed with it before this function returns; after a failure *call is
// invalid. RESOURCE_EXHAUSTED: calls_max are in flight.
enum status rpc_start(struct rpc *rpc, const void *data, size_t size, uint64_t limit_ns,
                      enum rpc_kind kind, void *owner, struct rpc_call **call,
                      struct error *error) MUST_CHECK;

// Releases a call. If it is in flight, it continues and its answer is dropped.
void rpc_drop(struct rpc_call *call);

// Closes the connection of an answered call, unless another call uses it. For answers after which
// the daemon may close it.
void rpc_retire(struct rpc_call *call);

bool rpc_answered(struct rpc_call *call);

// Waits until a time of CLOCK_MONOTONIC; UINT64_MAX: no limit. True if the call is answered.
bool rpc_wait(struct rpc_call *call, uint64_t until_ns);

// Returns the owner of the first answered listed call that was not yet returned here or taken.
// NULL: the time is over, or no listed call is left.
void *rpc_wait_any(struct rpc *rpc, uint64_t until_ns);

// Takes the answer of an answered call: STATUS_OK and bytes, which belong to the call, or the
// failure. rpc_wait_any() does not return the call any more.
enum status rpc_take(struct rpc_call *call, const void **data, size_t *size, struct error *error);

#endif
