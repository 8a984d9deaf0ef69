// SPDX-License-Identifier: Apache-2.0
// Implements requests: submitting, waiting, cancelling and collecting; and orders.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cpattn_watch.h"
#include "client/request.h"

// Time limit of a request to cancel.
#define CANCEL_LIMIT_NS UINT64_C(5000000000)

struct cpattn_request {
    struct rpc *rpc; // lives as long as the call
    struct rpc_call *call;
    pid_t pid; // of the process that created it
    struct request_id id;
    char id_text[ID_TEXT_MAX];
    void *tag;
    bool read; // the answer was read, into the members below
    enum status status;
    struct error error;
    struct cpattn_result *result; // NULL: returned to the caller, or none
    struct attending *attending;  // NULL: no tensors of the caller
};

// The tensors of a request until it is collected.
struct attending {
    struct cp_case c;
    struct attend_tensors tensors;
    struct attend_memory memory;
};

// ---- starting and ending ------------------------------------------------------------------------

// Time limits of a case (0: the default, or none) and the other options of a request.
struct limits {
    uint64_t timeout_ns, run_timeout_ns;
    struct client_wishes wishes;
};

static enum status limit_check(const char *name, uint64_t ns, struct error *error)
{
    if (ns <= TIMEOUT_MAX_NS)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %llu; accepted is 0 to %llu", name,
                     (unsigned long long)ns, (unsigned long long)TIMEOUT_MAX_NS);
}

static enum status run_request(const struct cpattn_case *c, const struct limits *limits,
                               struct wire_request *request, struct error *error)
{
    enum status status = limit_check("timeout_ns", limits->timeout_ns, error);
    if (status == STATUS_OK)
        status = limit_check("run_timeout_ns", limits->run_timeout_ns, error);
    if (status == STATUS_OK)
        status = client_request_init(request, METHOD_RUN, error);
    request->timeout_ns = limits->timeout_ns; // 0: the daemon's default
    request->run_timeout_ns = limits->run_timeout_ns;
    request->patience_ns = limits->wishes.patience_ns;
    request->cancel_on_disconnect = limits->wishes.cancel_on_disconnect;
    request->is_job = c->is_job;
    if (c->is_job)
        request->job = c->job;
    else
        request->run = c->plain;
    return status;
}

static void attending_end(struct attending *a)
{
    if (a)
        attend_memory_fini(&a->memory);
    free(a);
}

static enum status request_create(struct cpattn_client *client, const struct cpattn_case *c,
                                  const struct limits *limits, enum rpc_kind kind,
                                  struct attending *attending, struct cpattn_request **request,
                                  struct error *error)
{
    struct wire_request wire = {.version = 0};
    enum status status = client_check_pid(client->pid, error);
    if (status == STATUS_OK)
        status = run_request(c, limits, &wire, error);
    if (status == STATUS_OK && attending) {
        wire.attends = true;
        wire.places = attending->memory.places;
        status = attend_memory_hand_in(&attending->memory, client->socket, &wire.id, error);
    }
    if (status != STATUS_OK)
        return status;
    struct cpattn_request *created = calloc(1, sizeof *created);
    if (!created)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a request");
    created->rpc = client->rpc;
    created->pid = client->pid;
    created->attending = attending;
    created->id = wire.id;
    request_id_text(&wire.id, created->id_text);
    uint64_t most_ns = wire.timeout_ns ? wire.timeout_ns : TIMEOUT_DEFAULT_NS;
    status = client_start(client->rpc, &wire, most_ns + client->grace_ns, kind, created,
                          &created->call, error);
    if (status == STATUS_OK)
        *request = created;
    else
        free(created);
    return status;
}

enum cpattn_status cpattn_submit_limited(struct cpattn_client *client, const struct cpattn_case *c,
                                         uint64_t timeout_ns, uint64_t run_timeout_ns,
                                         struct cpattn_request **request,
                                         struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    const struct limits limits = {timeout_ns, run_timeout_ns, client->wishes};
    enum status status = request_create(client, c, &limits, RPC_LISTED, NULL, request, &inner);
    return client_status(status, &inner, error);
}

