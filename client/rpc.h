// SPDX-License-Identifier: Apache-2.0
// Requests and their answers: many in flight, each on a connection of its own, which the next
// request uses again; waits for one of them or for any. Knows bytes, not what they mean. All
// functions may be called from any thread.
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
    struct token token;        // for those who make requests; rpc_token()
    uint64_t connect_ns;       // how long connecting may take
    int calls_max;             // in flight at once, of those that count
};

// Connects; what link_open() says otherwise, and the TLS stays the caller's.
enum status rpc_create(const struct rpc_config *config, struct rpc **rpc,
                       struct error *error) MUST_CHECK;

// Gives up all calls, which are answered CANCELLED, and ends the connection. Calls that are still
// held keep what they need.
void rpc_destroy(struct rpc *rpc);

// The token that it was given.
const struct token *rpc_token(const struct rpc *rpc);

enum rpc_kind {
    RPC_LISTED, // counts against calls_max, and rpc_wait_any() tells of it
    RPC_COUNTED,
    RPC_FREE,
};

// Sends bytes (copied); connects first where no connection is idle. The call is answered within
// limit_ns from then in any case. RESOURCE_EXHAUSTED: calls_max are in flight.
enum status rpc_start(struct rpc *rpc, const void *data, size_t size, uint64_t limit_ns,
                      enum rpc_kind kind, void *owner, struct rpc_call **call,
                      struct error *error) MUST_CHECK;

// Ends the caller's hold on a call; one in flight goes on unheard.
void rpc_drop(struct rpc_call *call);

// Ends the connection that an answered call has used, unless another call uses it now. For answers
// after which the daemon may end it.
void rpc_retire(struct rpc_call *call);

bool rpc_answered(struct rpc_call *call);

// Waits until a time of CLOCK_MONOTONIC; UINT64_MAX: for ever. Whether it is answered.
bool rpc_wait(struct rpc_call *call, uint64_t until_ns);

// The owner of the first listed call that is answered and was neither told of here nor taken; NULL
// when the time is over, or when no listed call is left.
void *rpc_wait_any(struct rpc *rpc, uint64_t until_ns);

// The answer of an answered call: STATUS_OK and bytes, which belong to the call, or why there are
// none. Takes it off the list that rpc_wait_any() looks at.
enum status rpc_take(struct rpc_call *call, const void **data, size_t *size, struct error *error);

#endif
