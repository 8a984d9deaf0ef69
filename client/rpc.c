// SPDX-License-Identifier: Apache-2.0
#include "client/rpc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/link_tls.h"
#include "common/list.h"

// Maximum number of idle connections; further ones are closed.
#define LANES_IDLE_MAX 8
// A prompt call does not connect for this many times connect_ns after a connection that was not
// answered.
#define SILENCE_FACTOR 2

// A lane: a connection, with one call at a time.
struct lane {
    struct list node; // on rpc->idle or rpc->busy; on neither while it is opened or closed
    struct link *link;
    unsigned losses; // rpc->losses when it was opened
};

struct rpc {
    pthread_mutex_t mutex;  // guards everything below
    pthread_cond_t changed; // an answer came, or no listed call is left
    int holders;            // the creator and every call
    struct rpc_config config;
    bool closed;
    struct list idle, busy; // lanes; the idle ones with the last used first
    struct list flying;     // calls in flight
    struct list told;       // answered listed calls that were not yet returned
    int counted, listed;    // calls in flight: those that count; only RPC_LISTED
    // Number of connections lost with a call in flight. The daemon may have ended then, and nng may
    // report this late for other connections: connections opened before are not used again.
    unsigned losses;
    uint64_t silent_ns; // when a connection was not answered in time; 0: a later one was
};

struct rpc_call {
    struct list node; // on rpc->flying, rpc->told, or none
    struct rpc *rpc;
    struct lane *lane; // valid until the lane has answered; then only compared
    int holders;       // the caller and the lane
    enum rpc_kind kind;
    void *owner;
    bool answered;
    enum status status;
    char text[ERROR_TEXT_MAX];
    void *data;
    size_t size;
};

// ---- holders ------------------------------------------------------------------------------------

static void rpc_free(struct rpc *rpc)
{
    token_wipe(&rpc->config.token);
    pthread_cond_destroy(&rpc->changed);
    pthread_mutex_destroy(&rpc->mutex);
    free(rpc);
}

static void rpc_release(struct rpc *rpc)
{
    pthread_mutex_lock(&rpc->mutex);
    int holders = --rpc->holders;
    pthread_mutex_unlock(&rpc->mutex);
    if (holders == 0)
        rpc_free(rpc);
}

static void call_release(struct rpc_call *call)
{
    struct rpc *rpc = call->rpc;
    pthread_mutex_lock(&rpc->mutex);
    int holders = --call->holders;
    pthread_mutex_unlock(&rpc->mutex);
    if (holders > 0)
        return;
    free(call->data);
    free(call);
    rpc_release(rpc);
}

// ---- answers ------------------------------------------------------------------------------------

static bool counts(enum rpc_kind kind)
{
    return kind == RPC_LISTED || kind == RPC_COUNTED;
}

// Answers a call, unless it is answered already; takes over `data`. Needs the lock. The caller
// broadcasts `changed` afterwards.
static void call_answer(struct rpc_call *call, enum status status, const char *text, void *data,
                        size_t size)
{
    struct rpc *rpc = call->rpc;
    if (call->answered) {
        free(data);
        return;
    }
    call->answered = true;
    call->status = status;
    call->data = data;
    call->size = size;
    snprintf(call->text, sizeof call->text, "%s", text);
    rpc->counted -= counts(call->kind);
    rpc->listed -= call->kind == RPC_LISTED;
    list_remove(&call->node);
    if (call->kind == RPC_LISTED)
        list_push_back(&rpc->told, &call->node);
}

static void answered(void *arg, enum status status, const char *text, void *data, size_t size)
{
    struct rpc_call *call = arg;
    struct rpc *rpc = call->rpc;
    pthread_mutex_lock(&rpc->mutex);
    call_answer(call, status, text, data, size);
    rpc->losses += status == STATUS_UNAVAILABLE;
    if (!rpc->closed) {
        list_remove(&call->lane->node);
        list_push_front(&rpc->idle, &call->lane->node);
    }
    pthread_mutex_unlock(&rpc->mutex);
    // Without the lock, so that woken threads do not wait for it. The call still holds `rpc`.
    pthread_cond_broadcast(&rpc->changed);
    call_release(call);
}

// ---- lanes --------------------------------------------------------------------------------------

static void lane_close(struct lane *lane)
{
    link_close(lane->link);
    free(lane);
}

static enum status lane_open(struct rpc *rpc, struct lane **lane, struct error *error)
{
    const struct rpc_config *config = &rpc->config;
    struct lane *opened = calloc(1, sizeof *opened);
    if (!opened)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "not enough memory for a "
                         "connection");
    list_init(&opened->node);
    pthread_mutex_lock(&rpc->mutex);
    opened->losses = rpc->losses;
    pthread_mutex_unlock(&rpc->mutex);
    enum status status =
        link_open(&config->target, link_now_ns() + config->connect_ns, &opened->link, error);
    pthread_mutex_lock(&rpc->mutex);
    rpc->silent_ns = status == STATUS_DEADLINE_EXCEEDED ? link_now_ns() : 0;
    pthread_mutex_unlock(&rpc->mutex);
    if (status == STATUS_OK)
        *lane = opened;
    else
        free(opened);
    return status;
}