enum status request_attend(struct cpattn_client *client, const struct cpattn_case *c,
                           const struct attend_tensors *tensors, uint64_t timeout_ns,
                           struct cpattn_request **request, struct error *error)
{
    const struct limits limits = {.timeout_ns = timeout_ns, .wishes = client->wishes};
    struct attending *a = calloc(1, sizeof(*a));
    if (!a)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a request");
    a->c = c->plain;
    a->tensors = *tensors;
    enum status status = attend_memory_init(&a->memory, &a->c, tensors, error);
    if (status != STATUS_OK) {
        free(a);
        return status;
    }
    status = request_create(client, c, &limits, RPC_COUNTED, a, request, error);
    if (status != STATUS_OK)
        attending_end(a);
    return status;
}

enum cpattn_status cpattn_submit(struct cpattn_client *client, const struct cpattn_case *c,
                                 uint64_t timeout_ns, struct cpattn_request **request,
                                 struct cpattn_error *error)
{
    return cpattn_submit_limited(client, c, timeout_ns, 0, request, error);
}

static enum status request_cancel(struct cpattn_request *request, struct error *error)
{
    struct wire_request wire;
    struct rpc_call *call;
    enum status status = client_check_pid(request->pid, error);
    if (status != STATUS_OK || rpc_answered(request->call))
        return status;
    status = client_request_init(&wire, METHOD_CANCEL, error);
    if (status != STATUS_OK)
        return status;
    wire.cancel = request->id;
    status = client_start(request->rpc, &wire, CANCEL_LIMIT_NS, RPC_PROMPT, NULL, &call, error);
    if (status == STATUS_OK)
        rpc_drop(call); // only the answer to the request itself matters
    return status;
}

enum cpattn_status cpattn_cancel(struct cpattn_request *request, struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    return client_status(request_cancel(request, &inner), &inner, error);
}

