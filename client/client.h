// SPDX-License-Identifier: Apache-2.0
// Internal declarations shared by the parts of the library.
#ifndef CPATTN_CLIENT_CLIENT_H
#define CPATTN_CLIENT_CLIENT_H

#include <sys/types.h>

#include "client/cpattn.h"
#include "client/rpc.h"
#include "plan/case.h"
#include "proto/wire.h"

struct cpattn_case {
    struct cp_case plain;
    bool kv_heads_given; // otherwise kv_heads equals heads
    bool is_job;         // another kind than attention: only `job` is used
    struct job_text job;
};

// Options that requests carry in addition to their time limits.
struct client_wishes {
    uint64_t patience_ns; // as in struct wire_request
    bool cancel_on_disconnect;
};

struct cpattn_client {
    struct rpc *rpc;
    pid_t pid; // of the process that created it
    uint64_t grace_ns;
    struct client_wishes wishes;
    char socket[LINK_ADDRESS_MAX];
};

// Converts an internal error: fills `out` (may be NULL) and returns the status.
enum cpattn_status client_status(enum status status, const struct error *error,
                                 struct cpattn_error *out);

// FAILED_PRECONDITION in a process other than the one with this pid.
enum status client_check_pid(pid_t pid, struct error *error) MUST_CHECK;

// Zeroes the request and fills in version, method and a new id.
enum status client_request_init(struct wire_request *request, enum wire_method method,
                                struct error *error) MUST_CHECK;

// Encodes and sends a request with the client's token, if it has one; wipes the token from the
// request afterwards. The answer comes within limit_ns.
enum status client_start(struct rpc *rpc, struct wire_request *request, uint64_t limit_ns,
                         enum rpc_kind kind, void *owner, struct rpc_call **call,
                         struct error *error) MUST_CHECK;

// Decodes the answer of an answered call: STATUS_OK and a reply of the request's method; or the
// failure, with the states of ranks in the reply if the daemon sent them. Call wire_reply_fini() in
// any case.
enum status client_answer(struct rpc_call *call, const struct request_id *id,
                          enum wire_method method, struct wire_reply *reply, struct error *error);

// Sends a request, waits for its answer, and decodes it like client_answer(). After a failure there
// is no reply to free.
enum status client_ask(struct cpattn_client *client, struct wire_request *request,
                       uint64_t timeout_ns, struct wire_reply *reply,
                       struct error *error) MUST_CHECK;

// Turns the reply to a run into a result, which takes over the reply's lists.
enum status result_create(struct wire_reply *reply, struct cpattn_result **result,
                          struct error *error) MUST_CHECK;

#endif