// Removes a lane from the idle list: one that is down, was opened before the last loss, or exceeds
// the limit. NULL: none.
static struct lane *lane_superfluous(struct rpc *rpc)
{
    struct lane *found = NULL;
    size_t idle = 0;
    pthread_mutex_lock(&rpc->mutex);
    LIST_FOREACH (node, &rpc->idle) {
        struct lane *lane = LIST_ENTRY(node, struct lane, node);
        if (!found &&
            (++idle > LANES_IDLE_MAX || lane->losses != rpc->losses || !link_up(lane->link)))
            found = lane;
    }
    if (found)
        list_remove(&found->node);
    pthread_mutex_unlock(&rpc->mutex);
    return found;
}

static void lanes_trim(struct rpc *rpc)
{
    for (struct lane *lane; (lane = lane_superfluous(rpc)) != NULL;)
        lane_close(lane);
}

// Takes an idle lane for a call, or opens a new one.
static enum status lane_get(struct rpc *rpc, enum rpc_kind kind, struct lane **lane,
                            struct error *error)
{
    lanes_trim(rpc);
    pthread_mutex_lock(&rpc->mutex);
    struct list *node = list_pop_front(&rpc->idle);
    bool silent = rpc->silent_ns > 0 &&
                  link_now_ns() - rpc->silent_ns < SILENCE_FACTOR * rpc->config.connect_ns;
    pthread_mutex_unlock(&rpc->mutex);
    if (!node && silent && kind == RPC_PROMPT)
        return error_set(error, STATUS_UNAVAILABLE,
                         "the daemon at %s did not answer the last connection",
                         rpc->config.target.address);
    if (!node)
        return lane_open(rpc, lane, error);
    *lane = LIST_ENTRY(node, struct lane, node);
    return STATUS_OK;
}

static struct rpc *rpc_allocate(const struct rpc_config *config)
{
    struct rpc *rpc = calloc(1, sizeof *rpc);
    if (!rpc)
        return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&rpc->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&rpc->mutex, NULL);
    list_init(&rpc->idle);
    list_init(&rpc->busy);
    list_init(&rpc->flying);
    list_init(&rpc->told);
    rpc->holders = 1;
    rpc->config = *config;
    return rpc;
}

enum status rpc_create(const struct rpc_config *config, struct rpc **rpc, struct error *error)
{
    struct lane *lane = NULL;
    struct rpc *created = rpc_allocate(config);
    if (!created)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a client");
    enum status status = lane_open(created, &lane, error);
    if (!lane) {
        rpc_free(created);
        return status;
    }
    list_push_front(&created->idle, &lane->node);
    *rpc = created;
    return STATUS_OK;
}

// Closes the lanes of a list. The list must not be used afterwards.
static void lanes_close(struct list *lanes)
{
    LIST_FOREACH (node, lanes)
        lane_close(LIST_ENTRY(node, struct lane, node));
}

void rpc_destroy(struct rpc *rpc)
{
    pthread_mutex_lock(&rpc->mutex);
    rpc->closed = true; // no more changes to the lists of lanes
    LIST_FOREACH (node, &rpc->flying)
        call_answer(LIST_ENTRY(node, struct rpc_call, node), STATUS_CANCELLED,
                    "the client was destroyed before the answer came", NULL, 0);
    pthread_cond_broadcast(&rpc->changed);
    pthread_mutex_unlock(&rpc->mutex);
    lanes_close(&rpc->busy);
    lanes_close(&rpc->idle);
    link_tls_destroy(rpc->config.target.tls);
    rpc_release(rpc);
}

const struct token *rpc_token(const struct rpc *rpc)
{
    return &rpc->config.token;
}

// ---- calls --------------------------------------------------------------------------------------

// Creates a call in flight with two holders: the caller, and the lane that will carry it. Needs the
// lock.
static enum status call_create(struct rpc *rpc, enum rpc_kind kind, void *owner,
                               struct rpc_call **call, struct error *error)
{
    if (rpc->closed)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the client was destroyed");
    if (counts(kind) && rpc->counted >= rpc->config.calls_max)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "%d requests are in flight, which is the limit of this client",
                         rpc->counted);
    struct rpc_call *created = calloc(1, sizeof *created);
    if (!created)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a request");
    created->rpc = rpc;
    created->holders = 2;
    created->kind = kind;
    created->owner = owner;
    rpc->holders++;
    rpc->counted += counts(kind);
    rpc->listed += kind == RPC_LISTED;
    list_init(&created->node);
    list_push_back(&rpc->flying, &created->node);
    *call = created;
    return STATUS_OK;
}