static int digit_read(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 'a' ^ 'A';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum status id_read(const char *text, struct request_id *id, struct error *error)
{
    bool good = strlen(text) == 2 * sizeof id->bytes;
    for (size_t i = 0; good && i < sizeof id->bytes; i++) {
        int high = digit_read(text[2 * i]), low = digit_read(text[2 * i + 1]);
        good = high >= 0 && low >= 0;
        id->bytes[i] = (uint8_t)(16 * high + low);
    }
    return good ? STATUS_OK
                : error_set(error, STATUS_INVALID_ARGUMENT,
                            "the id of the request is '%.40s'; accepted is %zu hexadecimal digits",
                            text, 2 * sizeof id->bytes);
}

enum cpattn_status cpattn_cancel_id(struct cpattn_client *client, const char *id,
                                    uint64_t timeout_ns, struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    struct wire_request request;
    struct wire_reply reply;
    enum status status = client_check_pid(client->pid, &inner);
    if (status == STATUS_OK)
        status = client_request_init(&request, METHOD_CANCEL, &inner);
    if (status == STATUS_OK)
        status = id_read(id, &request.cancel, &inner);
    if (status == STATUS_OK)
        status = client_ask(client, &request, timeout_ns, &reply, &inner);
    return client_status(status, &inner, error);
}

enum cpattn_status cpattn_order(struct cpattn_client *client, enum cpattn_order order, int device,
                                uint64_t timeout_ns, uint64_t *count, struct cpattn_error *error)
{
    return cpattn_order_on(client, order, 0, device, timeout_ns, count, error);
}

enum cpattn_status cpattn_order_on(struct cpattn_client *client, enum cpattn_order order, int host,
                                   int device, uint64_t timeout_ns, uint64_t *count,
                                   struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    struct wire_request request = {.version = 0};
    struct wire_reply reply;
    enum status status = client_check_pid(client->pid, &inner);
    if (status == STATUS_OK)
        status = client_request_init(&request, METHOD_ORDER, &inner);
    if (status == STATUS_OK && (order < CPATTN_ORDER_DRAIN || order > CPATTN_ORDER_RELOAD))
        status = error_set(&inner, STATUS_INVALID_ARGUMENT, "order is %d; accepted is 1 to %d",
                           (int)order, (int)CPATTN_ORDER_RELOAD);
    if (status == STATUS_OK && (device < 0 || device > DEVICE_NUMBER_MAX))
        status = error_set(&inner, STATUS_INVALID_ARGUMENT, "device is %d; accepted is 0 to %d",
                           device, DEVICE_NUMBER_MAX);
    if (status == STATUS_OK && (host < 0 || host >= HOSTS_MAX))
        status = error_set(&inner, STATUS_INVALID_ARGUMENT, "host is %d; accepted is 0 to %d", host,
                           HOSTS_MAX - 1);
    request.order = (struct wire_order){(enum wire_order_kind)order, device, host};
    if (status == STATUS_OK)
        status = client_ask(client, &request, timeout_ns, &reply, &inner);
    if (status == STATUS_OK && count)
        *count = reply.done;
    return client_status(status, &inner, error);
}

void cpattn_request_destroy(struct cpattn_request *request)
{
    struct error unheard;
    if (!request || client_check_pid(request->pid, &unheard) != STATUS_OK)
        return;
    request_cancel(request, &unheard);
    rpc_drop(request->call);
    cpattn_result_destroy(request->result);
    attending_end(request->attending);
    free(request);
}

// ---- tags, ids and waiting ----------------------------------------------------------------------

void cpattn_request_set_tag(struct cpattn_request *request, void *tag)
{
    request->tag = tag;
}

void *cpattn_request_tag(const struct cpattn_request *request)
{
    return request->tag;
}

const char *cpattn_request_id(const struct cpattn_request *request)
{
    return request->id_text;
}

bool cpattn_poll(struct cpattn_request *request)
{
    return cpattn_wait(request, 0);
}

static uint64_t until(uint64_t timeout_ns)
{
    uint64_t sum;
    if (timeout_ns == 0 || timeout_ns == UINT64_MAX)
        return timeout_ns;
    return __builtin_add_overflow(link_now_ns(), timeout_ns, &sum) || sum > INT64_MAX ? UINT64_MAX
                                                                                      : sum;
}

// In a forked child every request counts as answered; cpattn_collect() returns the reason.
bool cpattn_wait(struct cpattn_request *request, uint64_t timeout_ns)
{
    return client_check_pid(request->pid, NULL) != STATUS_OK ||
           rpc_wait(request->call, until(timeout_ns));
}

struct cpattn_request *cpattn_wait_any(struct cpattn_client *client, uint64_t timeout_ns)
{
    if (client_check_pid(client->pid, NULL) != STATUS_OK)
        return NULL;
    return rpc_wait_any(client->rpc, until(timeout_ns));
}

// Decodes the answer into the request, and copies wanted tensors to the caller's memory. Called
// once.
static void request_read(struct cpattn_request *request)
{
    struct wire_reply reply;
    struct error unheard;
    request->read = true;
    request->status =
        client_answer(request->call, &request->id, METHOD_RUN, &reply, &request->error);
    if (request->status == STATUS_OK)
        request->status = result_create(&reply, &request->result, &request->error);
    else if (reply.failure.world_size > 0)
        (void)!result_create(&reply, &request->result, &unheard);
    wire_reply_fini(&reply);
    struct attending *a = request->attending;
    if (a && request->status == STATUS_OK)
        request->status = attend_memory_fetch(&a->memory, &a->c, &a->tensors, &request->error);
    attending_end(a);
    request->attending = NULL;
}

static enum status request_collect(struct cpattn_request *request, struct cpattn_result **result,
                                   struct error *error)
{
    enum status status = client_check_pid(request->pid, error);
    if (status != STATUS_OK)
        return status;
    if (!rpc_answered(request->call))
        return error_set(error, STATUS_FAILED_PRECONDITION, "the request is not answered yet");
    if (!request->read)
        request_read(request);
    *result = request->result;
    request->result = NULL;
    *error = request->error;
    return request->status;
}

enum cpattn_status cpattn_collect(struct cpattn_request *request, struct cpattn_result **result,
                                  struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    *result = NULL;
    return client_status(request_collect(request, result, &inner), &inner, error);
}

enum cpattn_status cpattn_run(struct cpattn_client *client, const struct cpattn_case *c,
                              uint64_t timeout_ns, struct cpattn_result **result,
                              struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    struct cpattn_request *request = NULL;
    *result = NULL;
    const struct limits limits = {.timeout_ns = timeout_ns, .wishes = client->wishes};
    enum status status = request_create(client, c, &limits, RPC_COUNTED, NULL, &request, &inner);
    if (!request)
        return client_status(status, &inner, error);
    rpc_wait(request->call, UINT64_MAX);
    status = request_collect(request, result, &inner);
    cpattn_request_destroy(request);
    return client_status(status, &inner, error);
}