// Withdraws a call that was not sent.
static void call_undo(struct rpc_call *call)
{
    pthread_mutex_lock(&call->rpc->mutex);
    call_answer(call, STATUS_CANCELLED, "", NULL, 0);
    pthread_cond_broadcast(&call->rpc->changed);
    list_remove(&call->node);
    call->holders = 1;
    pthread_mutex_unlock(&call->rpc->mutex);
    call_release(call);
}

// Gives the call a lane and sends it. UNAVAILABLE with *stale set: the idle lane was down, and
// nothing was sent.
static enum status call_send(struct rpc_call *call, const void *data, size_t size,
                             uint64_t limit_ns, bool *stale, struct error *error)
{
    struct rpc *rpc = call->rpc;
    struct lane *lane = NULL;
    enum status status = lane_get(rpc, call->kind, &lane, error);
    if (!lane)
        return status;
    pthread_mutex_lock(&rpc->mutex);
    call->lane = lane;
    list_push_front(&rpc->busy, &lane->node);
    pthread_mutex_unlock(&rpc->mutex);
    status = link_exchange(lane->link, data, size, link_now_ns() + limit_ns, answered, call, error);
    if (status == STATUS_OK)
        return status;
    pthread_mutex_lock(&rpc->mutex);
    list_remove(&lane->node);
    pthread_mutex_unlock(&rpc->mutex);
    lane_close(lane);
    *stale = status == STATUS_UNAVAILABLE;
    return status;
}

enum status rpc_start(struct rpc *rpc, const void *data, size_t size, uint64_t limit_ns,
                      enum rpc_kind kind, void *owner, struct rpc_call **call, struct error *error)
{
    struct rpc_call *started = NULL;
    pthread_mutex_lock(&rpc->mutex);
    enum status status = call_create(rpc, kind, owner, &started, error);
    *call = started;
    pthread_mutex_unlock(&rpc->mutex);
    if (!started)
        return status;
    bool stale = false;
    status = call_send(started, data, size, limit_ns, &stale, error);
    if (stale)
        status = call_send(started, data, size, limit_ns, &stale, error);
    if (status != STATUS_OK)
        call_undo(started);
    return status;
}

void rpc_drop(struct rpc_call *call)
{
    pthread_mutex_lock(&call->rpc->mutex);
    if (call->answered) {
        list_remove(&call->node);
    } else if (call->kind == RPC_LISTED) {
        call->kind = RPC_COUNTED; // rpc_wait_any() no longer returns it
        call->rpc->listed--;
        pthread_cond_broadcast(&call->rpc->changed);
    }
    bool closed = call->rpc->closed;
    pthread_mutex_unlock(&call->rpc->mutex);
    if (!closed)
        lanes_trim(call->rpc);
    call_release(call);
}

void rpc_retire(struct rpc_call *call)
{
    struct rpc *rpc = call->rpc;
    struct lane *lane = NULL;
    pthread_mutex_lock(&rpc->mutex);
    LIST_FOREACH (node, &rpc->idle) {
        if (!rpc->closed && LIST_ENTRY(node, struct lane, node) == call->lane)
            lane = call->lane;
    }
    if (lane)
        list_remove(&lane->node);
    pthread_mutex_unlock(&rpc->mutex);
    if (lane)
        lane_close(lane);
}

// ---- waiting ------------------------------------------------------------------------------------

// Waits for a change; false when the time is over. With the lock held.
static bool wait_change(struct rpc *rpc, uint64_t until_ns)
{
    if (until_ns == UINT64_MAX)
        return pthread_cond_wait(&rpc->changed, &rpc->mutex) == 0;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    return pthread_cond_timedwait(&rpc->changed, &rpc->mutex, &until) == 0;
}

bool rpc_answered(struct rpc_call *call)
{
    return rpc_wait(call, 0);
}

bool rpc_wait(struct rpc_call *call, uint64_t until_ns)
{
    struct rpc *rpc = call->rpc;
    bool in_time = until_ns > 0;
    pthread_mutex_lock(&rpc->mutex);
    while (!call->answered && in_time)
        in_time = wait_change(rpc, until_ns);
    bool done = call->answered;
    pthread_mutex_unlock(&rpc->mutex);
    return done;
}

void *rpc_wait_any(struct rpc *rpc, uint64_t until_ns)
{
    bool in_time = true;
    pthread_mutex_lock(&rpc->mutex);
    while (list_empty(&rpc->told) && rpc->listed > 0 && in_time)
        in_time = wait_change(rpc, until_ns);
    struct list *node = list_pop_front(&rpc->told);
    void *owner = node ? LIST_ENTRY(node, struct rpc_call, node)->owner : NULL;
    pthread_mutex_unlock(&rpc->mutex);
    return owner;
}

enum status rpc_take(struct rpc_call *call, const void **data, size_t *size, struct error *error)
{
    pthread_mutex_lock(&call->rpc->mutex);
    list_remove(&call->node);
    pthread_mutex_unlock(&call->rpc->mutex);
    if (call->status != STATUS_OK)
        return error_set(error, call->status, "%s", call->text);
    *data = call->data;
    *size = call->size;
    return STATUS_OK;
}
